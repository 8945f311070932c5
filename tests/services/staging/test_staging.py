"""Tests of staged folders, by real rsync: sent before the submission, and copied back after the end."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.network import Meter

from jupyter_slurm.client.render.staging_card import stage_notes
from jupyter_slurm.errors import CommandMissing, JobError, UsageError
from jupyter_slurm.services.staging.folder_sync import FolderSync

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh")]

RUNNER = str(resources.files("jupyter_slurm.runner.lifecycle").joinpath("stage.py"))

WORK = r"""
import os, sys
print(os.getcwd(), open('a file').read(), open('two\nlines').read(), sep='\n', end='')
print('result', file=open('new', 'w'))
print('again', file=open('changed', 'a'))
os.mkdir('out')
print('deep', file=open('out/ -n', 'w'))
sys.exit(3)
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Provide a folder with names that a shell, or a line of output, would misinterpret."""
    folder = tmp_path / "laptop's project: 1"
    (folder / "sub").mkdir(parents=True)
    for name in ("a file", "two\nlines", "-rf", "changed", "mine", "sub/\\#134", "sub/é"):
        (folder / name).write_text(f"{name}\n")
    (folder / "sub" / os.fsdecode(b"\xff")).write_text("not UTF-8\n")
    (folder / "inside").symlink_to("a file")
    (folder / "outside").symlink_to(tmp_path)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "x.pyc").touch()
    (folder / ".rsync-filter").write_text("- *.large\n")
    (folder / "data.large").touch()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    return folder


def staged(*folders: Path, **how: bool) -> dict[str, Any]:
    """Return the API object of a staged folder."""
    return {"stage": {"folders": [{"source": str(folder)} for folder in folders], **how}}


async def there(desk: Any, job: dict[str, Any]) -> Path:
    """Provide the folder of the cluster, visible to the test."""
    return Path(job["stage"]["folders"][0]["dest"])


@pytest.mark.by_day("paramiko", "openssh")  # rsync runs over a connection of each in another way
async def test_what_a_job_needs_is_there_and_what_it_leaves_comes_back_also_when_it_fails(desk, project, tmp_path):
    asked = desk.asked(WORK, **staged(project))
    launch = {"key": asked["key"], "idle": 60, "context": asked["context"], "command": ["x", "{port}"], "dry_run": True}
    session = await desk.core.sessions.launch(desk.id, {**launch, "python": asked["python"], **staged(project)})
    job = await desk.core.cluster(desk.id).submit(asked)
    assert f"--chdir={job['work_dir']}" in session["argv"]
    assert job["stage"]["state"] == "there"
    dest = await there(desk, job)
    assert dest.parent == Path(desk.root, "stage")
    assert job["work_dir"] == str(dest)
    assert [warning for warning in job["warnings"] if "outside" in warning], "a link that leads out is told"

    over = await desk.finished(job["key"])
    assert (over["state"], over["exit_code"]) == ("FAILED", 3)
    assert await desk.text(job["key"]) == f"{dest}\na file\n\ntwo\nlines\n"
    gone = {"outside", "__pycache__", "data.large"}
    assert {path.name for path in dest.iterdir()} == {
        *(path.name for path in project.iterdir() if path.name not in gone),
        ".jupyter-slurm-stage",
    }
    assert os.access(dest / "run", os.X_OK)

    assert (over["stage"]["state"], over["stage"]["files"], over["stage"]["left"]) == ("back", 3, [])
    assert (project / "new").read_text() == "result\n"
    assert (project / "changed").read_text() == "changed\nagain\n"
    assert (project / "out" / " -n").read_text() == "deep\n"
    assert (project / "outside").is_symlink()
    assert not (project / ".jupyter-slurm-stage").exists()


@pytest.mark.here_only("what travels is chosen alike over each way")
async def test_what_both_changed_stays_and_what_went_before_is_not_sent_again(desk, project, tmp_path):
    waits = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint('job', file=open('changed', 'a'))"
    job = await desk.submit(waits, **staged(project))
    dest = await there(desk, job)
    (project / "changed").write_text("by the person, meanwhile\n")
    (project / "mine").write_text("edited while it runs\n")
    # Another job of the same folder: files that the first one writes are kept, changes by the user are sent.
    (dest / "a file").write_text("half a result\n")
    second = await desk.submit("1", **staged(project, delete=True))
    assert (dest / "mine").read_text() == "edited while it runs\n"
    assert (dest / "a file").read_text() == "half a result\n"
    assert (await desk.finished(second["key"]))["stage"]["state"] == "back"
    (project / "changed").write_text("once more\n")
    (dest / "go").touch()
    over = await desk.finished(job["key"])
    assert over["stage"]["left"] == ["changed"]
    assert (project / "changed").read_text() == "once more\n"
    assert (dest / "changed").read_text() == "by the person, meanwhile\njob\n"
    assert (project / "a file").read_text() == "half a result\n"

    # Local deletions are repeated on the cluster only on request. Changes are detected by size and time, or by content.
    old = (project / "-rf").stat()
    (project / "-rf").write_text("-RF\n")
    os.utime(project / "-rf", ns=(old.st_atime_ns, old.st_mtime_ns))
    (project / "mine").unlink()
    (dest / "of the cluster").touch()
    kept = await desk.submit("1", **staged(project))
    await desk.finished(kept["key"])
    assert (dest / "mine").exists()
    assert (dest / "-rf").read_text() == "-rf\n"
    assert not (project / "mine").exists(), "what the person has removed does not come back"
    elsewhere = tmp_path / "elsewhere"
    shutil.move(dest / "sub", elsewhere)
    (dest / "sub").symlink_to(elsewhere)  # as a job without space does
    (project / "sub" / "é").unlink()
    await desk.finished((await desk.submit("1", **staged(project, delete=True, checksum=True)))["key"])
    assert not (dest / "mine").exists()
    assert (elsewhere / "é").exists()
    assert (dest / "-rf").read_text() == "-RF\n"
    assert (dest / "of the cluster").exists()


@pytest.mark.here_only("what is gone is waited for over no way")
async def test_what_is_gone_is_not_waited_for_and_a_requeue_while_results_come_is_noticed(
    desk, project, tmp_path, monkeypatch
):
    removed, left = tmp_path / "removed", tmp_path / "left"
    for folder in (removed, left):
        folder.mkdir()
    text = """
