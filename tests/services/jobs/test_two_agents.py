"""Tests of two agents of one user on the same job directories, as on two login nodes: neither disturbs the other."""

import asyncio
import fcntl
import json
import os
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("openssh")]

SCRIPT = "#!/bin/sh\nsleep 120\n"


@pytest.fixture(scope="module")
def own_cluster(short_tmp):
    """Provide a cluster whose controller may be disturbed."""
    with EmbeddedCluster(directory=short_tmp / "t") as running:
        yield running


@pytest.fixture
async def desks(own_cluster, open_desk, tmp_path):
    other = str(tmp_path / "other-state")
    async with open_desk(own_cluster, tmp_path) as one, open_desk(own_cluster, tmp_path, state_dir=other) as two:
        yield one, two


def slow_wrapper(folder, *, first):
    """Write a slow ``sbatch`` that runs ``first`` the first time instead of a submission."""
    folder.mkdir()
    script = folder / "sbatch"
    script.write_text(
        '#!/bin/sh\ncase "$*" in *--parsable*) ;; *) exec /usr/bin/sbatch "$@";; esac\n'
        f'if mkdir {folder}/first 2>/dev/null; then {first}; fi\nexec /usr/bin/sbatch "$@"\n'
    )
    script.chmod(0o755)
    return f"{folder}:{os.environ['PATH']}"


def times_in_queue(desk, path):
    argv = ["squeue", "--me", "-h", "-t", "all", "-o", "%o"]
    return subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout.split().count(path)


async def listed(desk, keys, timeout=60):
    """Return the jobs with these keys, once the desk lists all of them with an id."""
    async with asyncio.timeout(timeout):
        while True:
            found = {
                job["key"]: job for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False) if job["id"]
            }
            if keys <= found.keys():
                return {key: found[key] for key in keys}
            await asyncio.sleep(0.5)


async def only(desk, job):
    """Check that the requesting desk knows the id, and that only one job exists."""
    found = await desk.until(job["key"], lambda j: j["id"] is not None or j["finished"])
    assert (found["id"] is not None, found["error"]) == (True, None)
    return found


async def test_each_lists_what_the_other_submits(desks):
    one, two = desks
    jobs = [await desk.submit(SCRIPT, "--hold", label=f"of {n}") for n, desk in enumerate(desks)]
    keys = {job["key"] for job in jobs}
    for desk in desks:
        found = await listed(desk, keys)
        assert sorted((job["id"], job["label"]) for job in found.values()) == sorted(
            (j["id"], j["label"]) for j in jobs
        )
        numbers = [job["id"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)]
        assert len(numbers) == len(set(numbers))
    assert (await two.core.cluster(two.id).actions.cancel(jobs[0]["key"]))["state"] == "CANCELLED"
    await one.until(jobs[0]["key"], lambda j: j["finished"])
    await one.core.cluster(one.id).actions.cancel(jobs[1]["key"])


async def test_job_of_the_other_is_found_by_its_id_at_once(desks):
    one, two = desks
    job = await one.submit(SCRIPT, "--hold", label="mine")
    assert (await two.job(job["id"]))["key"] == job["key"]
    assert (await two.job(job["key"]))["label"] == "mine"
    await two.core.cluster(two.id).actions.cancel(job["id"])


async def test_submission_under_way_is_left_to_whoever_makes_it(own_cluster, open_desk, tmp_path):
    """The first sbatch is killed before its request; the other agent must not disturb the second attempt."""
    path = slow_wrapper(tmp_path / "bin", first=f"while [ ! -e {tmp_path}/go ]; do sleep 0.1; done; kill -9 $$")
    async with open_desk(own_cluster, tmp_path, submit_timeout=1.0) as one:
        asked = one.asked(SCRIPT, context={"env": {**one.env, "PATH": path}})
        job = await one.core.cluster(one.id).submit(asked)
        assert job["state"] == "SUBMITTING"
        async with open_desk(own_cluster, tmp_path, state_dir=str(tmp_path / "other")) as two:
            assert (await two.job(job["key"]))["state"] == "SUBMITTING"
            assert "submissions" not in two.core.count_holders()
            (tmp_path / "go").touch()
            found = await only(two, job)
            assert (await only(one, job))["id"] == found["id"]
            assert (await two.core.housekeeping.clean(older_than_days=0))["removed"] == []
        assert times_in_queue(one, job["script_path"]) == 1
        assert sorted(n for n in os.listdir(job["folder"]) if n.endswith(".out")) == ["submit.1.out", "submit.2.out"]
        await one.core.cluster(one.id).actions.cancel(job["key"])


