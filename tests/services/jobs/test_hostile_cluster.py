"""Tests of answers and files of a cluster or a job that means harm: one job must not hide the others, or hold the agent."""

from __future__ import annotations

import gzip
import io
import json
import tarfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.domain.ids import MAX_TRACKED_TASKS, JobId, TaskRange
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import ParseError, TransportError
from jupyter_slurm.services.event_bus import EventBus
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder, JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs import array_tasks, vanished_tasks
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.runner_events import RunnerEvents
from jupyter_slurm.services.jobs.session_server import SessionStart, read_served
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.sessions.session_launch import Sessions
from jupyter_slurm.services.slurm.rate_limit import TokenBucket
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.local.transport import LocalTransport

NOW = 1_800_000_000.0
KEYS = "20260101-000000-00000001", "20260101-000000-00000002"
ROWS = [[task, "COMPLETED", 0, 0, 5, 6, "n1", ""] for task in range(2)]


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


class Site:
    """A cluster with an array and, after it, another job; the job directories are real ones."""

    def __init__(self, folder: Path, transport: LocalTransport, **array: Any) -> None:
        self.transport, self.rows = transport, [_row(7, 2), _row(8, None)]
        self.singles = TokenBucket(rate=1.0, burst=100)
        self.accounting = SimpleNamespace(history=self._history)
        store = SimpleNamespace(remember=lambda *_: None, forget=lambda *_: None)
        self.tracker = Tracker("c", self, ClusterFolder(str(folder)), store, EventBus(), lambda: NOW)  # type: ignore[arg-type]
        base = {"format": 1, "created": NOW, "argv": [], "events": "e", "outputs": {}, "kind": "script", "script": "s"}
        for number, key, more in ((7, KEYS[0], {"array": True, "array_tasks": "0-2", **array}), (8, KEYS[1], {})):
            (folder / key).mkdir(0o700)
            record = JobRecordFile.from_json({**base, "key": key, **more})
            entry = TrackedJob("c", id=JobId(number), folder=self.tracker.folder.job(key), record=record)
            entry.state, entry.slurm.submitted = JobState("PENDING"), int(NOW)
            self.tracker.add(entry)
        self.array, self.other = (self.tracker.entries[key] for key in KEYS)

    async def queue(self) -> list[JobRecord]:
        return self.rows

    async def describe(self, job: JobId) -> list[JobRecord]:
        return []

    async def _history(self, jobs: object, since: float) -> list[JobRecord]:
        return []

    async def poll(self, state: str) -> str:
        self.rows = [_row(7, 2), _row(8, None, state)]
        await self.tracker.poll()
        return self.other.state.name


def _row(job: int, task: int | None, state: str = "RUNNING") -> JobRecord:
    return JobRecord(JobId(job, task), JobState(state), submit_time=int(NOW), nodes="n1", start_time=1)


def _tasks(*rows: list[Any], **more: Any) -> str:
    return json.dumps({"format": 1, "columns": array_tasks.COLUMNS, "rows": list(rows), **more})


@pytest.mark.parametrize(
    "text",
    [
        _tasks([0, "COMPLETED", 0, 0, "<b>soon</b>", 6, "n1", ""], ROWS[1]),
        _tasks([0, "COMPLETED", 0, 0, 5, 1e300, "n1", ""]),
        _tasks([0, "COMPLETED", "0", 0, 5, 6, "n1", ""]),
        _tasks([0, "COMPLETED", 0, [], 5, 6, "n1", ""]),
        _tasks([0, ["COMPLETED"], 0, 0, 5, 6, "n1", ""]),
        _tasks([0, "COMPLETED", 0, 0, 5, 6, {"n1": 1}, ""]),
        _tasks([0, "COMPLETED", 0, 0, 5, 6, "n" * 20_000, ""]),
        _tasks([-1, "COMPLETED", 0, 0, 5, 6, "n1", ""]),
        _tasks([True, "COMPLETED", 0, 0, 5, 6, "n1", ""]),
        _tasks(*ROWS).replace("6", "NaN"),
        _tasks(*ROWS).replace("6", "1e400"),
        "[]",
        '"rows"',
    ],
)
async def test_a_file_of_tasks_with_other_types_is_dropped_and_hides_no_job(
    transport: LocalTransport, tmp_path: Path, text: str
) -> None:
    site = Site(tmp_path, transport)
    (tmp_path / KEYS[0] / "tasks.json").write_text(text)
    assert [await site.poll(state) for state in ("PENDING", "RUNNING", "COMPLETED")] == [
        *("PENDING", "RUNNING", "COMPLETED")
    ]
    assert sorted(site.array.slurm.tasks) == [2]


