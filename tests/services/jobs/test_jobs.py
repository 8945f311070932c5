"""Tests of following, finding, cancelling and cleaning jobs."""

import asyncio
import base64
import contextlib
import errno
import json
import os
import re
import socket
import sqlite3
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.domain.advice.reasons import is_held_reason
from jupyter_slurm.errors import CommandMissing, JobError, JobNotFound, Throttled, TransportError, UsageError
from jupyter_slurm.services.clusters import housekeeping
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobs.directory_scan import JobDirectoryScan
from jupyter_slurm.transport.local.files import mapped_errors

pytestmark = pytest.mark.slurm


def index_path(folder):
    return folder / "state" / f"index-{socket.gethostname()}.sqlite"


async def test_output_comes_while_the_job_runs(desk):
    cell = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('last')"
    job = await desk.submit(cell)
    seen, states = b"", []
    async with asyncio.timeout(60):
        async for event, data in desk.core.cluster(desk.id).results.stream(job["key"], {"stdout": 0, "stderr": 0}):
            if event == "output":
                assert data["offset"] == len(seen)
                seen += base64.b64decode(data["data"])
            if event == "job":
                states.append(data["state"])
            if seen == b"first\n":
                assert "COMPLETED" not in states
                Path(desk.folder, "go").touch()
    assert seen == b"first\nlast\n"
    assert states[0] == "PENDING"
    assert states[-1] == "COMPLETED"


async def test_stream_goes_on_where_the_listener_was(desk):
    job = await desk.submit("print('0123456789')")
    await desk.finished(job["key"])
    parts = [
        d
        async for e, d in desk.core.cluster(desk.id).results.stream(job["key"], {"stdout": 4, "stderr": 0})
        if e == "output"
    ]
    assert base64.b64decode(parts[0]["data"]) == b"456789\n"
    parts = [
        d
        async for e, d in desk.core.cluster(desk.id).results.stream(job["key"], {"stdout": -3, "stderr": 0})
        if e == "output"
    ]
    assert (parts[0]["offset"], base64.b64decode(parts[0]["data"])) == (8, b"89\n")


async def test_output_by_parts_and_from_the_end(desk):
    job = await desk.submit("import sys\nsys.stdout.buffer.write(bytes(range(256)));")
    await desk.finished(job["key"])
    assert await desk.core.cluster(desk.id).results.output(job["key"], "stdout", 250, 3) == (
        bytes([250, 251, 252]),
        256,
    )
    assert await desk.core.cluster(desk.id).results.output(job["key"], "stdout", -2, None) == (bytes([254, 255]), 256)
    assert await desk.core.cluster(desk.id).results.output(job["key"], "stdout", 9999, None) == (b"", 256)


async def test_cancelled_pending_job_is_told_at_once(desk):
    job = await desk.submit("#!/bin/sh\nsleep 600\n", "--hold")
    ended = await desk.core.cluster(desk.id).actions.cancel(job["id"])
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("CANCELLED", None, None)
    assert ended["finished"]


@pytest.mark.parametrize("text", ["raise SystemExit(3)", "#!/bin/sh\nexit 3\n"])
async def test_requeued_job_is_not_over(desk, text):
    job = await desk.submit(text)
    assert (await desk.finished(job["key"]))["state"] == "FAILED"
    subprocess.run(["scontrol", "requeuehold", job["id"]], env=desk.env, check=True)
    async with asyncio.timeout(60):
        while (await desk.job(job["key"]))["finished"]:
            await desk.core.cluster(desk.id).jobs.list_jobs(active=False)
            await asyncio.sleep(0.5)
    again = await desk.job(job["key"])
    assert (again["state"], again["exit_code"]) == ("PENDING", None)
    assert (await desk.core.housekeeping.clean(older_than_days=0))["removed"] == []
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_a_job_that_prints_is_running(desk):
    """The queue is queried every ten seconds; files in the job directory are seen at once."""
    job = await desk.submit("#!/bin/sh\necho hello\nuntil [ -e go ]; do sleep 0.1; done\n")
    printed, state = False, ""
    async for event, data in desk.core.cluster(desk.id).results.stream(job["key"], {}):
        printed, state = printed or event == "output", data["state"] if event == "job" else state
        if printed and state == "RUNNING":  # the queue may have been queried just before
            break
    Path(desk.folder, "go").touch()
    assert (await desk.finished(job["key"]))["state"] == "COMPLETED"


