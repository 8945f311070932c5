"""Benchmark of many submissions during faults of all kinds: no job is lost or doubled, and each id is known."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import Site
from ssh_hosts.laptop import Laptop

from jupyter_slurm.errors import SlurmError

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.timeout(900)]

_SCRIPT = "#!/bin/sh\nsleep 900\n"
_WAVE = 4  # parallel submissions


async def submitted(laptop: Laptop, turn: asyncio.Semaphore) -> dict[str, Any]:
    """Submit as a user does who tries again after a broken connection: the same cell, by its key."""
    asked = laptop.submission(_SCRIPT, "--mem=10")
    async with turn:
        while True:
            try:
                return await laptop.core.cluster("far").submit(asked)
            except SlurmError:
                await asyncio.sleep(0.5)


class Trouble:
    """Faults during the submissions, one after another."""

    def __init__(self, laptop: Laptop) -> None:
        self.laptop, self.site = laptop, laptop.site
        self.done: Counter[str] = Counter()
        self.cuts = 0

    async def make(self, cuts: int) -> None:
        """Cut the connection the given number of times, in three ways in turn; wait for each reconnection."""
        ways = itertools.cycle([self._gateway_dies, self._silence, self._login_dies])
        for cut, way in zip(range(cuts), ways, strict=False):
            await self.laptop.until(lambda: self.laptop.state == "connected", "the connection is back", 120)
            await asyncio.sleep(random.uniform(0.05, 0.8))
            await way()
            self.cuts += 1
            if cut in (1, cuts // 2):
                await self._controller_stands()

    async def _gateway_dies(self) -> None:
        await asyncio.to_thread(self.site.gateway.kill_sessions)
        self.done["sshd of the gateway killed"] += 1

    async def _login_dies(self) -> None:
        await asyncio.to_thread(self.site.logins["login1"].kill_sessions)
        self.done["sshd of the login node killed"] += 1

    async def _silence(self) -> None:
        await asyncio.to_thread(self.site.gateway.drop)
        try:
            await self.laptop.until(lambda: self.laptop.state == "lost", "the silence is noticed", 30)
        finally:
            await asyncio.to_thread(self.site.gateway.restore)
        self.done["packets dropped"] += 1

    async def _controller_stands(self) -> None:
        """Suspend slurmctld for longer than sbatch waits (10 s); sbatch gives up, and the job is accepted."""
        self.site.slurm.freeze_controller()
        try:
            await asyncio.sleep(12)
        finally:
            self.site.slurm.thaw_controller()
        self.done["slurmctld stopped"] += 1

    async def kill_sbatch(self) -> None:
        """Kill every third sbatch on the login node, at any point of its execution."""
        seen: set[int] = set()
        while True:
            for pid, name in self.site.logins["login1"].processes().items():
                if name == "sbatch" and pid not in seen:
                    seen.add(pid)
                    if len(seen) % 3 == 0:
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pid, signal.SIGKILL)
                            self.done["sbatch killed"] += 1
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def in_background(*work: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def in_queue(site: Site) -> dict[str, list[str]]:
    """Return the jobs of the queue by the path of their script."""
    found: dict[str, list[str]] = {}
    for line in site.slurm.run("squeue", "--noheader", "--states=all", "--format=%A %o").stdout.splitlines():
        number, _, script = line.partition(" ")
        found.setdefault(script, []).append(number)
    return found


@pytest.mark.parametrize(
    ("submissions", "cuts"),
    [(15, 4), pytest.param(100, 20, marks=pytest.mark.bench)],
)
async def test_as_many_jobs_as_submissions(
    ssh_site: Site,
    at_laptop: Callable[..., Any],
    tmp_path: Path,
    remote_carrier: str,
    submissions: int,
    cuts: int,
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun, turn = time.monotonic(), asyncio.Semaphore(_WAVE)
    async with at_laptop(
        ssh_site, tmp_path, carrier=remote_carrier, submit_timeout=5.0, command_timeout=15.0
    ) as laptop:
        trouble = Trouble(laptop)
        try:
            async with in_background(trouble.kill_sbatch()):
                making = asyncio.create_task(trouble.make(cuts))
                jobs = []
                for number in range(submissions):
                    # Submissions continue as long as the faults, so that each kind of fault hits some.
                    while number > submissions * (trouble.cuts + 1) / cuts and not making.done():
                        await asyncio.sleep(0.05)
                    jobs.append(asyncio.create_task(submitted(laptop, turn)))
                keys = [job["key"] for job in await asyncio.gather(*jobs)]
                await making
            for key in keys:
                await known(laptop, key)
            ids = {key: (await laptop.job(key))["id"] for key in keys}
            scripts = {key: (await laptop.job(key))["script_path"] for key in keys}
            queue = in_queue(ssh_site)
            assert len(set(ids.values())) == submissions
            assert {key: queue.get(scripts[key]) for key in keys} == {key: [ids[key]] for key in keys}
            below = str(Path(scripts[keys[0]]).parent.parent)
            mine = [path for path in queue if path.startswith(below) and Path(path).parent.name in set(keys)]
            assert len(mine) == submissions
        finally:
            ssh_site.gateway.restore()
            ssh_site.slurm.thaw_controller()
            ssh_site.slurm.run("scancel", f"--user={ssh_site.user}")
    with capsys.disabled():
        did = ", ".join(f"{number} x {what}" for what, number in sorted(trouble.done.items()))
        print(
            f"\n{remote_carrier}: {submissions} submissions, {len(mine)} jobs, in {time.monotonic() - begun:.0f} s; meanwhile {did}"
        )


async def known(laptop: Laptop, key: str) -> None:
    async with asyncio.timeout(300):
        while not (await laptop.job(key))["id"]:
            await asyncio.sleep(0.5)
