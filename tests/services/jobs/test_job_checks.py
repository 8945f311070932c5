"""Tests of early looks at awaited jobs: an end is known before the queue is read again, for a few queries."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.services.clusters import job_checks
from jupyter_slurm.services.slurm.rate_limit import TokenBucket

pytestmark = pytest.mark.slurm


async def _count_checks(desk: Any, monkeypatch: pytest.MonkeyPatch, *, unlimited: bool = True) -> list[str]:
    """Stop reading the queue, and return the list to which each query about one job is added.

    Without a limit, a busy machine may take as long as it wants for the end of the job.
    """
    services, asked = desk.core.cluster(desk.id), list[str]()
    await services.poller.stop()
    if unlimited:
        monkeypatch.setattr(job_checks, "_PAUSES_S", (0.5,) * 1000)
        monkeypatch.setattr(services.client, "singles", TokenBucket(rate=100, burst=100))
    describe = services.client.describe

    async def counted(job: Any) -> Any:
        asked.append(str(job))
        return await describe(job)

    monkeypatch.setattr(services.client, "describe", counted)
    return asked


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hi; exit 3\n", "#!/bin/sh\nexit 3\n"], ids=["prints", "is silent"])
async def test_the_end_of_a_script_is_known_without_the_queue(
    desk: Any, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    asked = await _count_checks(desk, monkeypatch)
    ended = await desk.finished((await desk.submit(text))["key"])
    assert (ended["state"], ended["exit_code"]) == ("FAILED", 3)
    assert asked


async def _let_early_looks_only(desk: Any, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Stop the regular queries and those about single jobs; return the list to which each early query is added.

    Without a limit, a busy machine may take as long as it wants for the end of a job.
    """
    services, asked = desk.core.cluster(desk.id), list[float]()
    await services.poller.stop()
    monkeypatch.setattr(job_checks, "_PAUSES_S", (0.5,) * 1000)
    monkeypatch.setattr(services.client, "singles", TokenBucket(rate=1e-9, burst=0))
    monkeypatch.setattr(services.poller, "_allowance", TokenBucket(rate=100, burst=100))
    queue = services.client.queue

    async def counted() -> Any:
        asked.append(services.tracker.clock())
        return await queue()

    monkeypatch.setattr(services.client, "queue", counted)
    return asked


