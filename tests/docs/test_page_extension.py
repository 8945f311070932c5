"""Tests of the Sphinx extension that shows executed pages, with the Sphinx of the documentation."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from html import unescape
from pathlib import Path

import pytest
from page_blocks import find_digest
from page_outputs import Output, Stored, save_outputs

EXTENSIONS = Path(__file__).parents[2] / "docs" / "extensions"

CONF = f"""
import sys
sys.path.insert(0, {str(EXTENSIONS)!r})
extensions = ["myst_parser", "executed_pages"]
exclude_patterns = ["outputs"]
html_theme = "basic"
"""

PAGE = """---
run:
  cluster: embedded
  from: login
---
# Page

```{cell}
:hidden:
secret = 1
```

```{cell}
:expect: [0-9]: .* COMPLETED
%%sbatch wait
plot()
```

```{terminal}
$ squeue \\
>   --me
$ true
```
"""

PNG = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8ffff3f0005fe02fe"
    "0def46b80000000049454e44ae426082"
)


@pytest.fixture
def build(tmp_path: Path) -> Callable[[], tuple[str, str]]:
    """Return ``build()``, which builds the page; it returns the page's text without marks, and the warnings."""
    for name in ("sphinx", "myst_parser"):
        pytest.importorskip(name)
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "conf.py").write_text(CONF)
    (docs / "index.md").write_text(PAGE)

    def run() -> tuple[str, str]:
        argv = [sys.executable, "-m", "sphinx", "-q", "-b", "html", str(docs), str(tmp_path / "built")]
        done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=True)
        html = (tmp_path / "built" / "index.html").read_text()
        return unescape(re.sub(r"<(?!img)[^>]*>", "", html)), done.stderr

    return run


def _store(docs: Path, *last: Stored) -> None:
    cell = find_digest("cell", "%%sbatch wait\nplot()")
    shown = Stored(cell, (Output("Job 1201: COMPLETED"), Output(picture=PNG), Output("the end")))
    save_outputs(docs / "outputs", "index", [Stored(find_digest("cell", "secret = 1"), ()), shown, *last])


def test_blocks_are_shown_with_their_stored_outputs(build: Callable[[], tuple[str, str]], tmp_path: Path) -> None:
    digest = find_digest("terminal", "$ squeue \\\n>   --me\n$ true")
    _store(tmp_path / "docs", Stored(digest, (Output("JOBID"), Output(""))))
    text, warnings = build()
    assert warnings == ""
    assert "secret" not in text
    order = ["plot()", "Job 1201: COMPLETED", "<img", "the end", "squeue", "--me", "JOBID", "$ true"]
    places = [text.index(part) for part in order]
    assert places == sorted(places)
    assert [path.read_bytes() for path in (tmp_path / "built" / "_images").iterdir()] == [PNG]


def test_a_block_that_changed_after_its_last_run_is_a_warning(
    build: Callable[[], tuple[str, str]], tmp_path: Path
) -> None:
    _store(tmp_path / "docs", Stored("of another text", ()))
    _, warnings = build()
    assert re.findall(r"index\.md:(\d+): WARNING: (.*make docs-outputs)", warnings) == [
        ("19", "no stored outputs of this text: run `make docs-outputs")
    ]
    shutil.rmtree(tmp_path / "docs" / "outputs")
    (tmp_path / "docs" / "index.md").touch()
    assert build()[1].count("WARNING") == 3
