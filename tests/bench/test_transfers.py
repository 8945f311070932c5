"""Benchmark of transfers of files from a notebook, compared with rsync over ssh."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(900)]

RUNS = 3
LARGE_AT_MOST = 1.11
SMALL_AT_MOST = 1.25

COMMANDS = """
%load_ext jupyter_slurm
import shutil

def ours():
    get_ipython().run_line_magic("slurm", "{word} {source} {target}/")

def rsync():
    subprocess.run(["rsync", "-rlt", "-e", {ssh!r}, *{ends!r}], check=True, capture_output=True)

def clear():
    shutil.rmtree({target!r}, ignore_errors=True)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """In memory: on a shared disk, one measurement of 10,000 files differs from the next by up to four times."""
    folder = Path(tempfile.mkdtemp(prefix="bench-transfers-", dir="/dev/shm"))
    yield folder
    shutil.rmtree(folder)


@pytest.mark.usefixtures("far")
@pytest.mark.parametrize("word", ["put", "get"])
@pytest.mark.parametrize(("count", "size", "at_most"), [(1, 10**9, LARGE_AT_MOST), (10_000, 1000, SMALL_AT_MOST)])
def test_a_transfer_takes_about_as_long_as_rsync(
    start_kernel: Callable[..., Any],
    login_host: SshHost,
    place: Path,
    new_table: Callable[[str], Any],
    request: pytest.FixtureRequest,
    word: str,
    count: int,
    size: int,
    at_most: float,
) -> None:
    """The magic as it blocks the kernel, with its checks and the move at the end; both log in before."""
    source, target = place / "source", place / "target"
    for number in range(count):
        path = source / f"{number // 100}" / f"{number}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes((b"%08d" % number) * (size // 8))
    ssh = f"ssh -F {login_host.ssh_config} -o BatchMode=yes"
    far = f"{login_host.name}:"
    ends = [str(source), f"{far}{target}/"] if word == "put" else [f"{far}{source}", f"{target}/"]
    kernel = start_kernel()
    kernel.prepare(COMMANDS.format(word=word, source=source, target=str(target), ssh=ssh, ends=ends))
    title = f"{word} of {count} files of {size} bytes ({request.node.callspec.params['far']})"
    table = new_table(title)
    for run in range(RUNS + 1):
        for row, work in (("rsync over ssh", "rsync"), (f"%slurm {word}", "ours")):
            took = kernel.milliseconds(work)
            kernel.run("clear()")
            if run:
                table.add(row, took)
    assert table.ratio(f"%slurm {word}", "rsync over ssh") <= at_most, table.lines()