@pytest.mark.here_only("what is asked is the same everywhere")
async def test_jobs_of_others_hands_have_their_names(desk):
    """Also names that would break a row; they are queried once, not with every list.

    A client with an empty list receives the jobs, with names, without a query.
    """
    for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True):
        await desk.core.cluster(desk.id).actions.cancel(job["key"] or job["id"])
        await desk.finished(job["key"] or job["id"])
    names, unheard = ["hand made", "a\nb|c"], {"hand made", "a\nb|c"}
    watcher = desk.core.cluster(desk.id).poller
    async with desk.core.bus.subscribe() as events, asyncio.timeout(60):
        for name in names:
            command = ["sbatch", "--hold", "--output=/dev/null", f"--job-name={name}", "--wrap", "true"]
            subprocess.run(command, env=desk.env, check=True, stdout=subprocess.DEVNULL)
        async for event, data in events:
            unheard -= {data["name"]} if event == "job" else set()
            if not unheard:
                break
        watcher.interval = 300.0  # as after a long time without changes
        assert watcher.status()["interval"] <= 30, "only the queue tells of them, and somebody looks"
    watcher.interval = 300.0
    assert watcher.status()["interval"] == 300
    assert {job["name"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True)} >= set(names)
    for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=True):
        if job["name"] in names:
            await desk.core.cluster(desk.id).actions.cancel(job["id"])


async def test_what_slurm_says_of_an_end_holds_against_the_runner(cluster, open_desk, tmp_path):
    """The runner's marker comes first; only Slurm reports killed processes and later events."""
    async with open_desk(cluster, tmp_path) as desk:
        asked = desk.asked("pass")
        folder = Path(desk.root)
        marker = {"format": 1, "job": "", "task": None, "exit_code": 0, "time": 1.0, "restarts": 0}
        asked["text"] = (
            f"import json, os, time\nopen({str(folder / asked['key'] / 'end.json')!r}, 'w').write({json.dumps(marker)!r})\n"
            f"open({str(folder / 'events' / asked['key'])!r} + '.ended', 'w').close()\n"
            "while not os.path.exists('go'): time.sleep(0.05)\nos._exit(137)"
        )
        job = await desk.core.cluster(desk.id).submit(asked)
        told = await desk.until(job["key"], lambda j: j["finished"])
        assert (told["state"], told["exit_code"]) == ("COMPLETED", 0)
        Path(desk.folder, "go").touch()
        told = await desk.until(job["key"], lambda j: j["state"] == "FAILED")
        assert told["exit_code"] == 137
    async with open_desk(cluster, tmp_path) as desk:
        told = await desk.job(job["key"])
        assert (told["state"], told["exit_code"]) == ("FAILED", 137)


async def test_many_cancellations_do_not_wait_in_line(desk):
    jobs = [await desk.submit("#!/bin/sh\ntrue\n", "--hold") for _ in range(12)]
    async with asyncio.timeout(9):  # a seventh query would wait ten seconds
        for job in jobs:
            await desk.core.cluster(desk.id).actions.cancel(job["key"])