import glob, os, shutil, time
while not os.path.exists('go'): time.sleep(0.1)
shutil.rmtree(*glob.glob('../removed-*'))
print('result', file=open('new', 'w'))
"""
    job = await desk.submit(text, **staged(project, removed, left))
    left.rmdir()
    (await there(desk, job) / "go").touch()
    over = (await desk.finished(job["key"]))["stage"]
    assert (over["state"], (project / "new").read_text()) == ("back", "result\n")
    assert re.fullmatch(
        rf"The directory \S+/removed-\w+ no longer exists on the cluster\. The folder {left} no longer exists on this computer\.",
        over["error"],
    )

    cluster = desk.core.cluster(desk.id)
    entry, staging, times = cluster.tracker.find(job["key"]), cluster.staging, []
    pull = staging._pull

    async def requeued(*args: Any) -> Any:
        times.append(entry.restarts)
        entry.restarts = 1
        return await pull(*args)

    monkeypatch.setattr(staging, "_pull", requeued)
    entry.record = replace(entry.record, stage=replace(entry.record.stage, back=None))
    staging.schedule_copy_back(entry)
    while staging.held:
        await asyncio.sleep(0.05)
    assert times == [0, 1, 1, 1, 1, 1]  # of three folders


@pytest.mark.here_only("what travels is chosen alike over each way")
async def test_jobs_of_one_folder_that_are_submitted_at_once_have_it_travel_once(desk, project, monkeypatch):
    staging, transfers, listings = desk.core.cluster(desk.id).staging, [], []
    prepared = await staging.prepare(desk.asked("", **staged(project)))
    for name, calls in (("send", transfers), ("choose", listings)):
        real = getattr(FolderSync, name)

        async def counted(*args: Any, real: Any = real, calls: list[Any] = calls, **more: Any) -> Any:
            calls.append(more.get("is_pull", False))
            return await real(*args, **more)

        monkeypatch.setattr(FolderSync, name, counted)
    text = "import os; open('of ' + os.environ['SLURM_JOB_ID'], 'w').write('results')"
    async with staging.alone(prepared.work_dir):  # as if a transfer for an earlier job is running
        submitting = [asyncio.ensure_future(desk.submit(text, **staged(project))) for _ in range(4)]
        async with asyncio.timeout(120):
            while sum(joint.count for joint in staging._shared_transfers.values()) < 4:
                await asyncio.sleep(0.02)
        submitting[0].cancel()  # a cancelled submission leaves the transfer to the others
        await asyncio.wait(submitting[:1])
    jobs = await asyncio.gather(*submitting[1:])
    assert (transfers, listings) == ([False], [False])
    for job in jobs:
        over = await desk.finished(job["key"])
        assert (over["state"], over["stage"]["state"], over["stage"]["error"]) == ("COMPLETED", "back", None)
    assert len([*project.glob("of *")]) == 3


# The remote rsync, which fails as long as a file exists.
BREAKS = """#!/bin/sh
case " $* " in *" --server "*) if [ -e {flag} ]; then echo >>{flag}; echo 'it is broken' >&2; exit 5; fi;; esac
exec {rsync} "$@"
"""


@pytest.mark.here_only("what fails is told alike over each way")
async def test_results_that_rsync_does_not_bring_are_given_up_and_told_and_brought_on_request_and_copies_go_with_jobs(
    desk, project, tmp_path, monkeypatch
):
    flag, program, said = tmp_path / "broken", tmp_path / "bin" / "rsync", tmp_path / "said"
    program.parent.mkdir()
    program.write_text(BREAKS.format(flag=flag, rsync=shutil.which("rsync")))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")
    monkeypatch.setattr("jupyter_slurm.services.staging.job_staging._PAUSE", (0.01, 0.01))
    (tmp_path / "data").mkdir()
    folders = [{"source": str(project)}, {"source": str(tmp_path / "data"), "dest": str(said)}]
    job = await desk.submit(
        "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\nopen('new', 'w').write('result')",
        stage={"folders": folders},
    )
    with pytest.raises(UsageError, match="has not ended"):
        await desk.bring_results(job["key"])
    flag.touch()
    dest = await there(desk, job)
    (dest / "go").touch()
    over = await desk.until(job["key"], lambda told: told["stage"]["given_up"])
    assert len(flag.read_text().splitlines()) == 10, "a few times for each folder"
    notes = " ".join(stage_notes(over))
    assert f"`jupyter slurm bring {job['id']}`, or job.bring(), tries again" in notes
    assert f"They are in {dest}, {said}" in notes
    assert (await desk.bring_results(job["key"]))["stage"]["given_up"]
    assert (await desk.core.housekeeping.clean(older_than_days=0))["removed"] == [], "nothing goes that is there alone"
    assert (dest / "new").exists()

    flag.unlink()
    brought = (await desk.bring_results(job["id"]))["stage"]
    assert (brought["given_up"], brought["error"], brought["files"]) == (False, None, 2)
    assert (project / "new").read_text() == "result"

    # A copy is removed with its last job; a folder named by the user never is.
    other = await desk.submit("import time; time.sleep(600)", **staged(project))
    assert (await desk.core.housekeeping.clean(older_than_days=0))["removed"] == [job["folder"]]
    (project / "changed").write_text("here\n")
    (dest / "changed").write_text("and there\n")
    await desk.core.cluster(desk.id).actions.cancel(other["key"])
    over = await desk.until(other["key"], lambda told: told["stage"]["state"] == "back")
    assert over["stage"]["left"] == ["changed"]
    assert (await desk.core.housekeeping.clean(older_than_days=0, dry_run=True))["removed"] == [other["folder"]]
    (dest / "changed").unlink()
    checkpoint = dest / "checkpoint.large"  # excluded by the filter: it exists only on the cluster
    checkpoint.touch()
    assert (await desk.core.housekeeping.clean(older_than_days=0, dry_run=True))["removed"] == [other["folder"]]
    checkpoint.unlink()
    assert (await desk.core.housekeeping.clean(older_than_days=0, dry_run=True))["removed"] == [
        other["folder"],
        str(dest),
    ]
    assert dest.exists()
    assert (await desk.core.housekeeping.clean(older_than_days=0))["removed"] == [other["folder"], str(dest)]
    assert not dest.exists()
    assert said.exists()


@pytest.mark.here_only("what happens on the node is alike over each way")
async def test_on_a_disk_of_the_node_what_a_job_leaves_is_brought_back_also_when_it_is_cancelled(
    open_desk, cluster, project, tmp_path
):
    output = tmp_path / "output"
    os.utime(project / "mine", (1e9, 1e9))
    async with open_desk(cluster, tmp_path, storage={"local": f"{output}/$USER", "expires": "60 days"}) as desk:
        await _on_the_node(desk, project, output)


async def _on_the_node(desk, project, output):
    job = await desk.submit(WORK, **staged(project))
    assert [warning for warning in job["warnings"] if "1 file in" in warning and "about to expire" in warning]
    over = await desk.finished(job["key"])
    assert (await desk.text(job["key"])).startswith(f"{output}/")
    assert (over["exit_code"], over["stage"]["files"], over["stage"]["left"]) == (3, 3, [])
    assert (project / "changed").read_text() == "changed\nagain\n"
    assert (project / "out" / " -n").read_text() == "deep\n"
    assert not list(output.glob("*/*")), "nothing is left on the node"

    # A script that ignores the termination; its output so far is copied back.
    text = "#!/bin/sh\ntrap : TERM\necho half > half\nwhile :; do sleep 0.1; done\n"
    job = await desk.submit(text, **staged(project))
    while not [*output.glob("*/*/half")]:
        await asyncio.sleep(0.1)
    await desk.core.cluster(desk.id).actions.cancel(job["key"])
    over = await desk.finished(job["key"])
    assert (over["state"], over["stage"]["files"]) == ("CANCELLED", 1)
    assert (project / "half").read_text() == "half\n"


@pytest.mark.here_only("who brings results back does not matter to them")
async def test_what_is_left_comes_back_when_the_agent_was_away_and_nothing_leads_out_of_the_folder(
    open_desk, cluster, project, tmp_path
):
    text = """
