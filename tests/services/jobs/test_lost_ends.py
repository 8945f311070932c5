"""Tests of ends that are hard to get: accounting that has none, numbers given twice, full disks, and broken links."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import CommandTimeout, ControllerError, JobEndUnknown, SlurmError, TransportError
from jupyter_slurm.services.allocations.steps import Steps
from jupyter_slurm.services.clusters import housekeeping
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobdir.job_json_model import ReturnRecord
from jupyter_slurm.services.jobs import record_writer
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.runner_events import RunnerEvents
from jupyter_slurm.services.jobs.serialize import job_dict
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.rate_limit import TokenBucket
from jupyter_slurm.services.staging.job_staging import Staging
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.owned_files import untrusted_file
from jupyter_slurm.transport.ssh.protocols import LinkLost

KEY, OTHER = "20260101-000000-00000000", "20260101-000000-00000001"
NOW = 1_800_000_000.0


class Site:
    """A cluster whose queue, controller and accounting answer with the given rows; the job directories are real."""

    def __init__(self, folder: Path, transport: LocalTransport) -> None:
        self.path, self.transport, self.now = folder, transport, NOW
        self.rows: list[JobRecord] = []
        self.described: list[JobRecord] = []
        self.history: list[JobRecord] | SlurmError = []
        self.remembered: list[str] = []
        self.accounting = SimpleNamespace(history=self._history, submit_times=self._no_times)
        self.singles = TokenBucket(rate=1000.0, burst=1000)
        store = SimpleNamespace(
            remember=lambda _, key, record: self.remembered.append(key), forget=lambda *_: None, finished=self._no_rows
        )
        clock = lambda: self.now  # noqa: E731
        self.tracker = Tracker("c", self, ClusterFolder(str(folder)), store, EventBus(), clock)  # type: ignore[arg-type]
        self.scan = JobDirectoryScan(self.tracker)

    def write(self, key: str = KEY, submitted: int = int(NOW), **more: Any) -> None:
        record = {"format": 1, "key": key, "kind": "script", "created": NOW, "script": "job.sh", "argv": []}
        record |= {"outputs": {}, "events": "events", "job": {"id": "7", "submit_time": submitted}, **more}
        (self.path / key).mkdir(0o700, exist_ok=True)
        (self.path / key / "job.json").write_text(json.dumps(record))

    async def track(self, key: str = KEY, **more: Any) -> TrackedJob:
        self.write(key, **more)
        entry = await self.scan.get(key)
        assert entry is not None
        return entry

    async def poll(self, *rows: JobRecord, later: float = 0.0) -> bool:
        self.now += later
        self.rows = list(rows)
        changed = await self.tracker.poll()
        await asyncio.sleep(0.05)  # ends are written beside the polls
        return changed

    async def queue(self) -> list[JobRecord]:
        return self.rows

    async def describe(self, job: JobId) -> list[JobRecord]:
        return self.described

    async def scripts(self) -> list[JobRecord]:
        return self.described

    async def _history(self, jobs: Sequence[JobId], since: float) -> list[JobRecord]:
        if isinstance(self.history, SlurmError):
            raise self.history
        return self.history

    async def _no_times(self, *_: object) -> set[int]:
        return set()

    async def _no_rows(self, name: str) -> dict[str, object]:
        return {}


def row(state: str, submitted: int = int(NOW), **more: Any) -> JobRecord:
    return JobRecord(JobId(7), JobState(state), submit_time=submitted, nodes="n1", start_time=int(NOW), **more)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    tmp_path.chmod(0o700)
    transport = LocalTransport()
    yield Site(tmp_path, transport)
    transport.close()


async def test_a_job_that_accounting_has_running_for_ever_has_an_unknown_end(site: Site) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = [row("RUNNING")]
    assert not await site.poll(later=10)
    assert (entry.state.name, entry.is_finished) == ("RUNNING", False)  # slurmdbd may learn of the end
    assert not await site.poll(later=30)
    assert await site.poll(later=31)
    assert (entry.state.name, entry.is_finished) == ("UNKNOWN", True)
    assert "it has left the queue, and accounting still shows it as RUNNING" in str(entry.error)
    assert not await site.poll(later=10)


async def test_an_end_that_accounting_learns_of_within_a_minute_is_taken(site: Site) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    site.history = [row("FAILED", exit_code=5, end_time=int(NOW) + 5)]
    assert await site.poll(later=20)
    assert (entry.state.name, entry.exit_code) == ("FAILED", 5)


async def test_a_job_that_the_controller_still_has_changes_nothing(site: Site) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = site.described = [row("RUNNING")]
    assert [await site.poll(later=300) for _ in range(3)] == [False] * 3
    assert entry.state.name == "RUNNING"
    site.described = []
    assert not await site.poll(later=10)
    assert await site.poll(row("COMPLETED", exit_code=0, end_time=int(NOW)), later=300)
    assert entry.state.name == "COMPLETED"


@pytest.mark.parametrize("state", ["RUNNING", "FAILED"])
async def test_a_job_of_an_unknown_end_that_the_queue_shows_again_goes_on(site: Site, state: str) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    await site.poll(later=61)
    assert isinstance(entry.error, JobEndUnknown)
    end = {} if state == "RUNNING" else {"exit_code": 3, "end_time": int(NOW) + 9}
    assert await site.poll(row(state, **end), later=10)
    assert (entry.state.name, entry.error, entry.is_finished) == (state, None, state == "FAILED")
    assert entry.record is not None
    assert (entry.record.end is None) == (state == "RUNNING")
    await asyncio.sleep(0.3)  # the record is written after a moment
    written = json.loads((site.path / KEY / "job.json").read_text()).get("end")
    assert (written and written["state"]) == (None if state == "RUNNING" else state)
    if state == "RUNNING":
        await site.poll(row("COMPLETED", exit_code=0, end_time=int(NOW)))
        assert (entry.state.name, entry.error) == ("COMPLETED", None)


async def test_the_tasks_of_an_array_keep_the_ends_that_accounting_has(site: Site) -> None:
    entry = await site.track(array=True, array_tasks="0-1")
    tasks = [JobRecord(JobId(7, task), JobState("RUNNING"), submit_time=int(NOW), nodes="n1") for task in (0, 1)]
    await site.poll(*tasks)
    end = JobRecord(JobId(7, 0), JobState("FAILED"), submit_time=int(NOW), exit_code=2, end_time=int(NOW))
    site.history = [end, tasks[1]]
    await site.poll(later=10)
    assert not entry.is_finished
    await site.poll(later=61)
    assert entry.state.name == "UNKNOWN"
    assert [entry.task_view(task).state.name for task in (0, 1)] == ["FAILED", "UNKNOWN"]


async def test_a_number_that_another_job_has_now_hides_no_end(site: Site) -> None:
    """As after a controller has lost its state."""
    ours = await site.track()
    await site.poll(row("RUNNING"))
    theirs = row("RUNNING", submitted=int(NOW) + 100, command="/x/other.sh")
    site.described = site.history = [theirs]
    for _ in range(2):
        await site.poll(theirs, later=50)
        assert not ours.is_finished
    await site.poll(theirs, later=50)
    assert (ours.state.name, ours.is_finished) == ("UNKNOWN", True)
    other = site.tracker.find("7")
    assert other is not None
    assert (other is ours, other.state.name) == (False, "RUNNING")
    site.described = site.history = []
    await site.poll(later=10)
    assert not other.is_finished  # its own minute begins


async def test_records_of_a_number_go_to_the_job_that_they_are_of(site: Site) -> None:
    ours = await site.track()
    await site.poll(row("RUNNING"))
    theirs = row("RUNNING", submitted=int(NOW) + 100, command="/x/other.sh")
    site.described = [theirs]
    await site.poll(theirs, later=10)
    other = site.tracker.find("7")
    site.described, site.history = [], [row("COMPLETED", submitted=int(NOW) + 100, exit_code=0, end_time=int(NOW))]
    await site.poll(later=10)
    assert other is not None
    assert (ours.is_finished, other.state.name) == (False, "COMPLETED")


async def test_a_job_is_not_shown_as_running_while_accounting_does_not_answer(site: Site) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = ControllerError("Accounting does not answer.")
    assert [await site.poll(later=3600) for _ in range(3)] == [True, False, False]
    shown = job_dict(entry)
    assert (shown["state"], shown["known"], shown["unknown_since"]) == ("RUNNING", False, NOW + 3600)
    site.history = []
    await site.poll(later=10)
    await site.poll(later=61)
    shown = job_dict(entry)
    assert (shown["state"], shown["known"], shown["unknown_since"]) == ("UNKNOWN", True, None)


async def test_the_minute_of_a_missing_job_consists_of_answers(site: Site) -> None:
    entry = await site.track()
    running = JobRecord(JobId(7), JobState("RUNNING"), submit_time=int(NOW), nodes="n1")
    await site.poll(running)
    site.history = [running]
    await site.poll(later=10)
    site.history = ControllerError("Accounting does not answer.")
    for _ in range(3):
        await site.poll(later=300)
    site.history = [running]
    await site.poll(later=10)
    assert entry.state.name == "RUNNING", "slurmctld may not have sent the end to slurmdbd yet"
    site.history = [replace(running, state=JobState("COMPLETED"), exit_code=0, end_time=int(NOW) + 5)]
    await site.poll(later=10)
    assert (entry.state.name, entry.is_current) == ("COMPLETED", True)


async def test_counts_of_an_array_with_an_unknown_end_are_those_of_its_tasks(site: Site) -> None:
    entry = await site.track(array=True, array_tasks="0-5")

    def task(number: int, state: str, **more: Any) -> JobRecord:
        return JobRecord(JobId(7, number), JobState(state), submit_time=int(NOW), nodes="n1", **more)

    def rest(tasks: str, state: str) -> JobRecord:
        return JobRecord(JobId(7), JobState(state), submit_time=int(NOW), tasks=TaskRange.parse(tasks))

    await site.poll(task(0, "RUNNING"), task(1, "RUNNING"), rest("2-5", "PENDING"))
    site.history = [
        *(task(0, "COMPLETED", exit_code=0, end_time=int(NOW)), task(1, "RUNNING")),
        *(rest("2-3", "CANCELLED"), rest("4-5", "CANCELLED")),
    ]
    for later in (10, 61):
        await site.poll(later=later)
    assert entry.state.name == "UNKNOWN"
    assert entry.counts() == {"COMPLETED": 1, "UNKNOWN": 1, "CANCELLED": 4}


async def test_a_job_of_an_earlier_agent_with_an_unknown_end_is_known_to_be_so(site: Site) -> None:
    entry = await site.track()
    assert not entry.is_current
    await site.poll()
    await site.poll(later=61)
    assert (entry.state.name, entry.is_current) == ("UNKNOWN", True)


# -- the record


def _full(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport) -> list[str]:
    tried: list[str] = []

    async def write(path: str, data: bytes, mode: int = 0o600) -> None:
        tried.append(path)
        raise TransportError(f"Cannot write {path}: Disk quota exceeded.", path=path)

    monkeypatch.setattr(transport, "write", write)
    return tried


async def test_an_end_that_a_full_disk_has_lost_is_written_later_without_a_query(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, path = await site.track(), site.path / KEY / "job.json"
    await site.poll(row("RUNNING"))
    await asyncio.sleep(0.3)
    monkeypatch.setattr(record_writer, "_END_RETRY_S", 0.4)
    with monkeypatch.context() as patch:
        tried = _full(patch, site.transport)
        await site.poll(row("FAILED", exit_code=1, end_time=int(NOW)))
        assert (len(tried), len(entry.warnings), site.remembered) == (1, 1, [])
        await asyncio.sleep(0.5)
        assert (len(tried), len(entry.warnings)) == (2, 1)
    assert json.loads(path.read_text()).get("end") is None
    await asyncio.sleep(0.5)
    assert json.loads(path.read_text())["end"]["state"] == "FAILED"
    assert (entry.warnings, site.remembered, entry.state.name) == ([], [KEY], "FAILED")
    written = path.stat().st_mtime_ns
    await asyncio.sleep(0.5)
    assert (path.stat().st_mtime_ns, site.tracker._recorder._timer) == (written, None)


async def test_a_job_that_goes_on_or_is_removed_has_no_unwritten_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    requeued, removed = await site.track(), await site.track(OTHER, job={"id": "8", "submit_time": int(NOW)})
    monkeypatch.setattr(record_writer, "_END_RETRY_S", 0.4)
    ends = [replace(row("FAILED", exit_code=1, end_time=int(NOW)), id=JobId(job)) for job in (7, 8)]
    with monkeypatch.context() as patch:
        _full(patch, site.transport)
        await site.poll(*ends)
        assert [entry.submission.is_end_unwritten for entry in (requeued, removed)] == [True, True]
        await site.poll(row("RUNNING", restarts=1))
        site.tracker.drop(removed)
    await asyncio.sleep(0.5)
    assert [entry.submission.is_end_unwritten for entry in (requeued, removed)] == [False, False]
    assert json.loads((site.path / OTHER / "job.json").read_text()).get("end") is None
    assert (site.tracker._recorder._timer, site.remembered) == (None, [])


async def test_an_end_that_a_full_disk_has_lost_is_written_when_the_agent_ends(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await site.track()
    with monkeypatch.context() as patch:
        _full(patch, site.transport)
        await site.poll(row("FAILED", exit_code=1, end_time=int(NOW)))
    await site.tracker.stop()
    assert json.loads((site.path / KEY / "job.json").read_text())["end"]["state"] == "FAILED"


async def test_cleaning_up_does_not_forget_an_end_that_is_not_on_the_disk(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry, path = await site.track(), site.path / KEY / "job.json"
    with monkeypatch.context() as patch:
        _full(patch, site.transport)
        await site.poll(row("FAILED", exit_code=1, end_time=int(NOW)))
    for dry_run, end in ((True, None), (False, "FAILED")):
        assert not await housekeeping._is_over(site.tracker, entry, NOW + 10, dry_run=dry_run)
        assert (entry.state.name, entry.exit_code) == ("FAILED", 1)
        written = json.loads(path.read_text()).get("end")
        assert (written and written["state"]) == end
    assert await housekeeping._is_over(site.tracker, entry, NOW + 10, dry_run=False)
    assert not path.exists()


async def test_cleaning_up_believes_a_record_of_a_later_run(site: Site) -> None:
    entry = await site.track()
    await site.poll(row("FAILED", exit_code=1, end_time=int(NOW)))
    site.write(submitted=int(NOW) + 50)  # another agent has seen that it was requeued
    assert not await housekeeping._is_over(site.tracker, entry, NOW + 10, dry_run=False)
    assert entry.state.name == "PENDING"


# -- directories that cannot be read


REFUSALS = ("disk", "server", "ticket", "untrusted")


def _errors(path: str) -> dict[str, TransportError]:
    def of_system(number: int) -> TransportError:
        error = TransportError(f"Cannot read {path}.", path=path)
        error.__cause__ = OSError(number, "refused")
        return error

    return {
        "no link": LinkLost("There is no connection to far yet."),
        "busy": LinkLost("far is busy with earlier commands.", host="far"),
        "slow": CommandTimeout("dd gave no answer within 60 s."),
        "disk": of_system(errno.EIO),
        "server": of_system(errno.ETIMEDOUT),
        "ticket": of_system(errno.EACCES),
        "files": of_system(errno.EMFILE),
        "untrusted": untrusted_file(path, "job.json belongs to another user (uid 5)"),
    }


def _break(monkeypatch: pytest.MonkeyPatch, transport: LocalTransport, why: str) -> list[str]:
    tried: list[str] = []
    own = transport.read_owned

    async def read_owned(path: str, offset: int = 0, limit: int | None = None) -> bytes:
        if KEY not in path:
            return await own(path, offset, limit)
        tried.append(path)
        raise _errors(path)[why]

    monkeypatch.setattr(transport, "read_owned", read_owned)
    return tried


@pytest.mark.parametrize("why", _errors(""))
async def test_a_directory_that_cannot_be_read_is_read_later_if_that_can_help(
    site: Site, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    site.write()
    site.write(OTHER)
    site.now = (site.path).stat().st_mtime + 100
    with monkeypatch.context() as patch:
        tried = _break(patch, site.transport, why)
        for _ in range(3):
            await site.scan.refresh()
            site.now += 10
        assert list(site.tracker.entries) == [OTHER]
        assert len(tried) == (1 if why in REFUSALS else 3)
    await site.scan.refresh()
    assert (KEY in site.tracker.entries) == (why not in REFUSALS)
    site.now += 120
    await site.scan.refresh()
    assert (KEY in site.tracker.entries) == (why != "untrusted")


@pytest.mark.parametrize("why", ["ticket", "disk", "server", "files", "slow", "no link", "busy"])
async def test_a_directory_that_may_not_be_read_stops_no_sign_of_others(
    site: Site, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    site.write()
    other = await site.track(OTHER, kind="python")
    (site.path / "events").mkdir(0o700)
    for key in (KEY, OTHER):
        (site.path / "events" / f"{key}.started").touch()
    with monkeypatch.context() as patch:
        tried = _break(patch, site.transport, why)

        async def start(entry: TrackedJob) -> None:
            pass

        events = RunnerEvents(site.tracker, site.scan, start, lambda _: None)
        for _ in range(3):
            await events.read()
        assert (other.state.name, len(tried)) == ("RUNNING", 3 if why in ("files", "no link", "busy") else 1)
    assert await site.scan.get(KEY) is not None
    await events.read()
    assert site.tracker.entries[KEY].state.name == "RUNNING", "its sign is read as soon as its directory is"


@pytest.mark.parametrize("why", ["no link", "disk", "ticket"])
async def test_a_step_whose_allocation_cannot_be_read_is_not_cancelled(
    site: Site, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    site.write(kind="allocation")
    step = {"kind": "command", "job": None, "step": {"allocation": KEY, "id": "0"}}
    with monkeypatch.context() as patch:
        _break(patch, site.transport, why)
        steps = Steps(cast(Any, site), site.tracker, site.scan, cast(Any, None), cast(Any, None), 10.0)
        entry = await site.track(OTHER, **step)
        for _ in range(8):
            await steps.tend()
        assert (entry.state.name, entry.is_finished) == ("RUNNING", False)
        await steps.stop()
    await steps.tend()
    assert (entry.number, entry.is_finished) == ("7.0", False)


@pytest.mark.parametrize("why", ["disk", "ticket"])
async def test_a_step_that_has_ended_ends_while_its_allocation_cannot_be_read(
    site: Site, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    site.write(kind="allocation")
    _break(monkeypatch, site.transport, why)
    steps = Steps(cast(Any, site), site.tracker, site.scan, cast(Any, None), cast(Any, None), 10.0)
    entry = await site.track(OTHER, kind="command", job=None, step={"allocation": KEY, "id": "0"})
    assert entry.folder is not None
    marker = Path(entry.folder.end_marker(None))
    marker.write_text(json.dumps({"exit_code": 0, "time": NOW}))
    marker.chmod(0o600)
    for _ in range(3):
        await steps.tend()
        site.now += 20
    assert (entry.state.name, entry.is_finished) == ("COMPLETED", True)
    await steps.stop()


# -- after an unknown end, or an outage


@pytest.mark.parametrize("told", ["2-3", "2", ""])
async def test_each_task_of_an_unknown_end_counts_once(site: Site, told: str) -> None:
    entry = await site.track(array=True, array_tasks="0-3")

    def task(index: int, state: str) -> JobRecord:
        return JobRecord(JobId(7, index), JobState(state), submit_time=int(NOW), nodes="n1")

    def waiting(state: str, tasks: str) -> JobRecord:
        return JobRecord(JobId(7), JobState(state), submit_time=int(NOW), tasks=TaskRange.requested(tasks))

    await site.poll(task(0, "RUNNING"), task(1, "RUNNING"), waiting("PENDING", "2-3"))
    rest = [] if not told else [task(2, "CANCELLED")] if told == "2" else [waiting("CANCELLED", told)]
    site.history = [task(0, "COMPLETED"), task(1, "RUNNING"), *rest]
    await site.poll(later=10)
    await site.poll(later=61)
    cancelled = {"2-3": 2, "2": 1, "": 0}[told]
    counts = {"COMPLETED": 1, "UNKNOWN": 3 - cancelled, **({"CANCELLED": cancelled} if cancelled else {})}
    assert (entry.state.name, entry.counts()) == ("UNKNOWN", counts)
    assert entry.record is not None
    assert entry.record.end is not None
    assert entry.record.end.tasks == counts


@pytest.mark.parametrize("which", ["accounting", "queue"])
async def test_the_minute_of_an_unknown_end_begins_again_after_an_outage(
    site: Site, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    entry = await site.track()
    await site.poll(row("RUNNING"))
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    away = ControllerError("It does not answer.")

    async def queue() -> list[JobRecord]:
        raise away

    with monkeypatch.context() as patch:
        for _ in range(2):
            if which == "accounting":
                site.history = away
                await site.poll(later=300)
            else:
                patch.setattr(site, "queue", queue)
                with pytest.raises(ControllerError):
                    await site.poll(later=300)
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    assert not entry.is_finished
    await site.poll(later=61)
    assert entry.state.name == "UNKNOWN"


async def test_a_job_that_the_queue_has_never_shown_is_recognised_after_an_outage_of_accounting(site: Site) -> None:
    entry = await site.track(job={"id": "7"})
    entry.slurm.regain_sight()  # sbatch has just returned the ID
    site.history = ControllerError("Accounting does not answer.")
    await site.poll(later=10)
    site.history = [row("COMPLETED", exit_code=0, end_time=int(NOW) + 5)]
    await site.poll(later=10)
    assert (entry.state.name, entry.exit_code) == ("COMPLETED", 0)


async def test_results_of_a_job_of_an_unknown_end_are_copied_back_at_its_real_end(site: Site) -> None:
    entry = await site.track(stage={"folders": [{"source": "/a", "dest": "/b", "inode": 1}], "seal": "x", "back": None})
    await site.poll(row("RUNNING"))
    due = list[tuple[str, bool]]()
    site.tracker.on_end.append(lambda job: due.append((job.state.name, job.is_copy_back_due)))
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    await site.poll(later=61)
    assert entry.record is not None
    assert entry.folders is not None
    back = ReturnRecord(files=1, bytes=1, left=[], error=None, given_up=False, time=1.0, restarts=entry.restarts)
    entry.record = replace(entry.record, stage=replace(entry.folders, back=back))
    run = entry.runner
    await site.poll(row("RUNNING"), later=10)
    assert entry.runner is not run  # a copy that is under way is of the earlier end
    await site.poll(row("COMPLETED", exit_code=0, end_time=int(NOW)), later=10)
    assert due == [("UNKNOWN", True), ("COMPLETED", True)]


@pytest.mark.parametrize("is_over", [False, True])
async def test_a_copy_under_way_does_not_count_for_a_later_end(
    site: Site, monkeypatch: pytest.MonkeyPatch, *, is_over: bool
) -> None:
    entry = await site.track(stage={"folders": [{"source": "/a", "dest": "/b", "inode": 1}], "seal": "x", "back": None})
    await site.poll(row("RUNNING"))
    site.history = [row("RUNNING")]
    await site.poll(later=10)
    await site.poll(later=61)
    staging = cast(Any, Staging.__new__(Staging))
    staging._tracker = site.tracker

    async def local(stage: object) -> bool:
        return True

    async def copied(*_: object) -> ReturnRecord:
        await site.poll(row("RUNNING"), later=10)
        if is_over:
            await site.poll(row("COMPLETED", exit_code=0, end_time=int(NOW)), later=10)
        return ReturnRecord(files=1, bytes=1, left=[], given_up=False)

    staging._is_local_job, staging._copy_back_folders = local, copied
    await staging._copy_back_all(entry, frozenset())
    assert entry.folders is not None
    assert (entry.folders.back, entry.is_copy_back_due) == (None, is_over)