async def test_an_answer_of_sbatch_counts_whoever_has_the_lock(own_cluster, open_desk, tmp_path):
    """After a cut in the middle, a login node keeps the session of the agent before, and with it the lock."""
    async with open_desk(own_cluster, tmp_path) as one:
        job = await one.submit(SCRIPT, "--hold")
    record = Path(job["folder"], "job.json")
    record.write_text(json.dumps({**json.loads(record.read_text()), "job": None}))
    with Path(job["script_path"]).open() as script:
        fcntl.flock(script, fcntl.LOCK_EX)
        async with open_desk(own_cluster, tmp_path) as two:
            assert (await only(two, job))["id"] == job["id"]
            written = json.loads(record.read_text())["job"]  # only once the queue has shown the job with this ID
            assert written is None or written["id"] == job["id"]
            await two.core.cluster(two.id).actions.cancel(job["id"])
            assert (await two.until(job["key"], lambda job: job["finished"]))["state"] == "CANCELLED"


@pytest.mark.carrier("paramiko", "openssh")
@pytest.mark.by_day("paramiko", "openssh")  # the connection ends with the agent, or survives it
async def test_submission_goes_on_when_the_agent_that_made_it_dies(own_cluster, open_desk, tmp_path):
    own_cluster.freeze_controller()
    try:
        async with open_desk(own_cluster, tmp_path, state_dir=str(tmp_path / "other")) as two:
            async with open_desk(own_cluster, tmp_path, submit_timeout=1.0, command_timeout=2.0) as one:
                job = await one.submit(SCRIPT)
                assert (await two.job(job["key"]))["state"] == "SUBMITTING"
            await asyncio.to_thread(own_cluster.thaw_controller)
            found = await only(two, job)
            assert times_in_queue(two, job["script_path"]) == 1
            await two.core.cluster(two.id).actions.cancel(found["id"])
    finally:
        own_cluster.thaw_controller()


async def begun(desk, tmp_path):
    """Submit with an sbatch that blocks until a file ``go`` exists; return the submission and its task."""
    path = slow_wrapper(
        tmp_path / "bin", first=f"touch {tmp_path}/began; while [ ! -e {tmp_path}/go ]; do sleep 0.1; done"
    )
    asked = desk.asked(SCRIPT, context={"env": {**desk.env, "PATH": path}})
    submitted = asyncio.create_task(desk.core.cluster(desk.id).submit(asked))
    async with asyncio.timeout(60):
        while not (tmp_path / "began").exists():
            await asyncio.sleep(0.05)
    return asked, submitted


async def test_same_key_to_both_is_one_job(desks, tmp_path):
    one, two = desks
    asked, first = await begun(one, tmp_path)
    second = asyncio.create_task(two.core.cluster(two.id).submit(asked))
    await asyncio.sleep(0.5)
    (tmp_path / "go").touch()
    jobs = await asyncio.gather(first, second)
    assert jobs[0]["id"] is not None
    assert jobs[0]["id"] == jobs[1]["id"]
    assert times_in_queue(one, jobs[0]["script_path"]) == 1
    await one.core.cluster(one.id).actions.cancel(jobs[0]["key"])


async def test_cancelled_by_the_other_while_the_answer_is_open(desks, tmp_path):
    one, two = desks
    asked, submitted = await begun(one, tmp_path)
    told = await two.core.cluster(two.id).actions.cancel(asked["key"])
    assert "cancelled as soon as it is found" in told["error"]["detail"]
    (tmp_path / "go").touch()
    await submitted
    assert (await one.until(asked["key"], lambda j: j["finished"]))["state"] == "CANCELLED"


async def test_both_hear_the_runner(desks, own_cluster):
    """Without the controller, both agents read the runner's signs: neither consumes the signs of the other."""
    one = desks[0]
    job = await one.submit("import os, time\nwhile not os.path.exists('go'): time.sleep(0.05)")
    for desk in desks:
        await desk.until(job["key"], lambda j: j["state"] == "RUNNING")
    own_cluster.freeze_controller()
    try:
        Path(one.folder, "go").touch()
        for desk in desks:
            await desk.until(job["key"], lambda j: j["state"] == "COMPLETED", timeout=60)
    finally:
        own_cluster.thaw_controller()


async def test_folder_is_kept_when_the_record_says_that_the_job_goes_on(desks):
    """As after a requeue that only the other agent has seen."""
    one, two = desks
    job = await one.submit("#!/bin/sh\ntrue\n")
    await one.finished(job["key"])
    await two.until(job["key"], lambda j: j["finished"])
    assert (await two.core.housekeeping.clean(older_than_days=0, dry_run=True))["removed"] == [job["folder"]]
    path = Path(job["folder"], "job.json")
    path.write_text(json.dumps({**json.loads(path.read_text()), "end": None}))
    assert (await two.core.housekeeping.clean(older_than_days=0))["removed"] == []
    assert path.exists()
    await two.until(job["key"], lambda j: j["finished"])
    assert (await two.core.housekeeping.clean(older_than_days=0))["removed"] == [job["folder"]]
    async with asyncio.timeout(60):
        while [j for j in await one.core.cluster(one.id).jobs.list_jobs(active=False) if j["key"] == job["key"]]:
            await asyncio.sleep(0.5)
