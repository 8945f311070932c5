"""Tests of a job's end that nobody has observed and the controller has forgotten."""

import asyncio
import dataclasses
import json
import os
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.carrier("openssh")]


@pytest.fixture(scope="module", params=[False, True], ids=["no-accounting", "accounting"])
def forgetful(request, short_tmp):
    """Provide a cluster whose controller forgets jobs two seconds after their end, without and with slurmdbd."""
    description = load_description()
    description = dataclasses.replace(description, extra=(*description.extra, "MinJobAge=2"), accounting=request.param)
    directory = short_tmp / f"e{int(request.param)}"
    with EmbeddedCluster(description, directory=directory) as running:
        yield running, request.param


def is_forgotten(desk, job):
    argv = ["squeue", "-h", "-t", "all", "-j", job["id"], "-o", "%T"]
    done = subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=False)
    return not done.stdout.strip()


async def test_python_cell_by_its_end_marker_script_by_the_accounting_or_unknown(
    forgetful, open_desk, tmp_path, wait_for
):
    cluster, accounting = forgetful
    async with open_desk(cluster, tmp_path) as desk:
        cell = await desk.submit("import sys; sys.exit(4)", "-n2", "--mem=300M")
        script = await desk.submit("#!/bin/sh\necho here\nexit 5\n")
    for job in (cell, script):
        wait_for(lambda job=job: Path(job["folder"], "stdout").exists(), "the job started")
        wait_for(lambda job=job: is_forgotten(desk, job), "the controller forgot the job")
    if accounting:
        argv = ["sacct", "-X", "-n", "-P", "-j", script["id"], "-o", "State"]
        wait_for(
            lambda: "FAILED" in subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout,
            "slurmdbd knows the end",
        )
    async with open_desk(cluster, tmp_path) as desk:
        ended = await desk.finished(cell["key"])
        assert (ended["state"], ended["exit_code"]) == ("FAILED", 4)
        # The queue never listed the job, its runner reported it.
        assert (ended["partition"], bool(ended["account"])) == ("devwork", accounting)
        assert ended["nodes"].startswith("c4aiscw")
        report = await desk.core.cluster(desk.id).results.report(cell["key"])  # its resources are known, too
        assert (report["source"], report["cpus"]) == ("sacct" if accounting else "runner", 2)
        assert report["memory_asked"] == 300 << 20
        assert report["cpu_efficiency"] is not None or report["elapsed"] == 0  # accounting counts whole seconds
        ended = await desk.finished(script["key"])
        assert (ended["state"], ended["exit_code"]) == (("FAILED", 5) if accounting else ("UNKNOWN", None))
        assert await desk.text(script["key"]) == "here\n"
    record = json.loads(Path(script["folder"], "job.json").read_text())
    assert record["end"]["state"] == ended["state"]


@pytest.mark.parametrize("own_output", [False, True], ids=["our-output", "own-output"])
async def test_job_that_came_and_went_before_anybody_looked_does_not_run_again(
    forgetful, open_desk, tmp_path, wait_for, own_output
):
    """As after a sleep of the machine between sbatch and its answer: a missing job in the queue proves nothing."""
    cluster, accounting = forgetful
    sbatch = tmp_path / "bin" / "sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(
        '#!/bin/sh\ncase "$*" in *--parsable*) ;; *) exec /usr/bin/sbatch "$@";; esac\n'
        f'/usr/bin/sbatch "$@" >/dev/null\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.1; done\nkill -9 $$\n'
    )
    sbatch.chmod(0o755)
    async with open_desk(cluster, tmp_path, submit_timeout=1.0) as desk:
        env = {**desk.env, "PATH": f"{sbatch.parent}:{os.environ['PATH']}"}
        options = ["-o", "/dev/null"] if own_output else []
        job = await desk.submit(f"#!/bin/sh\necho ran >> {tmp_path}/ran\n", *options, context={"env": env})
        assert job["state"] == "SUBMITTING"
        await asyncio.to_thread(wait_for, (tmp_path / "ran").exists, "the job to run")
        queue = ["squeue", "--me", "-h", "-t", "all", "-o", "%o"]
        await asyncio.to_thread(
            wait_for,
            lambda: (
                job["script_path"] not in subprocess.run(queue, env=desk.env, capture_output=True, text=True).stdout
            ),
            "the controller to forget the job",
            timeout=120,
        )
        (tmp_path / "go").touch()
        ended = await desk.until(job["key"], lambda j: j["finished"])
        assert (ended["state"], ended["id"] is None) == (("COMPLETED", False) if accounting else ("UNKNOWN", True))
        if own_output and not accounting:
            assert ended["error"]["type"].endswith("submission-unknown")
            assert "/dev/null" in ended["error"]["hint"]
    assert (tmp_path / "ran").read_text() == "ran\n"
    assert not Path(job["folder"], "submit.2.out").exists()


async def test_job_of_the_past_is_adopted_from_the_accounting(forgetful, open_desk, tmp_path, wait_for):
    cluster, accounting = forgetful
    if not accounting:
        pytest.skip("there is no past without accounting")
    async with open_desk(cluster, tmp_path) as desk:
        argv = ["sbatch", "--parsable", "-o", "/dev/null", "--wrap", "exit 6"]
        number = subprocess.run(argv, env=desk.env, capture_output=True, text=True, check=True).stdout.strip()
        wait_for(lambda: is_forgotten(desk, {"id": number}), "the controller forgot the job")
        ended = await desk.until(number, lambda job: job["finished"])
        assert (ended["state"], ended["exit_code"]) == ("FAILED", 6)