async def test_the_ends_in_a_file_of_tasks_are_loaded(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, transport)
    (tmp_path / KEYS[0] / "tasks.json").write_text(_tasks([0, "FAILED", 3, None, None, 6.5, None, None], ROWS[1]))
    await site.poll("RUNNING")
    rows = site.array.slurm.tasks
    assert {task: (row.state.name, row.exit_code, row.end_time) for task, row in rows.items() if task < 2} == {
        0: ("FAILED", 3, 6),
        1: ("COMPLETED", 0, 6),
    }


@pytest.mark.parametrize("part", ["_apply_session_end", "_after_change", "_ended_by_marker"])
async def test_an_error_about_one_job_hides_no_other(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    site = Site(tmp_path, transport)
    own = getattr(site.tracker, part)

    async def fail(entry: TrackedJob, *args: Any, **more: Any) -> Any:
        if entry is site.array:
            raise TypeError("the end is a text")
        return await own(entry, *args, **more)

    monkeypatch.setattr(site.tracker, part, fail)
    assert await site.poll("RUNNING") == "RUNNING"
    site.rows = [_row(8, None, "COMPLETED")]
    await site.tracker.poll()
    assert site.other.state.name == "COMPLETED"


@pytest.mark.parametrize("tasks", ["0-4294967000", "0-4000000", "0-2000000,0-2000000:2"])
async def test_an_array_of_too_many_tasks_hides_no_job(transport: LocalTransport, tmp_path: Path, tasks: str) -> None:
    site = Site(tmp_path, transport, array_tasks=tasks)
    (tmp_path / KEYS[0] / "tasks.json").write_text(_tasks(*ROWS))
    begun = time.process_time()
    assert [await site.poll(state) for state in ("PENDING", "RUNNING", "COMPLETED")][-1] == "COMPLETED"
    assert time.process_time() - begun < 1.0
    assert sorted(site.array.slurm.tasks) == [0, 1, 2]
    site.array.slurm.rest = [JobRecord(JobId(7), JobState("PENDING"), tasks=TaskRange.parse("0-4294967000"))] * 3
    assert len((await array_tasks.tasks_to_api(transport, site.array, parameters=False))["rows"]) == 3


def test_rows_of_many_ranges_hold_the_agent_for_a_moment_only() -> None:
    with pytest.raises(ParseError, match="150000 ranges"):
        TaskRange.parse(",".join(str(task) for task in range(0, 300_000, 2)))
    ranges = TaskRange.parse(",".join(str(task) for task in range(100_001, 139_999, 2)))
    rows = [JobRecord(JobId(7), JobState("PENDING"), tasks=ranges)] * 50
    entry = cast(Any, SimpleNamespace(slurm=SimpleNamespace(tasks={}, vanished={}, rest=[])))
    entry.all_tasks = TaskRange.parse("0-9999")
    job = TrackedJob("c", id=JobId(7))
    job.slurm.vanished = dict.fromkeys(range(10_000), 0.0)
    begun = time.process_time()
    assert len(vanished_tasks._unlisted(entry, rows)) == 10_000
    job.slurm.take_rows(rows)
    assert len(job.slurm.vanished) == 10_000
    assert time.process_time() - begun < 1.0


# -- archives of end markers


def _archive(*members: tuple[tarfile.TarInfo, bytes], form: int = tarfile.GNU_FORMAT) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w", format=form) as archive:
        folder = tarfile.TarInfo(".")
        folder.type, folder.mode, folder.uid = tarfile.DIRTYPE, 0o700, 1000
        archive.addfile(folder)
        for member, content in members:
            archive.addfile(member, io.BytesIO(content))
    return made.getvalue()


def _end(name: str = "end.1.json", content: bytes = b"", **more: Any) -> tuple[tarfile.TarInfo, bytes]:
    member = tarfile.TarInfo(name)
    content = content or json.dumps({"exit_code": 0, "time": 5.0}).encode()
    member.mode, member.uid, member.size = 0o600, 1000, len(content)
    for field, value in more.items():
        setattr(member, field, value)
    return member, content


class Liar:
    """Transport of a cluster that lists small end markers, and sends the given archive."""

    def __init__(self, archive: bytes) -> None:
        self._archive = archive

    async def list_dir(self, path: str) -> list[str]:
        return ["end.1.json", "end.2.json"]

    async def stat_all(self, paths: list[str]) -> dict[str, Any]:
        return {path: SimpleNamespace(size=20) for path in paths}

    async def run(self, argv: list[str], stdin: bytes = b"") -> Any:
        return SimpleNamespace(exit_code=0, stdout=self._archive, stderr=b"")


async def _markers(archive: bytes) -> list[int]:
    entry = TrackedJob("c", id=JobId(7), folder=JobFolder("/j/a"))
    return sorted(await array_tasks.read_markers(cast(Transport, Liar(archive)), entry, {1, 2}))


async def test_end_markers_of_an_archive_are_read() -> None:
    assert await _markers(_archive(_end(), _end("end.2.json"))) == [1, 2]
    huge = {"uid": 3_000_000_000}
    assert await _markers(_archive(_end(**huge), _end("end.2.json"))) == [2]  # of another user
    assert await _markers(_archive(_end(**huge), _end("end.2.json"), form=tarfile.PAX_FORMAT)) == [2]
    assert await _markers(_archive(_end(mode=0o602), _end("end.2.json"))) == [1, 2]  # the folder lets no other user in


async def test_an_empty_answer_is_no_archive_without_files() -> None:
    with pytest.raises(TransportError, match="the answer is empty"):
        await _markers(b"")


async def test_what_was_not_asked_for_is_left_out_of_an_archive() -> None:
    sparse = {"GNU.sparse.major": "0", "GNU.sparse.minor": "1", "GNU.sparse.size": str(1 << 40)}
    sparse |= {"GNU.sparse.map": f"{1 << 40},0"}
    others = [_end("x"), _end("end.3.json"), _end("../end.1.json"), _end("end.1.json", type=tarfile.SYMTYPE, size=0)]
    others += [_end("end.1.json", b"0" * 70_000), _end("end.1.json", b"[]"), _end("end.1.json")]
    assert await _markers(_archive(*others, _end("end.2.json"))) == [2]
    bomb = _archive(_end(content=b"\n", pax_headers=sparse), _end("end.2.json"), form=tarfile.PAX_FORMAT)
    assert await _markers(bomb) == [2]
    for damaged in (gzip.compress(_archive(_end())), _archive(_end())[:1040], b"x" * 600):
        with pytest.raises(TransportError, match="could not be read"):
            await _markers(damaged)


async def test_an_extended_header_holds_the_agent_for_a_moment_only() -> None:
    long = {"comment": "1" * 200_000}
    begun = time.process_time()
    assert await _markers(_archive(_end(pax_headers=long), form=tarfile.PAX_FORMAT)) == [1]
    assert time.process_time() - begun < 1.0


# -- job.json and served.json


@pytest.mark.parametrize(
    "more",
    [
        '"created": NaN',
        '"created": 1e400',
        '"created": 1, "end": {"state": "FAILED", "end_time": -Infinity}',
        f'"created": {"9" * 30}',
        '"created": 1, "part": {"of": "20260101-000000-00000001", "tasks": "x", "size": 2, "numbers": [0], "number": 0}',
        '"created": 1, "part": {"of": "20260101-000000-00000001", "tasks": "0-1", "size": 2, "numbers": [9], "number": 9}',
        '"created": 1, "part": {"of": "20260101-000000-00000001", "tasks": "0-4000000000", "size": 2, '
        '"numbers": [0], "number": 0}',
    ],
)
async def test_a_record_with_nonsense_hides_no_other_job(transport: LocalTransport, tmp_path: Path, more: str) -> None:
    site = Site(tmp_path, transport)
    tracker = site.tracker
    tracker.entries.clear()
    for key, fields in zip(KEYS, (more, '"created": 1'), strict=True):
        text = (
            f'"format": 1, "key": "{key}", "kind": "script", "script": "s", "argv": [], "outputs": {{}}, "events": ""'
        )
        (tmp_path / key / "job.json").write_text(f"{{{text}, {fields}}}")
    folder = tracker.folder.job(KEYS[0])
    with pytest.raises(ParseError):
        await folder.load(transport)
    tracker.store.finished = _no_rows  # type: ignore[method-assign]
    await JobDirectoryScan(tracker).refresh()
    assert list(tracker.entries) == [KEYS[1]]


async def _no_rows(name: str) -> dict[str, object]:
    return {}


async def test_a_record_has_inodes_of_64_bits_and_paths_of_any_bytes(transport: LocalTransport, tmp_path: Path) -> None:
    folder = tmp_path / KEYS[0]
    folder.mkdir(0o700)
    part = {"of": KEYS[0], "tasks": "0-3", "size": 2, "numbers": [0, 1], "number": 1}
    record = {
        "format": 1,
        "key": KEYS[0],
        "kind": "script",
        "created": 1.5,
        "script": "s",
        "argv": ["NAME"],
        "part": part,
    }
    record |= {"outputs": {}, "events": "", "folders": [{"source": "/a", "dest": "/b", "inode": 2**64 - 1}]}
    (folder / "job.json").write_bytes(json.dumps(record).encode().replace(b"NAME", b"\xff"))
    found = await JobFolder(str(folder)).load(transport)
    assert (found.argv, found.part and found.part.number) == (["\udcff"], 1)
    assert str(2**64 - 1) in json.dumps(found.to_json())


@pytest.mark.parametrize(
    "text",
    [
        '["stage"]',
        '"stage"',
        "5",
        '{"stage": "x", "restarts": "y"}',
        '{"port": 1, "nodes": "n", "gpus": 0, "time": "nan", "server": "j", "version": "1", "restarts": 0}',
        '{"port": 1, "nodes": "n", "gpus": "0", "time": 1, "server": "j", "version": "1", "restarts": 0}',
        '{"port": 1, "nodes": "n", "gpus": 0, "time": 1, "server": "j", "version": "1", "restarts": 0, "warnings": 5}',
    ],
)
async def test_a_note_of_a_session_with_other_types_is_none(
    transport: LocalTransport, tmp_path: Path, text: str
) -> None:
    folder = tmp_path / KEYS[0]
    folder.mkdir(0o700)
    (folder / "served.json").write_text(text)
    assert await read_served(transport, JobFolder(str(folder))) == SessionStart()


async def test_a_sign_that_fails_stops_no_other(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, transport)
    (tmp_path / "events").mkdir(0o700)
    for key in KEYS:
        (tmp_path / "events" / f"{key}.started").touch()
    started: list[str | None] = []

    async def start(entry: TrackedJob) -> None:
        started.append(entry.key)
        if entry is site.array:
            raise TypeError("the note is a list")

    events = RunnerEvents(site.tracker, JobDirectoryScan(site.tracker), start, lambda _: None)
    for _ in range(2):
        await events.read()
    assert sorted(filter(None, started)) == list(KEYS)
    assert site.other.state.name == "RUNNING"


async def test_a_session_that_fails_stops_no_other(transport: LocalTransport, tmp_path: Path) -> None:
    site = Site(tmp_path, transport)
    session = {"kind": "session", "session": {"base_url": "/"}}
    for entry in (site.array, site.other):
        assert entry.record is not None
        entry.record = JobRecordFile.from_json({**entry.record.to_json(), **session})
    tended: list[TrackedJob] = []

    async def tend(cluster: object, entry: TrackedJob, key: str) -> None:
        tended.append(entry)
        raise AttributeError("the note is a list")

    await Sessions.tend(cast(Sessions, SimpleNamespace(_tend_session=tend)), cast(Any, site))
    assert tended == [site.array, site.other]


def test_the_largest_array_is_followed_task_by_task() -> None:
    job = TrackedJob("c", record=JobRecordFile.from_json({"kind": "script", "array_tasks": "0-199999"}))
    assert job.all_tasks is not None
    assert job.all_tasks.count() == MAX_TRACKED_TASKS