@pytest.mark.here_only("a PATH of this machine leads nowhere there")
async def test_commands_are_found_on_a_mended_path(cluster, open_desk, tmp_path):
    async with open_desk(cluster, tmp_path) as desk:
        await desk.core.clusters.register(str(cluster.slurm_conf), "/nowhere")
        with pytest.raises(CommandMissing):
            await desk.submit("#!/bin/sh\ntrue\n", "--hold")
        await desk.core.clusters.register(str(cluster.slurm_conf), desk.env["PATH"])
        job = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
        await desk.core.cluster(desk.id).actions.cancel(job["key"])


@pytest.mark.here_only("commands like any other, which are tried there")
async def test_many_jobs_are_cancelled_by_few_commands_with_a_stop_also_if_the_caller_goes_away(desk, monkeypatch):
    """More jobs than the rate limit allows commands, all of a terminal; the caller is a page that is loaded again."""
    by_hand = "for i in $(seq 300); do sbatch --parsable --hold -o /dev/null --wrap true; done"
    jobs = subprocess.check_output(["sh", "-c", by_hand], env=desk.env, cwd="/", text=True).split()
    assert len(jobs) == 300
    await desk.until(jobs[-1], lambda j: j["state"] == "PENDING")
    of = desk.core.cluster(desk.id)
    run, commands, may_run = of.client.act, [], asyncio.Event()

    async def counted(argv):
        commands.append(argv)
        await may_run.wait()
        return await run(argv)

    async def pending():
        listed = await of.client.query(["squeue", "--noheader", "--states=PENDING", "--format=%i"])
        return set(jobs) & set(listed.decode().split())

    async def begin():
        commands.clear()
        may_run.clear()
        asked = asyncio.create_task(of.actions.act("cancel", jobs))
        while not commands:
            await asyncio.sleep(0)
        return asked

    async def is_over():
        async with asyncio.timeout(60):
            while any(each["state"] in ("running", "stopping") for each in of.actions.progress.list_to_api()):
                await asyncio.sleep(0.1)

    monkeypatch.setattr(of.client, "act", counted)
    asked = await begin()
    (shown,) = of.actions.progress.list_to_api()
    assert [shown[name] for name in ("act", "state", "total", "done", "failed")] == ["cancel", "running", 300, 0, 0]
    assert of.actions.progress.stop(shown["id"])["state"] == "stopping"
    may_run.set()
    left = {each["job"]: each["error"]["detail"] for each in await asked if each["error"]}
    assert set(left) == await pending()
    assert 0 < len(left) < 300
    assert set(left.values()) == {f"Job {job} was not cancelled: the action was stopped." for job in left}
    assert of.actions.progress.list_to_api() == []  # the caller has the answer
    with pytest.raises(JobError, match="has ended"):
        of.actions.progress.stop(shown["id"])

    (await begin()).cancel()
    (shown,) = of.actions.progress.list_to_api()
    of.actions.progress.stop(shown["id"])
    may_run.set()
    await is_over()
    left = await pending()
    (told,) = of.actions.progress.list_to_api()  # nobody has the answer
    assert (told["state"], told["total"] - told["done"]) == ("stopped", len(left))
    of.actions.progress.stop(told["id"])
    assert of.actions.progress.list_to_api() == []

    (await begin()).cancel()
    may_run.set()
    await is_over()
    assert (await pending(), of.actions.progress.list_to_api()) == (set(), [])
    await desk.until(jobs[0], lambda j: j["state"] == "CANCELLED")
    assert {argv[0] for argv in commands} == {"scancel"}
    assert len(commands) < 20  # a slow Slurm has fewer jobs in a command


