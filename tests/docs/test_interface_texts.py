"""Tests of the texts of the interface that the documentation names: each exists in the panel, and so does each picture."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PANEL = ROOT / "labextension"

OF_JUPYTERLAB = {"Kernel", "Settings"}
"""Texts of JupyterLab itself."""

_LITERAL = re.compile(r'"((?:[^"\\\n]|\\.)*)"|`((?:[^`\\]|\\.)*)`|\'((?:[^\'\\\n]|\\.)*)\'')


def interface_texts() -> set[str]:
    """Return all texts of the panel's sources, and of its settings."""
    files = [*(PANEL / "src").rglob("*.ts"), *(PANEL / "src").rglob("*.tsx"), *(PANEL / "schema").rglob("*.json")]
    return {next(filter(None, found), "") for file in files for found in _LITERAL.findall(file.read_text("utf-8"))}


def named_texts(page: str) -> list[str]:
    """Return the texts in bold, which are those of buttons, commands and settings."""
    return re.findall(r"\*\*([^*\n]+)\*\*", re.sub(r"```.*?```", "", page, flags=re.DOTALL))


def missing_texts(page: str, texts: set[str]) -> list[str]:
    """Return the named texts that are neither a text of the panel nor its part before a placeholder."""
    starts = {re.split(r" (?:on )?%\d", text)[0] for text in texts}
    return sorted({*named_texts(page)} - texts - starts - OF_JUPYTERLAB)


def test_each_text_in_bold_is_one_of_the_interface() -> None:
    page = (DOCS / "how-to" / "jupyterlab.md").read_text("utf-8")
    texts = interface_texts()
    assert len(texts) > 500
    assert len(named_texts(page)) > 20
    assert not missing_texts(page, texts)


def test_a_button_that_is_gone_is_found() -> None:
    texts = {"Launch", "Free on %1"}
    page = "Press **Launch** under **Free**.\n```text\n**not** this\n```\nThen **Open in a tab**."
    assert missing_texts(page, texts) == ["Open in a tab"]


def test_each_picture_is_used_in_both_themes_and_each_reference_has_its_picture() -> None:
    text = "\n".join(file.read_text("utf-8") for file in [*DOCS.rglob("*.md"), ROOT / "README.md"])
    used = {*re.findall(r"images/([\w-]+\.(?:png|gif|svg))", text)}
    kept = {path.name for path in (DOCS / "images").iterdir()}
    assert used - kept == set(), "no such picture"
    assert kept - used == set(), "on no page"
    for name in used:
        if name.endswith(".svg"):  # a drawing, readable in both themes
            continue
        other = name.replace("-light.", "-dark.") if "-light." in name else name.replace("-dark.", "-light.")
        assert other in used, f"{name} has no picture in the other theme"
