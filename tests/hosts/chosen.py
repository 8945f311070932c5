"""Selection of tests: the files that a stage has to collect, and what ``make test`` leaves to the night.

To collect all files takes each worker as long as five tests.
"""

from __future__ import annotations

import ast
import collections
import functools
import os
import re
from pathlib import Path

import pytest

__all__ = ["pytest_collection_modifyitems", "pytest_ignore_collect"]

# Texts that every file with a test of this mark contains. Omissions are detected whenever all files are collected.
_SIGNS = {
    "alone": re.compile(r"mark\.alone\b"),
    "browser": re.compile(r"mark\.browser\b"),
    "slow": re.compile(r"mark\.slow\b|\btraced_sbatch\b"),
    "remote": re.compile(
        r"\b(way|desk|open_desk|open_far_desk|kernel|environment|replica|remote_carrier|mark\.remote)\b"
    ),
}


_OF_ALL = re.compile(r"^pytestmark = (?:\[.*?^\]|.*?$)", re.MULTILINE | re.DOTALL)  # marks of all tests of a file


# The tests that `make test-nightly` has, and of which sets of parameters `make test` has every Nth.
_NIGHTLY = Path(__file__).parents[1] / "nightly.txt"
_LINE = re.compile(r"(?P<name>.*?)(?: every (?P<every>\d+))?")


@functools.cache
def read_nightly() -> dict[str, int]:
    """Return the tests of ``tests/nightly.txt``: of which sets of parameters ``make test`` has every Nth, 0: none."""
    lines = [line for line in _text(_NIGHTLY).splitlines() if not line.startswith("#")]
    parts = [found for line in lines if (found := _LINE.fullmatch(line))]
    tests = {part["name"]: int(part["every"] or 0) for part in parts}
    assert len(tests) == len(lines), "a test is named twice"
    return tests


def mark_nightly(items: list[pytest.Item]) -> None:
    """Mark what is left to the night. The repetitions over each route are counted apart."""
    seen: collections.Counter[tuple[str, str]] = collections.Counter()
    for item in items:
        named = read_nightly()
        name = item.nodeid if item.nodeid in named else item.nodeid.partition("[")[0]
        every = named.get(name)
        if every is None:
            continue
        if item.get_closest_marker("bench"):
            raise pytest.UsageError(f"{name} would run neither by day nor at night: see PYTEST_NIGHTLY")
        made = getattr(item, "callspec", None)
        one = (name, str(made.params.get("way", "")) if made else "")
        if not every or seen[one] % every:
            item.add_marker(pytest.mark.nightly)
        seen[one] += 1


@functools.cache
def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@functools.cache
def _shows(path: Path, mark: str) -> bool:
    return _SIGNS[mark].search(_text(path)) is not None


@functools.cache
def _marks_of_all(path: Path) -> frozenset[str]:
    found = _OF_ALL.search(_text(path))
    return frozenset(re.findall(r"pytest\.mark\.(\w+)", found[0]) if found else ())


@functools.cache
def _refused(selection: str) -> frozenset[str]:
    """Return the marks that a selection refuses: ``... and not mark``, ``... and not (mark or mark)``."""
    try:
        whole = ast.parse(selection, mode="eval").body
    except SyntaxError:
        return frozenset()
    parts = whole.values if isinstance(whole, ast.BoolOp) and isinstance(whole.op, ast.And) else [whole]
    refused = [part.operand for part in parts if isinstance(part, ast.UnaryOp) and isinstance(part.op, ast.Not)]
    names = [
        name
        for part in refused
        for name in (part.values if isinstance(part, ast.BoolOp) and isinstance(part.op, ast.Or) else [part])
    ]
    return frozenset(name.id for name in names if isinstance(name, ast.Name))


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore a file whose tests are all refused by the selection.

    Or one without any of the selected tests, if the selection begins with ``mark`` or ``(mark or mark)``.
    """
    selection = str(config.getoption("markexpr")).strip()
    if not selection or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    if _marks_of_all(collection_path) & _refused(selection):
        return True
    chosen = re.match(r"(\w+)(?= and not |$)|\((\w+(?: or \w+)*)\) and not ", selection)
    marks = (chosen[1] or chosen[2]).split(" or ") if chosen else []
    if not marks or not _SIGNS.keys() >= set(marks):
        return None
    return None if any(_shows(collection_path, mark) for mark in marks) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the night, skip those of root for other users, and check that no stage ignores a test of its own."""
    mark_nightly(items)
    for item in items:
        if os.geteuid() != 0 and item.get_closest_marker("root"):
            item.add_marker(pytest.mark.skip(reason="needs root"))
        for mark in _SIGNS:
            if item.get_closest_marker(mark) and not _shows(item.path, mark):
                raise pytest.UsageError(
                    f"{item.nodeid} is {mark}, and its file shows no sign of that: see tests/hosts/chosen.py"
                )
