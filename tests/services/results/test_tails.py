"""Tests that many jobs are followed with few queries, and that long logs are read only at their end."""

from __future__ import annotations

import asyncio
import base64
import collections
import contextlib
import time
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh")]

JOBS = 20


async def followed(desk, job, received, offset=0):
    """Follow a job to its end; append its output to ``received``."""
    async for event, data in desk.core.cluster(desk.id).results.stream(job["key"], {"stdout": offset}):
        if event == "output" and data["stream"] == "stdout":
            assert data["offset"] == len(received)
            received += base64.b64decode(data["data"])


async def until(condition, seconds=90.0):
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.05)


@pytest.fixture
def asked(desk, monkeypatch):
    """Count the uses of each verb of the transport."""
    transport, count = desk.core.cluster(desk.id).client.transport, collections.Counter()

    def counted(name, verb):
        async def call(*words, **options):
            count[name] += 1
            return await verb(*words, **options)

        return call

    for name in (
        "run",
        "start_detached",
        "read",
        "write",
        "stat",
        "stat_all",
        "list_dir",
        "make_dir",
        "remove",
        "acquire_lock",
    ):
        monkeypatch.setattr(transport, name, counted(name, getattr(transport, name)))
    return count


@pytest.mark.slow
async def test_many_silent_jobs_cost_a_question_a_second(desk, asked):
    script = "#!/bin/sh\necho $1 begins\nuntil [ -e go ]; do sleep 0.2; done\necho $1 ends\n"
    jobs = await asyncio.gather(*(desk.submit(script, "-n1", args=[str(n)]) for n in range(JOBS)))
    received = [bytearray() for _ in jobs]
    async with asyncio.TaskGroup() as group:
        for job, text in zip(jobs, received, strict=True):
            group.create_task(followed(desk, job, text))
        await until(lambda: all(text.endswith(b"begins\n") for text in received))
        await asyncio.sleep(5)  # until no more output is expected
        asked.clear()
        begun = time.monotonic()
        await asyncio.sleep(10)
        # Each fact about the jobs is written once, whenever the poller learned it; Slurm has an allowance of its own.
        rate = (asked.total() - asked["write"] - asked["run"]) / (time.monotonic() - begun)
        assert asked["stat_all"] >= 5
        assert not asked["read"]
        assert rate < 1.5, asked
        Path(desk.folder, "go").touch()
    assert received == [b"%d begins\n%d ends\n" % (n, n) for n in range(JOBS)]
    assert not desk.core.cluster(desk.id).results._tails._watches
    await until(lambda: desk.core.cluster(desk.id).results._tails._task is None)


async def test_output_comes_whole_from_a_job_that_prints_all_the_time(desk, asked):
    script = "#!/bin/sh\nfor i in $(seq 3000); do echo line $i; [ $((i % 500)) != 0 ] || sleep 0.3; [ $i -lt 2000 ] || sleep 0.001; done\n"
    job, received = await desk.submit(script), bytearray()
    tracker = desk.core.cluster(desk.id).tracker

    async def tell() -> None:
        """Wake the listener repeatedly, with sizes older than its position."""
        while True:
            for event in [event for events in tracker._listeners.values() for event in events]:
                event.set()
            await asyncio.sleep(0.002)

    telling = asyncio.create_task(tell())
    try:
        await followed(desk, job, received)
    finally:
        telling.cancel()
    assert received == b"".join(b"line %d\n" % number for number in range(1, 3001))


async def test_a_long_log_opens_at_its_end(desk, asked):
    script = "#!/bin/sh\ntruncate -s 1G log; echo the end >>log; until [ -e go ]; do sleep 0.1; done; echo over >>log\n"
    job = await desk.submit(script, "-o", f"{desk.folder}/log", "--open-mode=append")
    log, received, began = Path(desk.folder, "log"), bytearray(), []
    await until(lambda: log.exists() and log.stat().st_size > 1 << 30)

    async def end():
        async for event, data in desk.core.cluster(desk.id).results.stream(job["key"], {"stdout": -100}):
            if event == "output":
                began.append(data["offset"])
                received.extend(base64.b64decode(data["data"]))

    task = asyncio.create_task(end())
    with contextlib.suppress(TimeoutError):
        await until(lambda: received, 10)
    assert received.endswith(b"\0the end\n")
    assert len(received) == 100
    Path(desk.folder, "go").touch()
    await task
    assert began[0] == (1 << 30) + len(b"the end\n") - 100
    assert received.endswith(b"the end\nover\n")
    assert (await desk.core.cluster(desk.id).results.output(job["key"], "stdout", -5, None))[0] == b"over\n"
