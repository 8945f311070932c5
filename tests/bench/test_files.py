"""Benchmark of the listing of a large directory."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.services.files.cluster_files import ClusterFiles
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.local.transport import LocalTransport

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ENTRIES = 10_000
AT_MOST_MS = 300
RUNS = 20


async def test_a_directory_of_10000_files(tmp_path: Path, new_table: Callable[[str], Any]) -> None:
    """The listing without HTTP, by a process that runs already."""
    for number in range(ENTRIES):
        (tmp_path / f"file-{number:05}.txt").touch()
    files = ClusterFiles(LocalTransport(), ClusterLocation("here", "", "ana", str(tmp_path), "here", {}))
    table = new_table("A directory of 10,000 files")
    try:
        for _ in range(RUNS):
            began = time.perf_counter()
            assert len((await files.list_directory("."))["entries"]) == ENTRIES
            table.add("list", (time.perf_counter() - began) * 1000)
    finally:
        await files.stop()
    assert table.median("list") <= AT_MOST_MS, table.lines()