import os, time
while not os.path.exists('go'): time.sleep(0.1)
for name, target in (('leak', '/etc/passwd'), ('up', '../..'), ('fine', 'a file')): os.symlink(target, name)
os.makedirs('outside'); open('outside/evil', 'w').write('out of the folder')
open('large', 'wb').write(bytes(50_000_000)); os.chmod('large', 0o6777)
os.mkfifo('pipe')
"""
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit(text, **staged(project))
        assert desk.core.count_holders()["folders"] == 1
    dest = await there(desk, job)
    (dest / "go").touch()
    async with open_desk(cluster, tmp_path) as desk:  # ends just before the copy of the results
        await desk.until(job["key"], lambda told: told["finished"])
    async with open_desk(cluster, tmp_path) as desk:
        over = await desk.until(job["key"], lambda told: told["stage"]["state"] == "back")
        async with asyncio.timeout(60):  # the record is written before the folder is released
            while desk.core.count_holders().get("folders") is not None:
                await asyncio.sleep(0.05)
    # The agent before may have copied some of the three files.
    assert (over["stage"]["files"] in range(4), over["stage"]["error"]) == (True, None)
    assert "outside/evil" in over["stage"]["left"]
    assert not (tmp_path / "evil").exists()
    assert not {"leak", "up", "pipe"} & set(os.listdir(project))
    assert os.readlink(project / "fine") == "a file"
    assert (project / "large").stat().st_size == 50_000_000
    assert not (project / "large").stat().st_mode & 0o6000

    # A job can write into the job directory, but cannot make this machine send or receive another folder.
    home, path = tmp_path / "home", Path(desk.root, job["key"], "job.json")
    home.mkdir()
    record = json.loads(path.read_text())
    record["stage"]["folders"][0]["source"] = record["asked"]["stage"]["folders"][0]["source"] = str(home)
    record["stage"]["back"] = None
    path.write_text(json.dumps(record))
    for index in (tmp_path / "state").glob("index-*.sqlite*"):
        index.unlink()
    async with open_desk(cluster, tmp_path) as desk:
        await desk.until(job["key"], lambda told: told["stage"]["state"] == "elsewhere")
        asked = desk.asked("")
        with pytest.raises(UsageError, match="not staged from this computer"):
            await desk.core.cluster(desk.id).resubmit(job["key"], {"key": asked["key"], "context": asked["context"]})
    assert os.listdir(home) == []

    # Another laptop of the same name, with a folder of the same name, has a separate copy.
    next(tmp_path.rglob("seal.key")).unlink()
    async with open_desk(cluster, tmp_path) as desk:
        assert await there(desk, await desk.submit("1", **staged(project))) != dest


@pytest.mark.slow
@pytest.mark.here_only("Slurm alone tells the runner")
async def test_what_lies_on_a_disk_of_the_node_comes_back_when_the_time_is_up(open_desk, cluster, project, tmp_path):
    output = tmp_path / "output"
    text = "#!/bin/sh\ntrap 'echo last > last; exit 0' TERM\necho half > half\nwhile :; do sleep 0.1; done\n"
    async with open_desk(cluster, tmp_path, storage={"local": f"{output}/$USER"}) as desk:
        job = await desk.submit(text, "--time=1", **staged(project))
        over = await desk.until(job["key"], lambda told: told["stage"]["state"] == "back", timeout=240)
        said = await desk.text(job["key"], "stderr")
    assert (over["state"], over["stage"]["files"], over["stage"]["error"]) == ("TIMEOUT", 2, None)
    assert "The time limit is near. 1 new or changed files were copied" in said
    assert ((project / "half").read_text(), (project / "last").read_text()) == ("half\n", "last\n")
    assert not list(output.glob("*/*")), "nothing is left on the node"


LARGE = 150_000_000


async def on_the_way(desk: Any, project: Path, text: str) -> tuple[str, asyncio.Future[Any]]:
    """Submit a cell with a large folder; return its key and its task, during the transfer."""
    (project / "large").write_bytes(os.urandom(LARGE))
    asked = desk.asked(text, **staged(project))
    submitting = asyncio.ensure_future(desk.core.cluster(desk.id).submit(asked))
    await part_of_it(desk, asked["key"], submitting)
    return asked["key"], submitting


async def part_of_it(desk: Any, key: str, submitting: asyncio.Future[Any], after: int = 0) -> int:
    """Wait until a third is transferred, in the first attempt or, after a number of bytes, in the next one."""
    last, is_next = after, not after
    while not (is_next and last > LARGE // 3):
        assert not submitting.done(), submitting.result()
        await asyncio.sleep(0.02)
        if key in {known["key"] for known in await desk.core.cluster(desk.id).jobs.list_jobs(active=True)}:
            now = ((await desk.job(key))["sending"] or {"done": 0})["done"]
            last, is_next = now, is_next or now < last
    return last


@pytest.mark.carrier("paramiko")
async def test_a_link_that_breaks_on_the_way_is_waited_for_and_who_gives_up_leaves_nothing(
    open_far_desk, login_host, cluster, project, tmp_path
):
    text = "import hashlib; print(hashlib.sha256(open('large', 'rb').read()).hexdigest())"
    async with open_far_desk(cluster, tmp_path) as desk:
        with Meter(login_host.port) as meter:
            key, submitting = await on_the_way(desk, project, text)
            first = await part_of_it(desk, key, submitting)
            hanging = login_host.sessions()  # the received data is held by a process that does not notice the end
            for pid in hanging:
                os.kill(pid, signal.SIGSTOP)
            try:
                await part_of_it(desk, key, submitting, after=first)
            finally:
                for pid in hanging:
                    os.kill(pid, signal.SIGKILL)
            login_host.kill_sessions()
            await submitting
            assert LARGE < meter.total < 1.15 * LARGE, "it went on where it was"
        await desk.finished(key)
        names = {path.name for path in (await there(desk, await desk.job(key))).iterdir()}
        assert not [name for name in names if name == ".rsync-partial" or name.startswith(".large.")]
        assert await desk.text(key) == hashlib.sha256((project / "large").read_bytes()).hexdigest() + "\n"

        key, submitting = await on_the_way(desk, project, text)
        await desk.core.cluster(desk.id).actions.cancel(key)
        with pytest.raises(JobError, match="nothing was submitted"):
            await submitting
        assert key not in os.listdir(desk.root)
        assert key not in {job["key"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)}


@pytest.mark.root
@pytest.mark.here_only("room is asked for alike over each way")
async def test_a_disk_without_room_is_told_before_anything_travels(desk, project, tmp_path, monkeypatch):
    small = tmp_path / "small"
    small.mkdir()
    (project / "large").write_bytes(bytes(3_000_000))
    asked = desk.asked("1", stage={"folders": [{"source": str(project), "dest": f"{small}/copy"}]})
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(small)], check=True)
    try:
        with pytest.raises(UsageError, match=r"3\.0 MB would be copied to .*/small/copy, but 2\.1 MB are free"):
            await desk.core.cluster(desk.id).submit(asked)
        # The kernels of test machines have no quotas; the program prints what it would.
        (tmp_path / "bin").mkdir()
        (tmp_path / "bin" / "quota").write_text("#!/bin/sh\necho '  tmpfs  500*  900  1000  0  9  0  0  0'\n")
        (tmp_path / "bin" / "quota").chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
        with pytest.raises(UsageError, match=r"3\.0 MB would be copied to .*, but 0\.5 MB are left of your quota"):
            await desk.core.cluster(desk.id).submit(asked)
        assert os.listdir(small / "copy") == []
    finally:
        subprocess.run(["umount", "--lazy", str(small)], check=True)


@pytest.mark.here_only("where it lacks is told alike")
async def test_without_rsync_nothing_is_submitted_and_it_is_said_where_it_lacks(desk, project, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CommandMissing, match="This computer has no rsync"):
        await desk.submit("1", **staged(project))
    for folder, said in (
        (tmp_path / "none", "No such file"),
        (project / "run", "is not a folder"),
        (Path("/"), "all of"),
    ):
        with pytest.raises(UsageError, match=said):
            await desk.submit("1", **staged(folder))
    listed = await desk.core.cluster(desk.id).jobs.list_jobs(active=True)
    assert [job for job in listed if job["key"]] == []  # others may run


def test_results_are_safe_before_the_time_limit_and_what_cannot_go_back_is_told_with_its_place(project, tmp_path):
    """The runner as Slurm would start it, with the signal of --signal, and then with that of the end."""
    folder, output = tmp_path / "job", tmp_path / "output"
    folder.mkdir()
    text = (
        "trap 'echo last > last; exit 0' TERM; echo 1 > new; rm changed; echo x > sub/x; while :; do sleep 0.05; done"
    )
    stage = {"folders": [{"dest": str(project)}], "local": f"{output}/${{WHO}}s", "announced": True}
    record = {"key": "k", "events": str(folder), "run": ["/bin/sh", "-c", text], "stage": stage}
    (folder / "job.json").write_text(json.dumps(record))
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7", "WHO": "me"}
    started = subprocess.Popen(
        [sys.executable, "-u", RUNNER, str(folder)], cwd=project, env=env, stderr=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not [*output.glob("mes/*/sub/x")] and time.monotonic() < deadline:
        time.sleep(0.02)
    started.send_signal(signal.SIGUSR1)
    while not ((project / "sub" / "x").exists() and (project / "new").exists()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert (project / "new").read_text() == "1\n"
    assert started.poll() is None, "it goes on"
    shutil.move(project / "sub", project / "moved")
    (project / "sub").write_text("no folder any more")
    (*_, local) = output.glob("mes/*")
    (local / "sub" / "y").write_text("lost?")
    started.send_signal(signal.SIGTERM)
    _, said = started.communicate(timeout=60)
    assert started.returncode == 0
    assert (project / "last").read_text() == "last\n"
    assert (project / "changed").exists(), "nothing is removed"
    assert "The time limit is near" in said
    assert f"in {local}" in said
    assert "1 file could not be copied" in said
    assert (local / "sub" / "y").read_text() == "lost?"


def test_what_a_job_removes_while_it_is_copied_back_ends_nothing(tmp_path):
    files_below = runpy.run_path(RUNNER)["files_below"]
    for name in ("a/deep", "b/deep"):
        (tmp_path / name).mkdir(parents=True)
    found = []
    for name in files_below(str(tmp_path)):
        found.append(name)
        shutil.rmtree(tmp_path / name, ignore_errors=True)
    assert sorted(found) == ["a", "b"]
    (tmp_path / "file").touch()
    unread: dict[str, str] = {}
    assert list(files_below(str(tmp_path / "file"), unread)) == []
    assert unread == {".": "Not a directory"}
    with pytest.raises(NotADirectoryError):
        list(files_below(str(tmp_path / "file")))


@pytest.mark.root
def test_a_place_on_the_node_that_is_anothers_is_not_used(project, tmp_path):
    """On a disk where all users may create folders, another user was faster."""
    folder, taken = tmp_path / "job", tmp_path / "output" / "me"
    folder.mkdir()
    stage = {"folders": [{"dest": str(project)}], "local": str(taken)}
    record = {"key": "k", "events": str(folder), "run": ["/bin/sh", "-c", "pwd"], "stage": stage}
    (folder / "job.json").write_text(json.dumps(record))
    env = {"PATH": os.environ["PATH"], "SLURM_JOB_ID": "7"}
    taken.mkdir(parents=True)
    for mode, owner, nodes, said in (
        (0o755, 12345, "1", "another user"),
        (0o777, 0, "1", "others may write"),
        (0o1777, 0, "2", "The job has several nodes"),  # each would have a copy
        (0o1777, 0, "1", ""),
    ):
        env["SLURM_JOB_NUM_NODES"] = nodes
        taken.chmod(mode)
        os.chown(taken, owner, owner)
        done = subprocess.run(
            [sys.executable, "-u", RUNNER, str(folder)],
            cwd=project,
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        assert (done.stdout.strip() == str(project)) is bool(said)
        assert said in done.stderr
        assert list(taken.iterdir()) == []
        (folder / "claim").unlink()
