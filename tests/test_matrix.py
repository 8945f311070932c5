"""Tests of `make test-matrix`: what a cell ends with, the table of all cells, and the table of the documentation."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
CELL = f"@{ROOT}/.ci/cell"
MAKEFILE = f"""\
test-versions:
\t{CELL} 'versions: lowest' sh -c 'echo "=== 3 passed, 1 skipped in 2.1s ==="'
\t{CELL} 'versions: newest' sh -c 'echo "1 failed, 2 passed"; exit 1'
test-systems:
\t{CELL} 'systems: a release' sh -c 'echo "no mirror answered"; exit 77'
test-users:
\t@echo '== 5 passed in 1s =='
"""


def run_matrix(folder: Path, *parts: str, ci: str = "") -> tuple[int, list[list[str]], str]:
    """Return the exit status, the lines of the table by their columns, and all that was printed."""
    (folder / "Makefile").write_text(MAKEFILE)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")} | {"CI": ci}
    argv = [str(ROOT / ".ci" / "matrix"), *parts]
    done = subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=False)
    table = (folder / ".build" / "matrix" / "table").read_text()
    assert table in done.stdout
    return done.returncode, [re.split(r"  +", line) for line in table.splitlines()], done.stdout


def test_the_table_has_each_cell_and_a_failed_part_stops_no_other(tmp_path: Path) -> None:
    status, table, printed = run_matrix(tmp_path, "versions", "users")
    assert status == 1
    assert [line[:3] for line in table] == [
        ["PART", "CELL", "RESULT"],
        ["versions", "lowest", "passed"],
        ["versions", "newest", "FAILED"],
        ["users", "test-users", "passed"],
    ]
    assert table[1][-1] == "3 passed, 1 skipped"
    assert table[3][-1] == "5 passed"
    assert "1 failed, 2 passed" in printed, "what a failed cell said is shown"


@pytest.mark.parametrize(("ci", "expected"), [("", 0), ("true", 1)])
def test_a_cell_that_could_not_run_has_its_reason_and_fails_in_ci(tmp_path: Path, ci: str, expected: int) -> None:
    status, table, _ = run_matrix(tmp_path, "systems", ci=ci)
    assert status == expected
    assert table[1][:3] == ["systems", "a release", "not run"]
    assert table[1][-1] == "no mirror answered"


def test_each_part_is_a_target_and_runs_each_night() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    parts = re.findall(r"^MATRIX = (.*)$", makefile, re.MULTILINE)[0].split()
    assert {f"test-{part}" for part in parts} <= set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8"))["jobs"]
    assert any("make test-matrix" in step.get("run", "") for step in jobs["matrix"]["steps"])
    nightly = {f"test-{part}" for part in jobs["matrix"]["strategy"]["matrix"]["part"]}
    nightly |= {entry["target"] for entry in jobs["versions"]["strategy"]["matrix"]["include"]}
    assert nightly == {f"test-{part}" for part in parts}


def test_what_make_test_leaves_to_the_night_runs_then() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    selected = dict(re.findall(r'^PYTEST_(\w+) = [^"]*-m "([^"]+)"', makefile, re.MULTILINE))
    for stage in ("FAST", "MOST", "WAITING", "BROWSER", "ALONE"):
        assert "nightly" in selected[stage].rpartition("not")[2], stage
    assert selected["NIGHTLY"].startswith("(nightly or ")


def test_the_support_table_has_the_bounds_of_the_package() -> None:
    page = (ROOT / "docs" / "getting-started" / "install.md").read_text("utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| ([^|]*?) \|", page, re.MULTILINE))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    lowest = {name: bound for line in extras["test"] for name, bound in re.findall(r"^([a-z]+)>=([\d.]+)", line)}
    assert rows["Python"] == project["requires-python"].removeprefix(">=")
    assert [rows["JupyterLab"]] == re.findall(r"jupyterlab>=([\d.]+)", extras["lab"][0])
    assert rows["Notebook"] == lowest["notebook"]
    tested = next(line for line in page.splitlines() if line.startswith("| Python |"))
    for supported in re.findall(r"Python :: (3\.\d+)", str(project["classifiers"])):
        assert supported in tested, f"the package says that it supports Python {supported}"
