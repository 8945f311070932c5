"""Tests of transfers, by the real rsync and tar: here and over SSH."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]

ODD = ["a b", "new\nline", "\udcff\udcfe", "-n", "ü", "$(touch x)", "*", "~", "js:x"]


def fill(folder: Path) -> dict[str, bytes]:
    """Make a folder with odd names, links, a loop of links and an empty folder; return the files by path."""
    files = {f"sub/deep/{name}": name.encode("utf-8", "surrogateescape") for name in ODD}
    files |= {"top": b"x" * 300_000, "sub/empty": b""}
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "nothing").mkdir()
    (folder / "loop").symlink_to("loop")
    (folder / "sub/up").symlink_to("..")
    (folder / "out").symlink_to("/etc/passwd")
    os.mkfifo(folder / "fifo")
    return files


def check(folder: Path, files: dict[str, bytes]) -> None:
    assert {name: (folder / name).read_bytes() for name in files} == files
    assert os.access(folder / "run", os.X_OK)
    assert (folder / "nothing").is_dir()
    assert os.readlink(folder / "loop") == "loop"
    assert os.readlink(folder / "sub/up") == ".."
    assert not os.path.lexists(folder / "out")
    assert not os.path.lexists(folder / "fifo")
    assert [name for name in os.listdir(folder.parent) if "partial" in name] == []


async def transfer(desk: Any, kind: str, sources: list[Path], dest: Any, **more: Any) -> dict[str, Any]:
    asked = {"kind": kind, "sources": [str(source) for source in sources], "dest": str(dest), **more}
    transfers = desk.core.transfers
    found = await transfers.start(desk.id, asked)
    async with asyncio.timeout(90):
        while found["state"] == "running":
            await asyncio.sleep(0.02)
            found = transfers.transfer_to_api(found["id"])
    return dict(found)


@pytest.fixture(params=["rsync", "tar"])
def carrier(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Carry files by rsync, or as if a side had none."""
    if request.param == "tar":
        monkeypatch.setattr("jupyter_slurm.transport.rsync.shutil.which", lambda name: None)
    return str(request.param)


@pytest.mark.usefixtures("carrier")
async def test_a_folder_goes_to_the_cluster_and_back(desk: Any, tmp_path: Path) -> None:
    files = fill(tmp_path / "near/project")
    sent = await transfer(desk, "put", [tmp_path / "near/project"], f"{tmp_path}/far/")
    assert (sent["error"], sent["state"]) == (None, "finished")
    assert (sent["files"], sent["bytes"]) == (len(files) + 1, sum(map(len, files.values())) + 10)
    assert "out" in sent["warnings"][0]
    check(tmp_path / "far/project", files)

    (tmp_path / "back").mkdir()
    got = await transfer(desk, "get", [tmp_path / "far/project"], tmp_path / "back/again")
    assert (got["error"], got["state"]) == (None, "finished")
    check(tmp_path / "back/again", files)
