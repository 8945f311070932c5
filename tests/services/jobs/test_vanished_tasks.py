"""Tests of array tasks that end while nobody looks: Slurm forgets them while other tasks of the array still run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import CommandError, CommandMissing, ControllerError, ParseError, SlurmError, TransportError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs import array_tasks
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.rate_limit import TokenBucket
from jupyter_slurm.transport.local.transport import LocalTransport

KEY = "20260101-000000-00000000"
NOW = 1_800_000_000.0
NO_ACCOUNTING = CommandError("Slurm accounting storage is disabled")


class Site:
    """A cluster whose queue and accounting answer with the given rows; the job directory is a real one."""

    def __init__(self, folder: Path, kind: str, transport: LocalTransport) -> None:
        self.path, self.transport, self.now = folder / KEY, transport, NOW
        self.path.mkdir(0o700)
        self.rows: list[JobRecord] = []
        self.history: list[JobRecord] | SlurmError = NO_ACCOUNTING
        self.asked: list[str] = []
        self.accounting = SimpleNamespace(history=self._history)
        self.singles = TokenBucket(rate=1.0, burst=100)
        store = SimpleNamespace(remember=lambda *_: None, forget=lambda *_: None)
        self.tracker = Tracker("c", self, ClusterFolder(str(folder)), store, EventBus(), lambda: self.now)  # type: ignore[arg-type]
        base = {"format": 1, "key": KEY, "created": NOW, "argv": [], "events": "events", "outputs": {}}
        record = {**base, "kind": kind, "script": "script", "array": True, "array_tasks": "0-3"}
        self.entry = TrackedJob(
            "c",
            id=JobId(12),
            folder=self.tracker.folder.job(KEY),
            record=JobRecordFile.from_json(record),
            state=JobState("PENDING"),
        )
        self.entry.slurm.submitted = int(NOW)
        self.tracker.add(self.entry)

    async def queue(self) -> list[JobRecord]:
        return self.rows

    async def describe(self, job: JobId) -> list[JobRecord]:
        self.asked.append("scontrol")
        return []

    async def _history(self, jobs: Sequence[JobId], since: float) -> list[JobRecord]:
        self.asked.append("sacct")
        if isinstance(self.history, SlurmError):
            raise self.history
        return self.history

    async def poll(self, *tasks: tuple[int, str], pending: str = "", restarts: int = 0) -> dict[int, str]:
        self.rows = [_row(task, state, restarts) for task, state in tasks]
        if pending:
            self.rows.append(
                JobRecord(JobId(12), JobState("PENDING"), tasks=TaskRange.parse(pending), submit_time=int(NOW))
            )
        await self.tracker.poll()
        return {task: str(row.state) for task, row in sorted(self.entry.slurm.tasks.items())}

    def request(self, tasks: str | None) -> None:
        """Set the tasks that the array was submitted with; None: they are not known."""
        assert self.entry.record is not None
        self.entry.record = replace(self.entry.record, array_tasks=tasks)

    def end(self, *tasks: int, **more: Any) -> None:
        for task in tasks:
            end = {"format": 1, "exit_code": 0, "time": NOW, "restarts": 0, **more}
            (self.path / f"end.{task}.json").write_text(json.dumps(end))


def _row(task: int, state: str, restarts: int = 0) -> JobRecord:
    is_over = state not in ("RUNNING", "PENDING")
    end: dict[str, Any] = {"exit_code": 0, "signal": 0, "end_time": int(NOW)} if is_over else {}
    return JobRecord(
        JobId(12, task), JobState(state), submit_time=int(NOW), restarts=restarts, nodes="n1", start_time=1, **end
    )


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


async def test_the_marker_of_a_task_that_slurm_has_forgotten_is_read(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "python", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    site.end(0, 1, 3)
    assert await site.poll((2, "RUNNING")) == {0: "COMPLETED", 1: "COMPLETED", 2: "RUNNING", 3: "COMPLETED"}
    assert site.entry.state.name == "RUNNING"
    assert (site.entry.slurm.tasks[0].nodes, site.entry.slurm.tasks[0].start_time) == ("n1", 1)
    assert await site.poll((2, "COMPLETED")) == dict.fromkeys(range(4), "COMPLETED")
    assert (site.entry.state.name, site.entry.is_finished, site.asked) == ("COMPLETED", True, [])
    assert [row[:2] for row in json.loads((site.path / "tasks.json").read_text())["rows"]] == [
        [task, "COMPLETED"] for task in range(4)
    ]


async def test_an_array_that_has_left_the_queue_ends_by_its_markers(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "python", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    site.end(0, 1, 2)
    site.end(3, exit_code=1)
    assert (await site.poll())[3] == "FAILED"
    assert (site.entry.state.name, site.entry.is_finished, site.asked) == ("FAILED", True, [])


async def test_the_marker_of_a_run_before_a_requeue_is_no_end(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "python", transport)
    site.end(0)
    await site.poll((0, "RUNNING"), pending="1-3", restarts=1)
    assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "UNKNOWN"  # not the end of the first run
    assert await site.poll((0, "RUNNING"), (1, "RUNNING"), restarts=1) == {0: "RUNNING", 1: "RUNNING"}
    site.end(0, restarts=1)
    assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "COMPLETED"


async def test_accounting_is_asked_for_the_end_of_a_forgotten_task(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "script", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    site.history = ControllerError("slurmdbd is away")
    await site.poll((1, "RUNNING"), pending="2-3")
    site.now += 61
    site.history = [_row(0, "FAILED"), _row(1, "RUNNING")]
    assert (await site.poll((1, "RUNNING"), pending="2-3")) == {0: "FAILED", 1: "RUNNING"}
    assert site.asked == ["sacct", "sacct"]
    await site.poll((1, "RUNNING"), pending="2-3")
    site.now += 61
    assert await site.poll((2, "RUNNING"), (3, "PENDING"))  # accounting has not heard of the end of task 1
    for _ in range(3):
        assert (await site.poll((2, "RUNNING"), (3, "PENDING")))[1] == "RUNNING"
    assert (len(site.asked), site.entry.state.name) == (3, "RUNNING")
    await site.poll((3, "PENDING"))
    assert (len(site.asked), site.entry.state.name) == (3, "PENDING")  # no forgotten task makes the array running
    site.now += 61
    site.history = [_row(2, "COMPLETED")]
    for _ in range(3):
        told = await site.poll((3, "COMPLETED"))
    assert (told, len(site.asked)) == ({0: "FAILED", 1: "UNKNOWN", 2: "COMPLETED", 3: "COMPLETED"}, 4)
    assert (site.entry.state.name, site.entry.is_finished) == ("UNKNOWN", True)
    assert "the ends of some tasks are not recorded" in str(site.entry.error)


async def test_a_task_that_was_cancelled_while_it_waited_does_not_delay_the_others(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "script", transport)
    await site.poll((0, "RUNNING"), (1, "PENDING"), pending="2-3")
    assert await site.poll((0, "RUNNING"), (2, "RUNNING")) == {0: "RUNNING", 2: "RUNNING"}
    await site.poll((0, "COMPLETED"), (2, "COMPLETED"))
    assert (site.entry.state.name, site.entry.is_finished, site.asked) == ("COMPLETED", True, ["sacct"])


async def test_an_array_is_not_over_before_accounting_was_asked_for_tasks_that_were_never_seen(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "script", transport)
    await site.poll((0, "RUNNING"), pending="1-3")
    site.history = ControllerError("slurmdbd is away")
    await site.poll((0, "COMPLETED"), (3, "COMPLETED"))  # 1 and 2 began and ended meanwhile, and are forgotten
    assert (site.entry.is_finished, site.asked) == (False, ["sacct"])
    site.now += 61
    site.history = [_row(task, "FAILED" if task == 2 else "COMPLETED") for task in range(4)]
    assert (await site.poll((0, "COMPLETED"), (3, "COMPLETED")))[2] == "FAILED"
    assert (site.entry.state.name, site.entry.is_finished) == ("FAILED", True)


async def test_an_array_is_over_though_accounting_does_not_know_all_of_its_tasks(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "script", transport)
    site.history = [_row(0, "COMPLETED")]
    await site.poll((0, "RUNNING"), pending="1-3")
    for _ in range(2):
        await site.poll((0, "COMPLETED"), (3, "COMPLETED"))
        assert not site.entry.is_finished
        site.now += 30
    await site.poll((0, "COMPLETED"), (3, "COMPLETED"))
    assert (site.entry.state.name, site.asked) == ("COMPLETED", ["sacct", "sacct"])


async def test_an_array_that_left_the_queue_meanwhile_is_over_once_accounting_knows_a_task(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "script", transport)
    await site.poll((0, "RUNNING"), pending="1-3")
    site.history = ControllerError("slurmdbd is away")
    await site.poll((0, "COMPLETED"), (3, "COMPLETED"))
    assert not site.entry.is_finished
    site.history = [_row(0, "COMPLETED"), _row(3, "COMPLETED")]
    await site.poll()
    assert (site.entry.state.name, site.entry.is_finished) == ("COMPLETED", True)


@pytest.mark.parametrize("waiting", ["2-3", "2,..."])
@pytest.mark.parametrize("requested", [None, "what is this"])
async def test_tasks_that_only_waited_count_at_the_end_of_an_array_of_unknown_extent(
    transport: LocalTransport, tmp_path: Path, requested: str | None, waiting: str
) -> None:
    site = Site(tmp_path, "script", transport)
    site.request(requested)
    await site.poll((0, "COMPLETED"), (1, "COMPLETED"), pending=waiting)
    site.history = ControllerError("slurmdbd is away")
    for _ in range(2):
        await site.poll()
        assert (site.entry.state.name, site.asked.pop()) == ("PENDING", "sacct")
    site.history = [_row(task, "FAILED" if task == 3 else "COMPLETED") for task in range(4)]
    assert (await site.poll())[3] == "FAILED"
    assert (site.entry.state.name, site.entry.is_finished) == ("FAILED", True)


async def test_tasks_that_waited_and_were_never_seen_again_count_at_the_end(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "python", transport)
    site.request(None)
    site.history = ControllerError("slurmdbd is away")
    await site.poll((0, "COMPLETED"), pending="1-3")
    await site.poll((3, "RUNNING"))  # 1 and 2 began and ended meanwhile
    site.end(3)
    await site.poll()
    assert not site.entry.is_finished
    site.history = [_row(task, "FAILED" if task == 2 else "COMPLETED") for task in range(4)]
    assert (await site.poll())[2] == "FAILED"
    assert site.entry.state.name == "FAILED"


async def test_an_array_of_unknown_extent_ends_by_its_markers_once_no_task_waits(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "python", transport)
    site.request(None)
    await site.poll((0, "RUNNING"), pending="1")
    await site.poll((0, "RUNNING"), (1, "RUNNING"))
    site.end(0, 1)
    assert await site.poll() == {0: "COMPLETED", 1: "COMPLETED"}
    assert (site.entry.state.name, site.asked) == ("COMPLETED", [])


async def test_short_tasks_share_one_question_a_minute(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "script", transport)
    site.request("0-999")
    site.singles = TokenBucket(rate=0.05, burst=6, clock=lambda: site.now)
    ended: list[JobRecord] = []
    for task in range(31):  # a poll each 10 s
        site.history = list(ended)
        told = await site.poll((task, "RUNNING"), pending=f"{task + 1}-999")
        assert site.singles.is_ready(3)  # the ends of other jobs are found, too
        ended.append(_row(task, "COMPLETED"))
        site.now += 10
    assert len(site.asked) <= 6
    assert [told[task] for task in range(20)] == ["COMPLETED"] * 20


async def test_questions_about_single_jobs_come_before_those_about_tasks(
    transport: LocalTransport, tmp_path: Path
) -> None:
    site = Site(tmp_path, "script", transport)
    site.singles = TokenBucket(rate=0.05, burst=3, clock=lambda: site.now)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    await site.poll((1, "RUNNING"), pending="2-3")
    assert (site.asked, site.singles.is_ready(3)) == ([], True)
    site.singles = TokenBucket(rate=0.05, burst=4, clock=lambda: site.now)
    await site.poll((1, "RUNNING"), pending="2-3")
    assert site.asked == ["sacct"]


def _break(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, *calls: str) -> None:
    async def broken(*_: object, **__: object) -> None:
        raise TransportError("the connection was lost", hint="Try again.")

    for call in calls:
        monkeypatch.setattr(transport, call, broken)


@pytest.mark.parametrize("call", ["list_dir", "stat_all", "run", "read_owned"])
async def test_markers_are_read_again_after_a_broken_connection(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    site = Site(tmp_path, "python", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    site.end(0)
    site.entry.slurm.tasks_read = False  # as after a start of the agent
    with monkeypatch.context() as patch:
        _break(patch, transport, call)
        for _ in range(2):
            assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "RUNNING"
    assert await site.poll((1, "RUNNING"), pending="2-3") == {0: "COMPLETED", 1: "RUNNING"}
    site.end(1, 2, 3)
    with monkeypatch.context() as patch:
        _break(patch, transport, "list_dir")
        await site.poll()
        assert not site.entry.is_finished
    assert await site.poll() == dict.fromkeys(range(4), "COMPLETED")
    assert (site.entry.state.name, site.asked) == ("COMPLETED", [])


async def test_markers_that_cannot_be_read_for_a_minute_are_given_up(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "python", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    _break(monkeypatch, transport, "list_dir")
    await site.poll()
    assert not site.entry.is_finished
    site.now += 61
    await site.poll()
    assert (site.entry.state.name, site.asked) == ("UNKNOWN", ["scontrol", "sacct"])


async def test_the_ends_in_the_job_directory_are_read_again_after_a_broken_connection(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = Site(tmp_path, "script", transport)
    end = [0, "FAILED", 1, None, 1, 2, "n1", ""]
    written = json.dumps({"format": 1, "columns": array_tasks.COLUMNS, "rows": [end]})
    (site.path / "tasks.json").write_text(written)
    with monkeypatch.context() as patch:
        _break(patch, transport, "read_owned")
        await array_tasks.load(transport, site.entry)
        await site.poll((1, "COMPLETED"), (2, "RUNNING"), pending="3")
    assert (site.path / "tasks.json").read_text() == written
    await array_tasks.load(transport, site.entry)
    assert site.entry.slurm.tasks[0].state.name == "FAILED"


@pytest.mark.parametrize("error", [ParseError("what is this"), TransportError("lost", hint="Try again.")])
async def test_an_answer_of_accounting_that_cannot_be_read_stops_no_poll(
    transport: LocalTransport, tmp_path: Path, error: SlurmError
) -> None:
    site = Site(tmp_path, "script", transport)
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    site.history = error
    assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "RUNNING"
    site.now += 61
    site.history = [_row(0, "FAILED")]
    assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "FAILED"


async def test_without_sacct_there_is_no_accounting(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, "script", transport)
    site.history = CommandMissing("There is no sacct on the PATH.", hint="Install it.")
    await site.poll((0, "RUNNING"), (1, "RUNNING"), pending="2-3")
    assert (await site.poll((1, "RUNNING"), pending="2-3"))[0] == "UNKNOWN"
    await site.poll()
    assert site.entry.state.name == "UNKNOWN"
    assert "accounting could not be asked (There is no sacct on the PATH)" in str(site.entry.error)
