"""First submission of an agent to a real cluster: what Slurm is asked before it, and what is written."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.services.jobdir.runner_files import RUNNER
from jupyter_slurm.transport.local.transport import LocalTransport

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("it counts the calls of the local transport")]

SCRIPT = "#!/bin/sh\ntrue\n"


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """Provide the commands that were run; each waits for the two others that a registration runs beside it."""
    run, told, beside = LocalTransport.run, list[tuple[str, ...]](), asyncio.Barrier(3)

    async def recorded(self: LocalTransport, argv: list[str], **asked: Any) -> Any:
        told.append(tuple(argv))
        if argv[-1] in ("--help", "--version", "config") and len(told) <= 4:  # housekeeping asks for the time
            async with asyncio.timeout(60):
                await beside.wait()
        return await run(self, argv, **asked)

    monkeypatch.setattr(LocalTransport, "run", recorded)
    return told


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Provide the names of the runner's files that were written."""
    write, told = LocalTransport.write, list[str]()

    async def recorded(self: LocalTransport, path: str, data: bytes, mode: int = 0o600) -> None:
        if Path(path).name.startswith("runner-"):
            told.append(path)
        await write(self, path, data, mode)

    monkeypatch.setattr(LocalTransport, "write", recorded)
    return told


async def test_slurm_is_asked_side_by_side_and_once(
    cluster: Any, open_desk: Callable[..., Any], tmp_path: Path, commands: list[tuple[str, ...]]
) -> None:
    async with open_desk(cluster, tmp_path) as desk:
        assert {("sbatch", "--help"), ("sbatch", "--version")} < set(commands)
        await desk.submit(SCRIPT, "--hold")
        await asyncio.gather(*(desk.core.cluster(desk.id).command_options("sbatch") for _ in range(3)))
        assert commands.count(("sbatch", "--help")) == commands.count(("sbatch", "--version")) == 1


async def test_files_of_the_runner_are_written_once(
    cluster: Any, open_desk: Callable[..., Any], tmp_path: Path, written: list[str]
) -> None:
    for agent in range(3):
        async with open_desk(cluster, tmp_path) as desk:
            await desk.submit(SCRIPT, "--hold")
        if agent == 0:
            assert len(written) == len(RUNNER)
            gone, torn, *_, entry = map(Path, written)
            assert entry.name.endswith("-cell-run.py")
        if agent == 1:
            assert written == []
            gone.unlink()
            torn.write_bytes(torn.read_bytes()[:-1])
        if agent == 2:
            assert sorted(written) == sorted(map(str, (gone, torn)))
        written.clear()
