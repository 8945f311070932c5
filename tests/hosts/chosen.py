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
    """Ignore a file without any of the selected tests, if the selection has the form ``mark and not another``."""
    chosen = re.fullmatch(r"(\w+)( and not \w+)*", str(config.getoption("markexpr")).strip())
    if chosen is None or chosen[1] not in _SIGNS or not re.fullmatch(r"test_\w+\.py", collection_path.name):
        return None
    return None if _shows(collection_path, chosen[1]) else True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Check that no stage ignores a test of its own."""
    for item in items:
        for mark in _SIGNS:
            if item.get_closest_marker(mark) and not _shows(item.path, mark):
                raise pytest.UsageError(
                    f"{item.nodeid} is {mark}, and its file shows no sign of that: see tests/hosts/chosen.py"
                )
