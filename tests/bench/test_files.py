"""Benchmarks of the listing of a large directory."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost

from jupyter_slurm.services.files.cluster_files import ClusterFiles
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.local.transport import LocalTransport

pytestmark = [pytest.mark.bench, pytest.mark.timeout(600)]

ENTRIES = 10_000
AT_MOST_MS = 300
SSH_AT_MOST_MS = 300
RUNS = 20

COMMANDS = """
%load_ext jupyter_slurm

def ours():
    get_ipython().run_line_magic("slurm", "ls {folder}")

def master():
    subprocess.run({master!r}, check=True, capture_output=True)
"""


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


@pytest.mark.root
@pytest.mark.slurm
@pytest.mark.usefixtures("far")
def test_a_listing_over_ssh(
    start_kernel: Callable[..., Any],
    login_host: SshHost,
    short_tmp: Path,
    new_table: Callable[[str], Any],
    request: pytest.FixtureRequest,
) -> None:
    """The magic with its table as it blocks the kernel, compared with ``ls -l`` over OpenSSH's shared connection."""
    path, folder = short_tmp / "bench-master", short_tmp / "bench-files"
    folder.mkdir()
    for number in range(ENTRIES):
        (folder / f"file-{number:05}.txt").touch()
    argv = ["ssh", "-F", str(login_host.ssh_config), "-S", str(path), "-o", "BatchMode=yes", login_host.name]
    rows = [("ssh -S ls -l", "master"), ("%slurm ls", "ours")]
    with subprocess.Popen([*argv, "-M", "-N"], stderr=subprocess.DEVNULL) as shared:
        while not path.exists():
            time.sleep(0.01)
        kernel = start_kernel()
        kernel.prepare(COMMANDS.format(folder=str(folder), master=[*argv, "ls", "-l", str(folder)]))
        for _, work in rows * 3:
            kernel.milliseconds(work)
        table = new_table(f"10,000 files listed over SSH ({request.node.callspec.params['far']})")
        for _ in range(RUNS):
            for row, work in rows:
                table.add(row, kernel.milliseconds(work))
        shared.terminate()
    shutil.rmtree(folder)
    assert table.median("%slurm ls") <= SSH_AT_MOST_MS, table.lines()