@pytest.mark.here_only("commands like any other, which are tried there")
async def test_jobs_are_acted_on_together_and_each_has_its_answer(desk, monkeypatch):
    sleep, later = "#!/bin/sh\nsleep 600\n", "--begin=now+1hour"
    running = (await desk.submit("import time\ntime.sleep(600)"))["id"]
    over = (await desk.submit("pass"))["id"]
    waiting = (await desk.submit(sleep, later))["id"]
    array = (await desk.submit(sleep, later, "--array=0-3"))["id"]
    await desk.until(running, lambda j: j["state"] == "RUNNING")
    await desk.finished(over)
    query = ["squeue", "-h", "--states=all", "--jobs", over, "-o", "%T"]  # the runner reports an end before Slurm
    async with asyncio.timeout(60):
        while "COMPLETING" in subprocess.check_output(query, env=desk.env, text=True):
            await asyncio.sleep(0.2)
    client = desk.core.cluster(desk.id).client
    run, commands = client.act, []

    async def counted(argv):
        commands.append(argv[0])
        return await run(argv)

    monkeypatch.setattr(client, "act", counted)

    async def act(what, *jobs, time_limit=None):
        client.singles.return_tokens(client.singles._burst)  # the poller has asked for files of other jobs
        answers = {each["job"]: each for each in await desk.core.cluster(desk.id).actions.act(what, jobs, time_limit)}
        assert tuple(answers) == jobs
        said = {job: each["error"] and each["error"]["detail"] for job, each in answers.items()}
        return said, {job: each["now"] for job, each in answers.items()}

    by_hand = ["sbatch", "--parsable", later, "-o", "/dev/null", "--wrap", "true"]
    others = [subprocess.check_output(by_hand, env=desk.env, text=True).strip() for _ in range(3)]
    for other in others:
        await desk.until(other, lambda j: j["state"] == "PENDING")
    for other in others:  # as listed by the queue
        desk.core.cluster(desk.id).tracker.find(other).slurm.described = False
    client.named.reserve(client.named._burst)  # no further query about a known job is available
    async with asyncio.timeout(15):  # the first query would wait twenty seconds
        assert (await act("hold", *others))[0] == dict.fromkeys(others)
    client.named.return_tokens(client.named._burst)
    part = f"{others[0]}.0"
    for name in (f"{others[0]}x", f"{others[0]}_1-3"):  # an invalid id matches no job, in particular not more jobs
        assert (await act("cancel", name))[0][name].startswith("There is no job")
    assert (await act("hold", part))[0] == {part: f"{part} is only a part of job {others[0]}."}
    await act("cancel", part)  # the step does not exist, and Slurm may report that
    assert (await desk.job(others[0]))["state"] == "PENDING"
    commands.clear()

    said, now = await act("hold", waiting, array, over, "999999")
    assert (said[waiting], said[array], said[over]) == (None, None, f"Job {over} has ended (COMPLETED).")
    assert said["999999"].startswith("You have no job 999999.")
    assert {now[job]["reason"] for job in (waiting, array)} < {"JobHeldUser", "JobHeldAdmin"}
    said, now = await act("release", waiting, array)
    assert set(said.values()) == {None}
    assert "Held" not in now[waiting]["reason"] + now[array]["reason"]
    said, now = await act("limit", waiting, array, over, time_limit="19:30")
    assert said == {waiting: None, array: None, over: f"Job {over} has ended (COMPLETED)."}
    for job in (waiting, array):  # Slurm counts minutes; the limit of a job that was only listed is known later
        await desk.until(job, lambda told: told["time_limit"] == 1200)
    for what, limit in (("limit", None), ("limit", "0:00"), ("limit", "long"), ("hold", "20")):
        with pytest.raises(UsageError):
            await act(what, waiting, time_limit=limit)
    for what, then in (("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        said, now = await act(what, running, over)
        assert said == {running: None, over: f"Job {over} has ended (COMPLETED)."}
        assert now[running]["state"] == then
    client.singles.reserve(client.singles._burst)  # no query about a single job is available: the queue shows it
    for what, then in (("suspend", "SUSPENDED"), ("resume", "RUNNING")):
        answer = (await desk.core.cluster(desk.id).actions.act(what, (running,)))[0]
        assert answer["now"]["state"] == (await desk.job(running))["state"] == then
    assert (await act("suspend", waiting))[0][waiting].startswith(f"Job {waiting} was not suspended: ")
    said, now = await act("requeuehold", over)
    assert said == {over: None}
    assert now[over]["state"] in ("PENDING", "COMPLETING")  # its node may still be cleaning up
    await desk.until(over, lambda told: told["state"] == "PENDING" and is_held_reason(told["reason"]))
    said, now = await act("requeue", running, waiting, over)  # Slurm itself refuses one of them
    pending = "was not requeued: Job is pending execution."
    assert said == {running: None, waiting: f"Job {waiting} {pending}", over: f"Job {over} {pending}"}
    said, now = await act("cancel", f"{array}_3")
    assert (said, now[f"{array}_3"]["state"]) == ({f"{array}_3": None}, "CANCELLED")
    said, now = await act("cancel", running, waiting, array, over, *others)
    assert set(said.values()) == {None}
    assert commands == [*["scontrol"] * 10, "scancel", "scancel"]
    argv = ["squeue", "-h", "--states=all", "--jobs", ",".join(now), "-o", "%T"]
    states = subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout.split()
    assert set(states) <= {"CANCELLED", "COMPLETING"}


async def test_cancelled_running_job(desk):
    job = await desk.submit("import time\ntime.sleep(600)")
    await desk.until(job["key"], lambda j: j["state"] == "RUNNING")
    await desk.core.cluster(desk.id).actions.cancel(job["key"])
    ended = await desk.finished(job["key"])
    assert (ended["state"], ended["exit_code"], ended["signal"]) == ("CANCELLED", None, 15)


async def test_any_job_of_the_user_is_adopted(desk):
    argv = ["sbatch", "--parsable", "-J", "by hand", "-o", f"{desk.folder}/%j.log", "--wrap", "echo by hand; sleep 1"]
    number = subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout.strip()
    job = await desk.job(number)
    assert (job["key"], job["name"]) == (None, "by hand")
    ended = await desk.finished(number)
    assert ended["state"] == "COMPLETED"
    assert await desk.text(number) == "by hand\n"
    assert b"echo by hand" in await desk.core.cluster(desk.id).results.script(number)


@pytest.mark.parametrize("reference", ["999999", "no", "../../etc", "20260101-000000-00000000", "1_[0-99999999]", ""])
async def test_unknown_job_is_not_found(desk, reference):
    with pytest.raises(JobNotFound):
        await desk.job(reference)


async def test_jobs_are_found_again_by_a_new_core(cluster, open_desk, tmp_path):
    async with open_desk(cluster, tmp_path) as desk:
        done = await desk.submit("print('done')")
        await desk.finished(done["key"])
        waiting = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
    async with open_desk(cluster, tmp_path) as desk:
        keys = {job["key"]: job["state"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)}
        assert keys[done["key"]] == "COMPLETED"
        assert keys[waiting["key"]] == "PENDING"
        assert await desk.text(done["key"]) == "done\n"
        assert [j["key"] for j in await desk.core.cluster(desk.id).jobs.list_jobs(active=True) if j["key"]] == [
            waiting["key"]
        ]
        await desk.core.cluster(desk.id).actions.cancel(waiting["key"])


async def test_index_may_be_damaged_or_gone(cluster, open_desk, tmp_path):
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit("print(1)")
        await desk.finished(job["key"])
    index_path(tmp_path).write_bytes(b"this is not a database" * 100)
    async with open_desk(cluster, tmp_path) as desk:
        assert (await desk.job(job["key"]))["state"] == "COMPLETED"


@pytest.mark.here_only("the index is on this machine")
@pytest.mark.parametrize("row", ["{", "[]", '{"format": 1}', '"job": {"id": "banana"}', '"end": {"state": 5}'])
async def test_damaged_row_of_the_index_is_read_from_the_folder(cluster, open_desk, tmp_path, row):
    async with open_desk(cluster, tmp_path) as desk:
        jobs = [await desk.submit("print(1)") for _ in range(2)]
        for job in jobs:
            await desk.finished(job["key"])
    record = json.loads(Path(jobs[0]["folder"], "job.json").read_text())
    damaged = json.dumps({**record, **json.loads(f"{{{row}}}")}) if row[0] == '"' else row
    with contextlib.closing(sqlite3.connect(index_path(tmp_path))) as index, index:
        index.execute("update job set record = ? where key = ?", (damaged, jobs[0]["key"]))
    async with open_desk(cluster, tmp_path) as desk:
        states = {job["key"]: job["state"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)}
        assert [states[job["key"]] for job in jobs] == ["COMPLETED", "COMPLETED"]


@pytest.mark.here_only("the folder is read as any other, which is tried there")
@pytest.mark.parametrize("broken", ["job.json is a folder", "nobody may read it", "no job.json"])
async def test_broken_folder_does_not_hide_the_others(cluster, open_desk, tmp_path, broken):
    async with open_desk(cluster, tmp_path) as desk:
        jobs = [await desk.submit("print(1)") for _ in range(2)]
        for job in jobs:
            await desk.finished(job["key"])
    index_path(tmp_path).unlink()
    record = Path(jobs[0]["folder"], "job.json")
    record.unlink()
    if broken == "job.json is a folder":
        record.mkdir()
    elif broken == "nobody may read it":
        record.symlink_to(record)
    async with open_desk(cluster, tmp_path) as desk:
        assert jobs[1]["key"] in [job["key"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)]
        with pytest.raises(JobNotFound):
            await desk.job(jobs[0]["key"])
        await desk.submit("print(1)", "--hold")


@pytest.mark.here_only("a second agent on this machine")
async def test_job_that_the_queue_shows_before_its_folder_is_listed_once(cluster, open_desk, tmp_path, monkeypatch):
    async with open_desk(cluster, tmp_path) as one, open_desk(cluster, tmp_path) as two:
        scan, blind = JobDirectoryScan.refresh, one.core.cluster(one.id).scan
        other = two.core.cluster(two.id)

        async def refresh(self):
            if self is blind:
                await scan(self)

        monkeypatch.setattr(JobDirectoryScan, "refresh", refresh)
        job = await one.submit("print(1)", "--hold")
        await other.tracker.poll()
        assert other.tracker.find(job["id"]).folder is None
        subprocess.run(["scontrol", "release", job["id"]], env=one.env, check=True)
        await one.finished(job["key"])
        monkeypatch.setattr(JobDirectoryScan, "refresh", scan)
        await other.scan.refresh()
        listed = await other.jobs.list_jobs(active=False)
        assert [entry["key"] for entry in listed if entry["id"] == job["id"]] == [job["key"]]


@pytest.mark.here_only("the errors are those of this machine")
async def test_folder_that_could_not_be_read_for_a_moment_is_read_later(cluster, open_desk, tmp_path, monkeypatch):
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit("print(1)")
        await desk.finished(job["key"])
    index_path(tmp_path).unlink()
    load, is_exhausted = JobFolder.load, True

    async def load_unless_exhausted(self, transport):
        if is_exhausted:
            with mapped_errors("read", self.path):
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return await load(self, transport)

    monkeypatch.setattr(JobFolder, "load", load_unless_exhausted)
    async with open_desk(cluster, tmp_path) as desk:
        listed = await desk.core.cluster(desk.id).jobs.list_jobs(active=False)
        assert job["key"] not in [entry["key"] for entry in listed]
        with pytest.raises(TransportError, match="Too many open files"):
            await desk.job(job["key"])
        is_exhausted = False
        await desk.core.cluster(desk.id).scan.refresh()  # as the next poll does
        listed = await desk.core.cluster(desk.id).jobs.list_jobs(active=False)
        assert job["key"] in [entry["key"] for entry in listed]


async def test_what_a_dead_agent_left_half_made_is_cleaned_away_when_it_is_old(desk):
    job = await desk.submit("print(1)")
    await desk.finished(job["key"])
    root = Path(job["folder"]).parent
    fresh, old = root / ".20260101-000000-0123456789abcdef.00000000", root / "20260101-000000-0123456789abcdee"
    draft = root / ".20260101-000000-0123456789abcdec.00000000"
    for folder in (fresh, old, draft):
        folder.mkdir()
        (folder / "cell.sh").touch()
        if folder is not fresh:
            os.utime(folder, (1e9, 1e9))
    on_its_way, cut_off, foreign = (root / f".{name}.tmp" for name in ("0" * 16, "f" * 16, "of-somebody-else"))
    for file in (on_its_way, cut_off, foreign):
        file.touch()
        if file is not on_its_way:
            os.utime(file, (1e9, 1e9))
    (await desk.core.cluster(desk.id).jobs.list_jobs(active=False))
    removed = (await desk.core.housekeeping.clean(older_than_days=1))["removed"]
    assert sorted(removed) == sorted(map(str, (old, draft, cut_off)))
    left = {path.name for path in root.iterdir() if path.is_dir()}
    assert left >= {"events", fresh.name, Path(job["folder"]).name}
    assert not left & {old.name, draft.name}
    assert (on_its_way.exists(), foreign.exists()) == (True, True)


@pytest.mark.here_only("the folder is read as any other, which is tried there")
@pytest.mark.parametrize(
    "torn",
    [
        '{"format": 1, "key": ',
        "[" * 100_000,
        '{"format": 1}',
        '"job": "not an object"',
        '"job": {"id": "banana"}',
        '"job": {}',
        '"end": "COMPLETED"',
        '"created": "yesterday"',
        '"script": "../../../etc/passwd"',
        '"key": "20260101-000000-00000000"',
        '"format": 2',
    ],
)
async def test_torn_record_does_not_stop_the_others(cluster, open_desk, tmp_path, torn):
    async with open_desk(cluster, tmp_path) as desk:
        jobs = [await desk.submit("print(1)") for _ in range(2)]
        for job in jobs:
            await desk.finished(job["key"])
    index_path(tmp_path).unlink()
    path = Path(jobs[0]["folder"], "job.json")
    path.write_text(
        json.dumps({**json.loads(path.read_text()), **json.loads(f"{{{torn}}}")}) if torn[0] == '"' else torn
    )
    async with open_desk(cluster, tmp_path) as desk:
        assert (await desk.job(jobs[1]["key"]))["state"] == "COMPLETED"
        with pytest.raises(JobNotFound):
            await desk.job(jobs[0]["key"])


async def test_only_old_finished_jobs_are_cleaned_away(desk):
    old = await desk.submit("print(1)")
    await desk.finished(old["key"])
    kept = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
    assert (await desk.core.housekeeping.clean(older_than_days=1))["removed"] == []
    shown = await desk.core.housekeeping.clean(older_than_days=0, dry_run=True)
    assert shown == {"removed": [old["folder"]], "kept": 1}
    assert os.path.isdir(old["folder"])
    assert (await desk.core.housekeeping.clean(older_than_days=0))["removed"] == [old["folder"]]
    assert not os.path.exists(old["folder"])
    assert os.path.isdir(kept["folder"])
    await desk.core.cluster(desk.id).actions.cancel(kept["key"])


async def test_old_jobs_are_cleaned_away_by_themselves(cluster, open_desk, tmp_path, monkeypatch):
    """As soon as a cluster is connected, and again every day."""
    async with open_desk(cluster, tmp_path) as desk:
        old, held = await desk.submit("print(1)"), await desk.submit("#!/bin/sh\ntrue\n", "--hold")
        assert (await desk.finished(old["key"]))["finished"]
        assert os.path.isdir(old["folder"])
    async with open_desk(cluster, tmp_path, retention_days=1e-9) as desk, asyncio.timeout(60):
        while os.path.exists(old["folder"]):
            await asyncio.sleep(0.05)
        assert [job["id"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False) if job["key"]] == [
            held["id"]
        ]
    monkeypatch.setattr(housekeeping, "_DAY_S", 0.2)
    async with open_desk(cluster, tmp_path, retention_days=1e-9) as desk, asyncio.timeout(60):
        assert os.path.isdir(held["folder"])
        await desk.core.cluster(desk.id).actions.cancel(held["key"])
        while os.path.exists(held["folder"]):
            await asyncio.sleep(0.05)


async def test_command_is_passed_through_as_typed(desk):
    import base64

    done = await desk.core.cluster(desk.id).run_command(
        ["squeue", "-o", "%i | %j"], table=True, context={"env": desk.env}
    )
    assert done["table"] is None
    assert base64.b64decode(done["stdout"]).startswith(b"JOBID | NAME")
    table = (await desk.core.cluster(desk.id).run_command(["sinfo"], table=True, context={"env": desk.env}))["table"]
    assert table["columns"][0] == "PARTITION"
    assert {row[0].rstrip("*") for row in table["rows"]} == {"arandu", "devwork"}


async def test_times_in_a_table_are_for_people(desk):
    job = await desk.submit("#!/bin/sh\n", "--begin=now+1hour")
    for env, form in (
        (desk.env, r"20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d"),
        ({**desk.env, "SLURM_TIME_FORMAT": "%H.%M"}, r"\d\d\.\d\d"),
    ):
        argv = ["squeue", "--start", "-j", job["id"]]
        table = (await desk.core.cluster(desk.id).run_command(argv, table=True, context={"env": env}))["table"]
        assert re.fullmatch(form, table["rows"][0][table["columns"].index("START_TIME")])
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_only_slurm_commands_are_passed_through(desk):
    for argv in (["sh", "-c", "id"], ["/bin/squeue"], ["sbatch", "x"], []):
        with pytest.raises(UsageError):
            await desk.core.cluster(desk.id).run_command(argv, table=False, context={})


async def test_a_loop_over_numbers_is_refused_and_keeps_nobody_else_waiting(desk):
    mine = await desk.submit("#!/bin/sh\n", "--hold")
    asked = [asyncio.create_task(desk.job(str(900_000 + number))) for number in range(20)]
    try:
        done, waiting = await asyncio.wait(asked, timeout=5)
        errors = [task.exception() for task in done]
        assert len([error for error in errors if isinstance(error, JobNotFound)]) >= 6
        refused = [error for error in errors if isinstance(error, Throttled)]
        assert len(waiting) <= 3
        assert len(refused) >= 10
        assert all(error.details["retry_after"] > 0 for error in refused)
        async with asyncio.timeout(5):
            assert (await desk.core.cluster(desk.id).actions.cancel(mine["key"]))["state"] == "CANCELLED"
    finally:
        for task in asked:
            task.cancel()


@pytest.mark.here_only("far away the folder above is looked at, once a log-in")
async def test_what_a_cell_shows_is_taken_from_a_folder_of_our_own_only(desk):
    rich = "class Rich:\n    def _repr_html_(self): return '<b>rich</b>'\nRich()"
    job = await desk.submit(rich)
    await desk.finished(job["key"])

    async def streams(**offsets):
        events = [
            data
            async for event, data in desk.core.cluster(desk.id).results.stream(job["key"], offsets)
            if event == "output"
        ]
        return [event["stream"] for event in events]

    assert await streams(display=0) == ["display"]
    assert await streams() == [], "who does not ask for it does not get it"
    os.chmod(job["folder"], 0o777)
    assert await streams(display=0) == []
    os.chmod(job["folder"], 0o700)
    if os.geteuid() == 0:
        os.chown(job["folder"], 12345, -1)
        assert await streams(display=0) == []
