"""Words of the documentation, of help and of the panel: those that half of the readers must decode are refused."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import reference_cli
import reference_magics
import reference_settings
from words import find_refused

ROOT = Path(__file__).parents[2]
GENERATED = [
    f"docs/reference/{name}.md" for name in ("cli", "errors", "http-api", "magics", "settings", "site-profile")
]
PAGES = [
    *(
        path
        for path in sorted((ROOT / "docs").rglob("*.md"))
        if "_build" not in path.parts and str(path.relative_to(ROOT)) not in GENERATED
    ),
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")),
]
# In the documentation these are plain English, and a sentence may quote a message.
ALLOWED_IN_PAGES = ("nobody", "everybody", "somebody", "whoever", "README", "there")
_TEXT = re.compile(r"trans\s*\.\s*(?:__|_n)\(\s*((?:\"(?:[^\"\\]|\\.)*\"\s*[,+]?\s*)+)")


def find_prose(text: str) -> Iterator[str]:
    """Yield the paragraphs of a page without its blocks, code and quotations."""
    text = re.sub(r"^(`{3,}|~{3,}).*?^\1\s*$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`\n]*`|\"[^\"\n]*\"|“[^”\n]*”|\*\*[^*\n]*\*\*|\]\([^)]*\)", "", text)
    yield from (" ".join(part.split()) for part in re.split(r"\n\s*\n|\n\|", text))


def find_faults(text: str) -> list[str]:
    """Return a line for each refused word of a page."""
    return [
        f"{fault}: {paragraph[:80]}"
        for paragraph in find_prose(text)
        for fault in find_refused(paragraph)
        if fault.split("'")[1].lower() not in {word.lower() for word in ALLOWED_IN_PAGES}
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_page_has_plain_words(page: Path) -> None:
    faults = find_faults(page.read_text("utf-8"))
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("module", [reference_cli, reference_magics, reference_settings], ids=lambda one: one.__name__)
def test_help_has_plain_words(module: object) -> None:
    faults = [fault for part in module.page().split("\n\n") for fault in find_refused(part)]  # type: ignore[attr-defined]
    assert not faults, "\n".join(faults)


def test_the_panel_has_plain_words() -> None:
    files = sorted((ROOT / "labextension" / "src").rglob("*.ts*"))
    texts = [(path, match[1]) for path in files for match in _TEXT.finditer(path.read_text("utf-8"))]
    assert len(texts) > 400
    faults = [f"{path.name}: {fault}: {text.strip()[:80]}" for path, text in texts for fault in find_refused(text)]
    assert not faults, "\n".join(faults)


def test_a_riddle_is_refused() -> None:
    assert len(find_faults("It begins anew.\n\n```text\nanew\n```\n\n`anew` and **Go on** stay, nobody minds.\n")) == 1
