"""Tests of transfers of 100,000 files over SSH that are stopped, and cut, on their way."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.remote, pytest.mark.nightly, pytest.mark.timeout(900)]

FOLDERS, EACH = 1000, 100


@pytest.fixture(scope="module")
def many(short_tmp: Path) -> Path:
    """Provide a folder with 100,000 files."""
    folder = short_tmp / "many-files"
    for number in range(FOLDERS):
        (folder / f"{number}").mkdir(parents=True)
        for name in range(EACH):
            (folder / f"{number}/{name}").write_bytes(b"%d %d" % (number, name))
    return folder


def files(folder: Path) -> Iterator[os.DirEntry[str]]:
    """Return the files below a folder, without those that rsync is receiving."""
    for entry in os.scandir(folder) if folder.is_dir() else ():
        if entry.is_dir():
            yield from files(Path(entry.path))
        elif not entry.name.startswith("."):
            yield entry


@pytest.mark.parametrize("kind", ["put", "get"])
async def test_many_files_continue_where_they_were(
    kind: str, remote_carrier: str, login_host: SshHost, desk_by: Any, cluster: Any, many: Path, tmp_path: Path
) -> None:
    to = tmp_path / "to"
    async with desk_by(Way(remote_carrier, login_host), cluster, tmp_path) as desk:
        transfers = desk.core.transfers
        asked = {"kind": kind, "sources": [str(many)], "dest": f"{to}/"}

        async def run_until(count: int) -> dict[str, Any]:
            """Start it, and return it at its end, or as soon as so many files have arrived."""
            told: dict[str, Any] = await transfers.start(desk.id, asked)
            async with asyncio.timeout(400):
                while told["state"] == "running":
                    if sum(1 for _ in files(to)) >= count:
                        break
                    await asyncio.sleep(0.3)
                    told = transfers.transfer_to_api(told["id"])
            return told

        one = await run_until(20_000)
        assert one["state"] == "running"
        assert (await transfers.stop_transfer(one["id"]))["state"] == "stopped"
        kept = {entry.inode() for entry in files(to)}
        assert 20_000 <= len(kept) < FOLDERS * EACH
        assert not (to / many.name).exists()

        two = await run_until(60_000)
        assert two["state"] == "running"
        assert login_host.kill_sessions()
        async with asyncio.timeout(400):
            while two["state"] == "running":
                await asyncio.sleep(0.3)
                two = transfers.transfer_to_api(two["id"])
        assert (two["error"], two["state"], two["files"]) == (None, "finished", FOLDERS * EACH)
        assert kept <= {entry.inode() for entry in files(to)}, "what had arrived is not sent again"
        assert os.listdir(to) == [many.name]
        names = {str(name) for name in range(EACH)}
        for number in range(FOLDERS):
            assert set(os.listdir(to / many.name / str(number))) == names
            assert (to / many.name / f"{number}/{number % EACH}").read_bytes() == b"%d %d" % (number, number % EACH)
