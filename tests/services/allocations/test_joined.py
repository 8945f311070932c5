"""Tests of joined jobs without a front end: what they cost the controller."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what is asked is the same everywhere")]


async def test_a_joined_job_costs_no_query_of_its_own(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its step has the ID of the job, but is not in the queue: it would be looked up with every query of the queue."""
    words = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "sleep 600"]
    job = subprocess.check_output(words, env=desk.env, text=True).strip()
    cluster = desk.core.cluster(desk.id)
    await desk.until(job, lambda told: told["state"] == "RUNNING")
    context = {"cwd": desk.folder, "env": desk.env}
    requested = {"key": desk.asked("#!")["key"], "python": sys.executable, "lease": 600, "context": context}
    joined = await cluster.actions.joined.join(job, requested)
    asked = []

    async def describe(number: Any) -> list[Any]:
        asked.append(number)
        return []

    monkeypatch.setattr(cluster.client, "describe", describe)
    for _ in range(3):
        await cluster.poller.wait_fresh(0.0)
    assert asked == []
    monkeypatch.undo()
    await cluster.actions.act("suspend", (job,))
    await desk.until(joined["key"], lambda told: told["state"] == "SUSPENDED")
    await cluster.actions.act("resume", (job,))
    await desk.until(joined["key"], lambda told: told["state"] == "RUNNING")
    await cluster.actions.cancel(job)
    async with asyncio.timeout(60):
        while not (await desk.job(joined["key"]))["finished"]:
            await asyncio.sleep(0.2)
