"""Tests of faults between a cell and its job: the job exists once, and is found."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import CommandError, SubmitRefused, UsageError
from jupyter_slurm.services.slurm import client as slurm_client
from jupyter_slurm.services.submission import lost_answer_recovery

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("paramiko")]

SCRIPT = "#!/bin/sh\nsleep 120\n"


@pytest.fixture(scope="module")
def own_cluster(short_tmp):
    """Provide a cluster whose controller may be disturbed."""
    with EmbeddedCluster(directory=short_tmp / "f") as running:
        yield running


@pytest.fixture
async def faulty(own_cluster, open_desk, tmp_path):
    async with open_desk(own_cluster, tmp_path, submit_timeout=2.0) as desk:
        yield desk


def times_in_queue(desk, job):
    argv = ["squeue", "--me", "-h", "-t", "all", "-o", "%o"]
    done = subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True)
    return done.stdout.split().count(job["script_path"])


async def once(desk, job):
    """Check that the job is found, and exists once, also a while later."""
    found = await desk.until(job["key"], lambda j: j["id"] is not None)
    await asyncio.sleep(1)
    assert await asyncio.to_thread(times_in_queue, desk, job) == 1
    await desk.core.cluster(desk.id).actions.cancel(job["key"])
    return found


def wrapper(folder, text):
    """Put an ``sbatch`` in front of the real one."""
    folder.mkdir()
    script = folder / "sbatch"
    script.write_text(text)
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


async def test_controller_frozen_during_submission(own_cluster, faulty):
    own_cluster.freeze_controller()
    try:
        job = await faulty.submit(SCRIPT)
        assert (job["state"], job["known"], job["id"]) == ("SUBMITTING", False, None)
        assert faulty.core.count_holders().get("submissions") == 1
        await asyncio.sleep(11)  # until sbatch itself has given up, after 10 s
    finally:
        own_cluster.thaw_controller()
    found = await once(faulty, job)
    assert found["state"] in ("PENDING", "RUNNING")
    assert "submissions" not in faulty.core.count_holders()


async def test_controller_down_during_submission(own_cluster, faulty):
    own_cluster.stop_controller()
    try:
        job = await faulty.submit(SCRIPT)
        assert job["state"] == "SUBMITTING"
    finally:
        own_cluster.restart_controller()
    await once(faulty, job)


async def test_answer_of_sbatch_is_lost(own_cluster, faulty, tmp_path):
    path = wrapper(tmp_path / "bin", '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nkill -9 $$\n')
    job = await faulty.submit(SCRIPT, args=["--epochs", "a b"], context={"env": {**faulty.env, "PATH": path}})
    assert job["id"] is None
    await once(faulty, job)


async def test_sbatch_is_killed_before_it_asked(own_cluster, faulty, tmp_path):
    text = f'#!/bin/sh\n[ -e {tmp_path}/twice ] && exec /usr/bin/sbatch "$@"\ntouch {tmp_path}/twice\nkill -9 $$\n'
    path = wrapper(tmp_path / "bin", text)
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    await once(faulty, job)
    assert Path(job["folder"], "submit.2.out").exists()


async def test_banners_of_a_wrapper_do_not_hide_the_id(own_cluster, faulty, tmp_path):
    text = "#!/bin/sh\necho 'Welcome! 5 jobs today'\n/usr/bin/sbatch \"$@\"\necho '*** see the wiki ***'\n"
    path = wrapper(tmp_path / "bin", text)
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    assert job["id"] is not None
    await once(faulty, job)


@pytest.mark.parametrize(
    "behind",
    [
        "echo 'Remaining hours:'; echo 1234",
        "echo 'Submitted batch job 1'",
        "echo 2026",
        "printf '7\\n\\n  8 \\n9\\n'",
    ],
)
async def test_a_number_of_a_banner_is_not_taken_for_the_id(own_cluster, faulty, tmp_path, behind):
    """With more than one number in the answer, the queue decides by the path of the script."""
    own = (await faulty.submit("#!/bin/sh\ntrue\n"))["id"]
    path = wrapper(tmp_path / "bin", f'#!/bin/sh\n/usr/bin/sbatch "$@"\n{behind}\n')
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    found = await once(faulty, job)
    assert int(found["id"]) == int(own) + 1


@pytest.mark.parametrize("number", ["0", "4294967296", "9" * 5000])
async def test_a_number_that_no_job_can_have_is_not_taken_for_the_id(own_cluster, faulty, tmp_path, number):
    path = wrapper(tmp_path / "bin", f'#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\necho {number}\n')
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    found = await once(faulty, job)
    assert found["id"] != number


@pytest.mark.parametrize(
    "text",
    ['/usr/bin/sbatch "$@" | tail -1 | sed "s/^/Submitted batch job /"', 'echo Hello; /usr/bin/sbatch "$@"; echo bye'],
)
async def test_a_wrapper_with_one_number_is_understood(own_cluster, faulty, tmp_path, text):
    path = wrapper(tmp_path / "bin", f"#!/bin/sh\n{text}\n")
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    assert job["id"] is not None
    await once(faulty, job)


async def test_a_job_on_another_cluster_is_never_one_of_this_cluster(own_cluster, faulty, tmp_path):
    """Its number belongs to another job here, which is neither shown nor cancelled."""
    mine = await faulty.submit(SCRIPT)
    for answer in (f"{mine['id']};other", f"Submitted batch job {mine['id']} on cluster other"):
        folder = tmp_path / answer.split()[0]
        path = wrapper(folder, f"#!/bin/sh\necho '{answer}'\n")
        with pytest.raises(SubmitRefused, match=f"cluster other, as job {mine['id']}"):
            await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    jobs = [job for job in await faulty.core.cluster(faulty.id).jobs.list_jobs(active=False) if job["id"] == mine["id"]]
    assert [job["key"] for job in jobs] == [mine["key"]]
    await once(faulty, mine)


@pytest.mark.parametrize("header", ["", "#SBATCH -M other\n", "#SBATCH --clusters=this,other\n"])
async def test_a_submission_to_another_cluster_is_refused(own_cluster, faulty, header):
    env = faulty.env if header else {**faulty.env, "SBATCH_CLUSTERS": "other"}
    name = "clusters" if header else "SBATCH_CLUSTERS"
    with pytest.raises(UsageError, match=f"{name}=.*other: only jobs of cluster"):
        await faulty.submit(f"#!/bin/sh\n{header}true\n", context={"env": env})


@pytest.mark.carrier("paramiko", "openssh")
@pytest.mark.by_day("paramiko", "openssh")  # the connection ends with the agent, or survives it
async def test_core_ends_while_the_answer_is_open(own_cluster, open_desk, tmp_path):
    own_cluster.freeze_controller()
    try:
        async with open_desk(own_cluster, tmp_path, submit_timeout=1.0, command_timeout=1.0) as desk:
            job = await desk.submit(SCRIPT)
            assert job["id"] is None
    finally:
        own_cluster.thaw_controller()
    async with open_desk(own_cluster, tmp_path) as desk:
        await once(desk, job)


async def test_cancelled_while_the_answer_is_open(own_cluster, faulty):
    own_cluster.freeze_controller()
    try:
        job = await faulty.submit(SCRIPT)
        await faulty.core.cluster(faulty.id).actions.cancel(job["key"])
    finally:
        own_cluster.thaw_controller()
    ended = await faulty.until(job["key"], lambda j: j["finished"])
    assert ended["state"] in ("CANCELLED", "NOT_SUBMITTED")


async def test_cancelled_while_the_answer_is_open_is_cancelled_when_it_is_found(own_cluster, faulty, tmp_path):
    path = wrapper(tmp_path / "bin", '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nsleep 3\nkill -9 $$\n')
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    told = await faulty.core.cluster(faulty.id).actions.cancel(job["key"])
    assert (told["finished"], told["known"]) == (False, False)
    assert "cancelled as soon as it is found" in told["error"]["detail"]
    ended = await faulty.until(job["key"], lambda j: j["finished"])
    assert (ended["state"], ended["id"] is None) == ("CANCELLED", False)


@pytest.mark.carrier("paramiko", "openssh")
@pytest.mark.by_day("paramiko", "openssh")  # the connection ends with the agent, or survives it
async def test_cancellation_of_what_is_not_found_yet_outlives_the_agent(own_cluster, open_desk, tmp_path):
    path = wrapper(tmp_path / "bin", '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nsleep 3\nkill -9 $$\n')
    async with open_desk(own_cluster, tmp_path, submit_timeout=1.0) as desk:
        job = await desk.submit(SCRIPT, context={"env": {**desk.env, "PATH": path}})
        await desk.core.cluster(desk.id).actions.cancel(job["key"])
    async with open_desk(own_cluster, tmp_path) as desk:
        assert (await desk.until(job["key"], lambda j: j["finished"]))["state"] == "CANCELLED"


@pytest.mark.here_only("a PATH of this machine leads nowhere there")
async def test_trouble_while_a_submission_is_looked_for_is_no_refusal(own_cluster, faulty, tmp_path):
    """For a while the query is refused: the state stays unknown, and the job is found later."""
    path = wrapper(tmp_path / "bin", '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nsleep 3\nkill -9 $$\n')
    squeue = tmp_path / "bad" / "squeue"
    squeue.parent.mkdir()
    squeue.write_text("#!/bin/sh\necho 'squeue: error: not today' >&2\nexit 1\n")
    squeue.chmod(0o755)
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    conf = str(own_cluster.slurm_conf)
    await faulty.core.clusters.register(conf, f"{squeue.parent}:{faulty.env['PATH']}")
    await asyncio.sleep(6)
    told = await faulty.job(job["key"])
    assert (told["finished"], told["known"]) == (False, False)
    await faulty.core.clusters.register(conf, faulty.env["PATH"])
    await once(faulty, job)


@pytest.mark.here_only("a PATH of this machine leads nowhere there")
async def test_a_cancellation_that_slurm_refuses_again_and_again_ends_with_words(
    own_cluster, faulty, tmp_path, monkeypatch
):
    """The job has no ID yet when it is cancelled; scancel is then refused each time."""
    monkeypatch.setattr(lost_answer_recovery, "_MAX_PAUSE_S", 0.5)
    path = wrapper(tmp_path / "bin", '#!/bin/sh\n/usr/bin/sbatch "$@" >/dev/null\nsleep 3\nkill -9 $$\n')
    scancel = tmp_path / "bad" / "scancel"
    scancel.parent.mkdir()
    scancel.write_text(
        f"#!/bin/sh\necho >> {tmp_path}/asked\n"
        'echo "scancel: error: Kill job error on job id $1: Access/permission denied" >&2\nexit 1\n'
    )
    scancel.chmod(0o755)
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    conf = str(own_cluster.slurm_conf)
    await faulty.core.clusters.register(conf, f"{scancel.parent}:{faulty.env['PATH']}")
    try:
        await faulty.core.cluster(faulty.id).actions.cancel(job["key"])
        told = await faulty.until(job["key"], lambda j: j["error"] and "permission denied" in j["error"]["detail"])
        assert (told["finished"], f"Job {told['id']} was not cancelled" in told["error"]["detail"]) == (False, True)
        assert "The job continues" in told["error"]["hint"]
        times = (tmp_path / "asked").read_text().count("\n")
        await faulty.core.cluster(faulty.id).poller.wait_fresh(0.0)
        assert times == (tmp_path / "asked").read_text().count("\n") == lost_answer_recovery._MAX_REFUSED_CANCELS
        with pytest.raises(CommandError, match="permission denied"):
            await faulty.core.cluster(faulty.id).actions.cancel(job["key"])
    finally:
        await faulty.core.clusters.register(conf, faulty.env["PATH"])
    await once(faulty, job)


async def test_half_written_answer_is_not_read(own_cluster, faulty, tmp_path):
    """The id arrives in two parts, with the end of the wait between them."""
    text = '#!/bin/sh\nid=$(/usr/bin/sbatch "$@")\nprintf 9\nsleep 4\nprintf "\\n%s\\n" "$id"\n'
    path = wrapper(tmp_path / "bin", text)
    job = await faulty.submit(SCRIPT, context={"env": {**faulty.env, "PATH": path}})
    assert job["id"] is None
    found = await once(faulty, job)
    assert found["id"] == Path(job["folder"], "submit.1.out").read_text().split()[-1]


async def test_silent_controller_means_unknown_not_gone(own_cluster, open_desk, tmp_path):
    async with open_desk(own_cluster, tmp_path, command_timeout=2.0) as desk:
        job = await desk.submit(SCRIPT)
        await desk.until(job["key"], lambda j: j["state"] == "RUNNING")
        own_cluster.freeze_controller()
        try:
            lost = await desk.until(job["key"], lambda j: not j["known"])
            assert (lost["state"], lost["finished"]) == ("RUNNING", False)
        finally:
            own_cluster.thaw_controller()
        await desk.until(job["key"], lambda j: j["known"])
        await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def test_controller_restart_loses_nothing(own_cluster, faulty):
    job = await faulty.submit("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)\nprint('there')")
    await faulty.until(job["key"], lambda j: j["state"] == "RUNNING")
    own_cluster.restart_controller()
    Path(faulty.folder, "go").touch()
    ended = await faulty.finished(job["key"])
    assert (ended["state"], await faulty.text(job["key"])) == ("COMPLETED", "there\n")


async def test_question_of_a_person_outlives_a_controller_restart(own_cluster, faulty, monkeypatch):
    monkeypatch.setattr(slurm_client, "_MAX_ATTEMPTS", 60)  # a controller starts slowly beside other tests
    own_cluster.stop_controller()
    asked = asyncio.create_task(
        faulty.core.cluster(faulty.id).run_command(["squeue"], table=True, context={"env": faulty.env})
    )
    await asyncio.sleep(0.5)
    await asyncio.to_thread(own_cluster.restart_controller)
    assert (await asked)["table"] is not None
