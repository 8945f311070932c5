"""Tests of looks at one awaited job: its end is known without a query of the queue, for a few queries."""

from __future__ import annotations

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
        monkeypatch.setattr(job_checks, "_MAX_QUIET_S", 100.0)
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
            services.results.checks.note_news(entry)
            one = services.results.checks._watched[id(entry)]
            one.news_at = -1000.0  # quiet for long
            if one.task is None:
                break
            await one.task
        assert 1 <= len(asked) <= 4
        assert services.client.singles.is_ready(2)
    go.touch()
    await services.actions.cancel(job["key"])
