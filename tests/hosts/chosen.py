"""Selection of the test files that a stage has to collect: to collect all takes each worker as long as five tests."""

from __future__ import annotations

import functools
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


@functools.cache
def _shows(path: Path, mark: str) -> bool:
    return _SIGNS[mark].search(path.read_text(encoding="utf-8")) is not None


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore a file without any of the selected tests, if the selection begins with ``mark`` or ``(mark or mark)``."""
    chosen = re.match(r"(\w+)(?= and not |$)|\((\w+(?: or \w+)*)\) and not ", str(config.getoption("markexpr")).strip())
    marks = (chosen[1] or chosen[2]).split(" or ") if chosen else []
    if not marks or not _SIGNS.keys() >= set(marks) or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return None if any(_shows(collection_path, mark) for mark in marks) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that no stage ignores a test of its own."""
    for item in items:
        for mark in _SIGNS:
            if item.get_closest_marker(mark) and not _shows(item.path, mark):
                raise pytest.UsageError(
                    f"{item.nodeid} is {mark}, and its file shows no sign of that: see tests/hosts/chosen.py"
                )
