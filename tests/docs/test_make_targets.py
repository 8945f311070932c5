"""Statements of the documentation about ``make demo`` and ``make lab``, compared with the program behind them."""

from __future__ import annotations

import os
import re
import runpy
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

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


def _make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run make in a folder that has what the first targets need."""
    needed = ["Makefile", ".ci/quiet", "pyproject.toml", "README.md", "LICENSE", ".github/pypi.md"]
    for name in (*needed, "labextension/package-lock.json", "jupyter_slurm/embedded/machine/packages.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return subprocess.run(
        ["make", "-C", str(folder), *words], capture_output=True, text=True, timeout=60, check=False,
        env={name: value for name, value in os.environ.items() if not name.startswith("MAKE")},
    )  # fmt: skip


def test_a_folder_with_a_blank_divides_no_command_of_the_demo(tmp_path: Path) -> None:
    folder = tmp_path / "a folder"
    shown = _make(folder, "--dry-run", "demo")
    assert shown.returncode == 0, shown.stderr
    assert ".venv/bin/python examples/run_demo.py" in shown.stdout
    assert str(folder) not in shown.stdout.replace(f"directory '{folder}'", "")


def test_without_sudo_the_command_for_root_is_named(tmp_path: Path) -> None:
    shown = _make(tmp_path, ".apt", "PACKAGES=slurm-wlm munge", "SUDO=no-sudo-on-this-computer")
    assert shown.returncode != 0
    assert (
        "As root, run:\n    apt-get update && apt-get install --no-install-recommends slurm-wlm munge\n" in shown.stderr
    )


def test_the_demo_needs_no_database() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    demo = makefile.partition("\n.build/demo-system:")[2].partition("\n\n")[0]
    assert "$(EMBEDDED_PACKAGES)" in demo
    assert re.search(r"^EMBEDDED_PACKAGES = .*--no-accounting\)$", makefile, re.MULTILINE)
    assert "$(ACCOUNTING_PACKAGES)" not in demo


def test_the_demo_leaves_nothing_of_ipython_at_home(tmp_path: Path) -> None:
    cluster = SimpleNamespace(directory=tmp_path, slurm_conf=tmp_path / "slurm.conf")
    names = _DEMO["private_environment"](cluster)
    assert {"IPYTHONDIR", "MPLCONFIGDIR", "JUPYTER_RUNTIME_DIR"} <= {*names}
    assert all(Path(names[name]).is_dir() for name in ("IPYTHONDIR", "MPLCONFIGDIR"))