@pytest.mark.parametrize("options", [(), ("--array=0-2",), ("--output=/dev/null",)], ids=["job", "array", "no output"])
async def test_the_end_of_a_script_is_known_before_the_queue_is_read_again(
    desk: Any, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...]
) -> None:
    asked = await _let_early_looks_only(desk, monkeypatch)
    ended = await desk.finished((await desk.submit("#!/bin/sh\nexit 3\n", *options))["key"])
    assert ended["state"] == "FAILED"
    assert asked


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_the_end_is_known_to_those_who_only_read_the_state(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    await _let_early_looks_only(desk, monkeypatch)
    job = await desk.submit("#!/bin/sh\nexit 0\n")
    await desk.until(job["key"], lambda job: job["state"] == "COMPLETED")


async def test_a_cancellation_and_a_release_are_known_before_the_queue_is_read_again(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _let_early_looks_only(desk, monkeypatch)
    services = desk.core.cluster(desk.id)
    held, doomed, typed = [await desk.submit("#!/bin/sh\nexit 0\n", "--hold") for _ in range(3)]
    await services.actions.act("release", [held["key"]])
    await services.actions.act("cancel", [doomed["key"]])
    context = desk.asked("")["context"]
    await services.run_command(["scancel", typed["id"]], table=False, context=context)
    assert (await desk.finished(held["key"]))["state"] == "COMPLETED"
    for job in (doomed, typed):
        assert (await desk.finished(job["key"]))["state"] == "CANCELLED"


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_many_submissions_do_not_earn_many_looks(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    services = desk.core.cluster(desk.id)
    asked = await _let_early_looks_only(desk, monkeypatch)
    monkeypatch.setattr(job_checks, "_PAUSES_S", (0.01,) * 20)
    monkeypatch.setattr(job_checks, "_SHARED_S", 0.0)
    monkeypatch.setattr(services.poller, "_allowance", TokenBucket(rate=1e-9, burst=15))
    jobs = [await desk.submit("#!/bin/sh\nexec sleep 1000\n") for _ in range(20)]
    entries = [await services.jobs.find(job["key"]) for job in jobs]
    with contextlib.ExitStack() as stack:
        for entry in entries:
            stack.enter_context(services.tracker.listening(entry))
            services.jobs.checks.note_submission(entry)
        await asyncio.gather(*services.jobs.checks._tasks)
    assert 1 <= len(asked) <= 15
    await services.actions.act("cancel", [job["key"] for job in jobs])


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_nobody_looks_for_those_who_do_not_wait(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = await _let_early_looks_only(desk, monkeypatch)
    monkeypatch.setattr(job_checks, "_PAUSES_S", (0.01,) * 5)
    await desk.submit("#!/bin/sh\nexit 0\n")
    await asyncio.gather(*desk.core.cluster(desk.id).jobs.checks._tasks)
    assert not asked


async def test_the_end_of_an_array_of_python_cells_is_known_without_the_queue(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = await _count_checks(desk, monkeypatch)
    ended = await desk.finished((await desk.submit("print(1)", "--array=0-2"))["key"])
    assert (ended["state"], ended["tasks"]) == ("COMPLETED", {"COMPLETED": 3})
    assert asked


async def test_a_cancelled_script_is_over_without_the_queue(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    job = await desk.submit("#!/bin/sh\nsleep 1000\n")
    await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
    asked = await _count_checks(desk, monkeypatch)
    await desk.core.cluster(desk.id).actions.cancel(job["key"])
    assert (await desk.finished(job["key"]))["state"] == "CANCELLED"
    assert asked


@pytest.mark.here_only("nothing of it depends on the way there")
async def test_a_job_that_goes_on_is_looked_at_less_and_less(
    desk: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any, wait_for: Any
) -> None:
    """The queries about single jobs that are left to others are not used up, whatever a job prints."""
    asked = await _count_checks(desk, monkeypatch, unlimited=False)
    services = desk.core.cluster(desk.id)
    go = tmp_path / "go"
    tmp_path.chmod(0o755)
    job = await desk.submit(f"#!/bin/sh\nwhile [ ! -e {go} ]; do echo x; sleep 0.9; done\n")
    entry = await services.jobs.find(job["key"])
    with services.tracker.listening(entry):
        for _ in range(60):
            services.jobs.checks.note_news(entry)
            one = services.jobs.checks._watched[id(entry)]
            one.news_at = -1000.0  # quiet for long
            if one.task is None:
                break
            await one.task
        assert 1 <= len(asked) <= 4
        assert services.client.singles.is_ready(2)
    go.touch()
    await services.actions.cancel(job["key"])


async def test_a_job_of_a_terminal_has_its_name_from_the_first_answer(
    desk: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No query but that of the queue is left."""
    await _let_early_looks_only(desk, monkeypatch)
    services, name = desk.core.cluster(desk.id), "a ~name; of\nmine ä"
    argv = ["sbatch", "--parsable", "--hold", f"--job-name={name}", "--wrap", "true"]
    number = subprocess.check_output(argv, env=desk.env, cwd=desk.folder, text=True).strip()
    await services.tracker.poll()
    shown = [job["name"] for job in await services.jobs.list_jobs(active=True) if job["id"] == number]
    assert shown == [name]
    await services.actions.cancel(number)


async def test_an_older_answer_of_the_queue_does_not_revive_a_job(desk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """An early look at one job and a query of the queue run at the same time."""
    services = desk.core.cluster(desk.id)
    await services.poller.stop()
    monkeypatch.setattr(services.client, "singles", TokenBucket(rate=100, burst=100))
    gate = Path(desk.folder, "gate")
    job = await desk.submit(f"#!/bin/sh\nuntil [ -e {gate} ]; do sleep 0.1; done\n")
    entry, queue = services.tracker.find(job["key"]), services.client.queue

    async def update() -> str:
        await services.tracker.update_from_slurm(entry, await services.client.describe(entry.id))
        return str(entry.state.name)

    while await update() != "RUNNING":
        await asyncio.sleep(0.1)

    async def late() -> Any:
        answer = await queue()
        gate.touch()
        while await update() != "COMPLETED":
            await asyncio.sleep(0.1)
        return answer

    monkeypatch.setattr(services.client, "queue", late)
    await services.tracker.poll()
    assert entry.state.name == "COMPLETED"
