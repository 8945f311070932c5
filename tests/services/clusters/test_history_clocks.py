"""The history and clocks that are set: no job is hidden by a wrong time, and the loop runs while rows are added."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.services.clusters.job_history import JobHistory
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.transport.base import Completed

DAY = 86_400.0
NOW = 1_700_000_000.0


class Site:
    """A cluster with accounting, and three clocks: the cluster's, the laptop's, and one that nobody sets."""

    def __init__(self) -> None:
        self.cluster = self.laptop = NOW
        self.uptime = 1000.0
        self.rows: list[JobRecord] = []
        self.asked_since: list[float] = []
        self.has_date = True
        self.transport = self
        self.accounting = SimpleNamespace(recent=self._recent)
        store = SimpleNamespace(finished=self._stored, remember=lambda *_: None, forget=lambda *_: None)
        folder = ClusterFolder("/nowhere")
        self.tracker = Tracker("far", self, folder, store, EventBus(), lambda: self.laptop)  # type: ignore[arg-type]
        self.history = JobHistory(self, self.tracker, 7.0, lambda: self.uptime)  # type: ignore[arg-type]

    async def run(self, argv: Sequence[str]) -> Completed:
        return Completed(0, b"%d\n" % self.cluster if self.has_date else b"no date", b"")

    async def version(self) -> tuple[int, int]:
        return 24, 5

    async def _recent(self, since: float, version: Any) -> list[JobRecord]:
        self.asked_since.append(since)
        return [row for row in self.rows if (row.end_time or 0) >= since]

    @staticmethod
    async def _stored(name: str) -> dict[str, Any]:
        return {}

    def pass_hours(self, hours: float) -> None:
        self.cluster, self.laptop, self.uptime = (
            time + hours * 3600 for time in (self.cluster, self.laptop, self.uptime)
        )

    def listed(self) -> list[int]:
        return sorted(entry.id.job for entry in self.tracker.foreign() if entry.id)


def _ended(job: int, at: float, task: int | None = None) -> JobRecord:
    moment = int(at)
    return JobRecord(
        id=JobId(job, task=task), state=JobState("COMPLETED"), submit_time=moment, start_time=moment, end_time=moment
    )


async def test_a_laptop_whose_clock_is_set_hides_no_job() -> None:
    site = Site()
    site.rows = [_ended(1, NOW - DAY), _ended(2, NOW - 6 * DAY)]
    await site.history.refresh(60)
    assert site.listed() == [1, 2]
    for shift in (30 * DAY, -60 * DAY):
        site.laptop += shift
        site.history.note_poll(is_watched=False)
        assert site.listed() == [1, 2]
    site.laptop = NOW
    site.pass_hours(48)
    site.history.note_poll(is_watched=False)
    assert site.listed() == [1]  # the other is older than a week now


async def test_what_a_wrong_clock_of_the_cluster_has_hidden_comes_back() -> None:
    site = Site()
    site.rows = [_ended(1, NOW - DAY)]
    site.cluster += 30 * DAY
    await site.history.refresh(60)
    site.history.note_poll(is_watched=False)
    assert site.listed() == []
    site.cluster -= 30 * DAY
    site.pass_hours(2)
    await site.history.refresh(60)
    site.history.note_poll(is_watched=False)
    assert site.listed() == [1]


async def test_without_a_time_of_the_cluster_each_query_covers_the_whole_period() -> None:
    site = Site()
    site.has_date = False
    site.laptop += 30 * DAY
    for _ in range(2):
        await site.history.refresh(60)
        site.pass_hours(2)
    site.laptop = site.cluster
    site.rows = [_ended(1, NOW)]
    await site.history.refresh(60)
    assert site.listed() == [1]


async def test_the_loop_has_its_turn_while_rows_of_few_large_arrays_are_added() -> None:
    site = Site()
    site.rows = [_ended(job, NOW - DAY, task) for job in range(1, 21) for task in range(300)]
    await site.history.recall(60)
    turns, adding = 0, asyncio.ensure_future(site.history.refresh(60))
    while not adding.done():
        await asyncio.sleep(0)
        turns += 1
    assert site.listed() == list(range(1, 21))
    assert turns > 6000 // 1000 + 20  # a few more are those of the query itself


async def test_an_idle_page_asks_accounting_once_an_hour_and_after_a_gap_sooner() -> None:
    site = Site()
    await site.history.refresh(60)
    asked = []
    for minutes in (*[5] * 11, 6, 10):  # the longest interval of the poller is five minutes
        site.pass_hours(minutes / 60)
        site.history.note_poll(is_watched=True)
        await site.history._wait(60)
        asked.append(len(site.asked_since))
    assert asked == [1] * 11 + [2, 3]
