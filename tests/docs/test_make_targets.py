"""Statements of the documentation about ``make demo`` and ``make lab``, compared with the program behind them."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_DEMO = runpy.run_path(str(ROOT / "examples" / "run_demo.py"), run_name="demo")
NOTEBOOKS = [_DEMO["NOTEBOOK"].name, _DEMO["SESSION"].name]


def test_the_readme_names_the_notebooks_that_the_demo_runs() -> None:
    text = (ROOT / "README.md").read_text("utf-8").partition("## Try it without a cluster")[2].partition("\n## ")[0]
    assert re.findall(r"`examples/(\S+\.ipynb)`", text) == NOTEBOOKS
    assert text.index("make lab") < text.index("make demo"), "JupyterLab opens on the notebook that is named first"


def test_each_page_that_names_a_notebook_names_one_that_is_here() -> None:
    here = {path.name for path in (ROOT / "examples").glob("*.ipynb")}
    named = {found for page in PAGES for found in re.findall(r"examples/([a-z][\w-]*\.ipynb)", page.read_text("utf-8"))}
    assert named <= here


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_where_make_needs_root_sudo_is_enough(page: Path) -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    assert re.search(r"^SUDO := .*,,sudo", makefile, re.MULTILINE)
    said = re.findall(r"[^.:]*Python 3\.11 or newer[^.:]*\broot\b[^.:]*", page.read_text("utf-8"))
    assert [sentence for sentence in said if "sudo" not in sentence] == []
