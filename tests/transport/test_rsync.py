"""Remote half of an abandoned run of rsync; the transferred files are tested in services/staging/test_staging.py."""

from __future__ import annotations

import asyncio
from pathlib import Path

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
            assert (await running).exit_code
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        transport.close()
