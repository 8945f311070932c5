"""Search for the remains of a cluster."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

CGROUPS = Path("/sys/fs/cgroup")


def _processes_about(directory: Path) -> list[str]:
    """Return the live processes that have the directory in arguments or environment, found without the package."""
    return _processes_with(os.fsencode(directory) + b"/")


def _processes_with(wanted: bytes) -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            arguments, environment = (entry / "cmdline").read_bytes(), (entry / "environ").read_bytes()
        except OSError:
            continue
        if wanted in arguments or wanted in environment:
            found.append(f"{entry.name} {arguments!r}")
    return found


def _groups() -> set[Path]:
    return set(CGROUPS.glob("*/jupyter_slurm-*"))


@pytest.fixture
def processes_about() -> Callable[[Path], list[str]]:
    """Return a function: ``processes_about(directory)`` gives the live processes of a cluster's directory."""
    return _processes_about


@pytest.fixture
def nothing_left(wait_for: Callable[..., bool]) -> Callable[[Path], None]:
    """Return a check: ``nothing_left(directory)`` finds no process, file or control group that is new."""
    before = _groups()

    def check(directory: Path) -> None:
        assert not directory.exists()
        assert _processes_about(directory) == []
        # Other clusters run on this machine meanwhile: their groups are empty while they have no job, and as they start.
        left = {group for group in _groups() - before if _is_left(group)}

        def fewer() -> bool:
            left.intersection_update([group for group in left if _is_left(group)])
            return not left

        wait_for(fewer, "no empty control group is left", 150)

    return check


def _is_left(group: Path) -> bool:
    """Return whether a group is empty, and no daemon of its cluster lives, which has the cluster's mark."""
    return _is_empty(group) and not _processes_with(group.name.partition("-")[2].encode())


def _is_empty(group: Path) -> bool:
    try:
        return not (group / "cgroup.procs").read_text() and not any(path.is_dir() for path in group.iterdir())
    except FileNotFoundError:
        return False
