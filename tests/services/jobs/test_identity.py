"""Tests of the identity of job numbers: ids restart when a controller has lost its state."""

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("openssh")]

SCRIPT = "#!/bin/sh\nsleep 120\n"


def by_hand(desk):
    argv = ["sbatch", "--parsable", "-J", "precious", "-o", "/dev/null", "--wrap", "sleep 120"]
    return subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True, cwd="/").stdout.strip()


def state_of(desk, number):
    argv = ["squeue", "-h", "-t", "all", "-j", number, "-o", "%T"]
    return subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout.strip()


async def lose_state(cluster):
    """Restart the controller with an empty StateSaveLocation."""
    await asyncio.to_thread(cluster.stop)
    await asyncio.to_thread(cluster.start)


async def test_job_that_got_a_lost_number_is_another_one(new_cluster, open_desk, tmp_path):
    cluster = new_cluster(extra=("FirstJobId=1",))
    async with open_desk(cluster, tmp_path) as desk:
        old = await desk.submit(SCRIPT)
        await desk.until(old["key"], lambda j: j["state"] == "RUNNING")
        await lose_state(cluster)
        number = await asyncio.to_thread(by_hand, desk)
        assert number == old["id"]
        ended = await desk.until(old["key"], lambda j: j["finished"])
        assert (ended["state"], ended["id"]) == ("UNKNOWN", number)
        await desk.core.cluster(desk.id).actions.cancel(old["key"])
        assert state_of(desk, number) in ("PENDING", "RUNNING")
        # A job of jupyter_slurm gets the next number, which a lost job had before.
        mine = await desk.submit(SCRIPT)
        # If a query of the empty queue in between has set UNKNOWN, the number is known after the next query.
        found = await desk.until(number, lambda j: j["key"] is None)
        assert (found["name"], found["finished"]) == ("precious", False)
        assert (await desk.core.cluster(desk.id).actions.cancel(mine["key"]))["state"] in ("CANCELLED", "COMPLETING")
        assert state_of(desk, number) in ("PENDING", "RUNNING")


async def test_new_agent_does_not_cancel_what_got_the_number(new_cluster, open_desk, tmp_path):
    cluster = new_cluster(extra=("FirstJobId=1",))
    async with open_desk(cluster, tmp_path) as desk:
        old = await desk.submit(SCRIPT)
        if len(str(old["id"])) > 1:
            pytest.fail("ids do not begin with 1")
    # Killed before the queue listed the job: then its submit time is unknown.
    path = Path(old["folder"], "job.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "job": {"id": old["id"], "submit_time": None}}))
    await lose_state(cluster)
    number = await asyncio.to_thread(by_hand, desk)
    assert number == old["id"]
    async with open_desk(cluster, tmp_path) as desk:
        await desk.core.cluster(desk.id).actions.cancel(old["key"])
        assert state_of(desk, number) in ("PENDING", "RUNNING")
        assert (await desk.job(old["key"]))["state"] == "UNKNOWN"
        await desk.until(number, lambda j: j["key"] is None)


async def test_job_is_recognized_by_its_script_when_its_submit_time_is_not_known(cluster, open_desk, tmp_path):
    async with open_desk(cluster, tmp_path) as desk:
        job = await desk.submit(SCRIPT, "--hold")
    path = Path(job["folder"], "job.json")
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "job": {"id": job["id"], "submit_time": None}}))
    async with open_desk(cluster, tmp_path) as desk:
        assert (await desk.core.cluster(desk.id).actions.cancel(job["key"]))["state"] == "CANCELLED"
        submitted = json.loads(path.read_text())["job"]["submit_time"]
        shown = subprocess.run(
            ["squeue", "-h", "-t", "all", "-j", job["id"], "-o", "%V"],
            env={**desk.env, "SLURM_TIME_FORMAT": "%s"}, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert submitted == int(shown)
