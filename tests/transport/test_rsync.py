"""Remote half of an abandoned run of rsync; the transferred files are tested in services/staging/test_staging.py."""

from __future__ import annotations

import asyncio
import contextlib
import struct
import time
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import psutil
import pytest

from jupyter_slurm.errors import CommandError, TransportError
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.rsync import Rsync

SLOWLY = ["--recursive", "--bwlimit=200"]


async def test_what_is_left_of_a_transfer_is_ended_by_the_machine_alone_that_began_it(tmp_path: Path) -> None:
    """Check two laptops with the same name, the same path, and the same directory on a cluster."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    there.mkdir()
    (here / "large").write_bytes(bytes(50_000_000))
    transport, begun = LocalTransport(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def rsync(owner: str) -> Rsync:
        def moved(_: int) -> None:
            loop.call_soon_threadsafe(begun.set)

        return Rsync(transport, str(here), str(there), owner=owner, moved=moved)

    running = asyncio.ensure_future(rsync("one").run(SLOWLY))
    try:
        async with asyncio.timeout(60):
            await begun.wait()
        await rsync("another").end_remains()
        begun.clear()
        async with asyncio.timeout(60):
            await begun.wait()  # it continues
        await rsync("one").end_remains()
        async with asyncio.timeout(60):
            (ended,) = await asyncio.gather(running, return_exceptions=True)
        assert isinstance(ended, TransportError) or ended.exit_code  # whichever process was ended first
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        transport.close()


@pytest.mark.parametrize(("code", "is_refused"), [(2, True), (3, False)])
async def test_what_rsync_prints_is_limited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, is_refused: bool
) -> None:
    """Check messages of a hostile host, which rsync prints on its standard output (2) or error (3)."""
    monkeypatch.setattr("jupyter_slurm.transport.rsync._MAX_OUTPUT_BYTES", 4 << 20)
    text = b"x" * 1000 + b"\n"
    message = struct.pack("<I", (7 + code) << 24 | len(text)) + text
    stream = Talking([b"\n", struct.pack("<i", 29), struct.pack("<i", 1), *[message * 64] * 300])
    rsync = Rsync(cast("Transport", SimpleNamespace(pipe=lambda *_: stream)), str(tmp_path), "/remote")
    if is_refused:
        with pytest.raises(CommandError, match="rsync printed more than 4 MiB"):
            await rsync.run(["--dry-run", "--recursive"], is_pull=True)
        assert stream.parts, "it was ended"
        return
    done = await rsync.run(["--dry-run", "--recursive"], is_pull=True)
    assert done.exit_code
    assert 40_000 < len(done.stderr) < 70_000
    assert b"rsync error" in done.stderr, "the end is kept"


class Talking:
    """Stream with these bytes."""

    def __init__(self, parts: list[bytes]) -> None:
        self.parts = parts

    def recv(self, _: int) -> bytes:
        return self.parts.pop(0) if self.parts else b""

    def sendall(self, data: bytes) -> None:
        pass

    def shutdown_write(self) -> None:
        pass

    def close(self) -> None:
        pass


async def test_progress_is_reported_from_time_to_time_alone(tmp_path: Path) -> None:
    """Each report wakes the event loop: one for each piece made a copy of 1 GB take a third longer."""
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "near" / "large").write_bytes(bytes(50_000_000))
    transport, reports, began = LocalTransport(), list[int](), time.monotonic()
    try:
        rsync = Rsync(transport, str(tmp_path / "near"), str(tmp_path / "far"), moved=reports.append)
        done = await rsync.run(["--recursive"])
    finally:
        transport.close()
    assert done.exit_code == 0
    assert 0 < len(reports) <= 1 + (time.monotonic() - began) / 0.05
    assert reports == sorted(reports)


async def test_a_run_can_be_stopped_while_the_other_side_does_not_move(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a remote rsync that waits for its disk."""
    monkeypatch.setattr("jupyter_slurm.transport.rsync._END_TIMEOUT_S", 0.5)
    for name in ("near", "far"):
        (tmp_path / name).mkdir()
    (tmp_path / "near" / "large").write_bytes(bytes(50_000_000))
    transport, begun, loop = LocalTransport(), asyncio.Event(), asyncio.get_running_loop()
    rsync = Rsync(
        transport,
        str(tmp_path / "near"),
        str(tmp_path / "far"),
        moved=lambda _: loop.call_soon_threadsafe(begun.set) and None,
    )
    running = asyncio.ensure_future(rsync.run(SLOWLY))
    held = list[psutil.Process]()
    try:
        async with asyncio.timeout(60):
            await begun.wait()
        held = [one for one in psutil.process_iter() if is_remote(one, str(tmp_path / "far"))]
        assert held
        for process in held:
            process.suspend()
        running.cancel()
        async with asyncio.timeout(60):
            await asyncio.gather(running, return_exceptions=True)
    finally:
        for process in held:
            process.kill()
        transport.close()


def is_remote(process: psutil.Process, folder: str) -> bool:
    """Return whether a process is an rsync that receives in a folder."""
    with contextlib.suppress(psutil.Error):
        return process.name() == "rsync" and "--server" in process.cmdline() and process.cwd() == folder
    return False
