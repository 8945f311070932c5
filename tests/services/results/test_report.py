"""Tests of the report of a job's resource usage, and of its sources."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from jupyter_slurm.client.jobs.report import Report
from jupyter_slurm.domain.queries.job_usage import parse_gpus
from jupyter_slurm.errors import UsageError

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]

BUSY = """
import pathlib, time
held, end = bytearray(200 << 20), time.process_time() + {seconds}
while time.process_time() < end or not pathlib.Path({go!r}).exists():
    pass
"""


@pytest.mark.slow
async def test_of_a_running_job_by_its_nodes_then_by_the_runner(desk, tmp_path, wait_for):
    go, env = tmp_path / "go", {**desk.env, "JUPYTER_SLURM_USAGE_SECONDS": "0.3"}
    text = BUSY.format(seconds=2, go=str(go))
    job = await desk.submit(text, "-n2", "-t", "10", "--mem", "1G", context={"env": env})

    def told():
        report = asyncio.run_coroutine_threadsafe(desk.core.cluster(desk.id).results.report(job["key"]), loop).result()
        return report if (report["memory_peak"] or 0) > 200 << 20 and report["cpu_time"] else None

    loop = asyncio.get_running_loop()
    await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
    running = await asyncio.to_thread(wait_for, told, "its memory")
    assert (running["source"], running["cpus"], running["memory_asked"]) == ("sstat", 2, 1 << 30)
    assert running["memory_peak"] < 1 << 30
    assert running["time_limit"] == 600
    assert "The job has no GPUs." in repr(Report(running))

    def measured():
        usage = asyncio.run_coroutine_threadsafe(desk.core.cluster(desk.id).results.usage(job["key"]), loop).result()
        return usage if len(usage["points"]) > 2 else None

    usage = await asyncio.to_thread(wait_for, measured, "points of a plot")
    assert (usage["cpus"], usage["memory"], usage["gpus"]) == (2, 1 << 30, 0)
    assert "The job has no GPU that can be measured." in usage["note"]
    assert usage["points"][-1]["memory"] > 200 << 20
    assert 0 < max(point["cpus"] for point in usage["points"]) < 1.5
    assert [point["time"] for point in usage["points"]] == sorted(point["time"] for point in usage["points"])
    go.touch()
    await desk.finished(job["key"])
    assert len((await desk.core.cluster(desk.id).results.usage(job["key"]))["points"]) >= len(usage["points"])
    report = await desk.core.cluster(desk.id).results.report(job["key"])
    assert (report["source"], report["cpus"], report["state"]) == ("runner", 2, "COMPLETED")
    assert 200 << 20 < report["memory_peak"] < 1 << 30
    assert 2 <= report["cpu_time"] <= report["elapsed"] * 2
    assert report["cpu_efficiency"] == pytest.approx(report["cpu_time"] / report["elapsed"] / 2)
    text = repr(Report(report))
    assert "of 2 CPUs" in text
    assert "of 1.0 GiB" in text
    assert "source  runner of the cell, at its end" in text
    assert "The cluster has no accounting (sacct)." in text


@pytest.mark.slow
@pytest.mark.here_only("nothing of it depends on the way there")
async def test_what_nobody_knows_and_what_has_none(desk):
    job = await desk.submit("#!/bin/sh\ntrue\n")
    held = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
    array = await desk.submit("#!/bin/sh\ntrue\n", "--array=0-1")
    await asyncio.gather(desk.finished(job["key"]), desk.finished(array["key"]))
    report = await desk.core.cluster(desk.id).results.report(job["key"])
    assert (report["source"], report["cpu_time"]) == (None, None)
    usage = await desk.core.cluster(desk.id).results.usage(job["key"])
    assert (usage["points"], "Scripts are not measured." in usage["note"]) == ([], True)
    assert "while the job is running" in repr(Report(report))
    with pytest.raises(UsageError, match="has not started"):
        await desk.core.cluster(desk.id).results.report(held["key"])
    with pytest.raises(UsageError, match="each of its tasks has one"):
        await desk.core.cluster(desk.id).results.report(array["key"])
    assert (await desk.core.cluster(desk.id).results.report(f"{array['id']}_1"))["id"] == f"{array['id']}_1"


# As NVIDIA's program: a line for each GPU visible to the step.
NVIDIA_SMI = """#!/bin/sh
query="--query-gpu=name,utilization.gpu,memory.used,memory.total --format=csv,noheader,nounits"
[ "$*" = "$query --id=$CUDA_VISIBLE_DEVICES" ] || { echo "$* for $CUDA_VISIBLE_DEVICES" >&2; exit 9; }
for gpu in $(echo "$CUDA_VISIBLE_DEVICES" | tr , ' '); do
    echo "A100 $gpu of $SLURMD_NODENAME, step $SLURM_STEP_ID, 97, 71234, 81920"
done
"""


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.here_only("the cluster belongs to another test file as well")
async def test_by_the_accounting(accounting_cluster, open_desk, tmp_path, monkeypatch):
    """And its GPUs by nvidia-smi on its nodes, in a step that needs no free resources of the job."""
    tools, env = tmp_path / "tools", accounting_cluster.env()
    tools.mkdir()
    env["PATH"] = f"{tools}:{env.get('PATH', os.environ['PATH'])}"
    monkeypatch.setattr(accounting_cluster, "env", lambda: env)
    async with open_desk(accounting_cluster, tmp_path) as desk:
        busy = BUSY.format(seconds=4, go=str(tmp_path / "go"))
        job = await desk.submit(busy, "-n4", "-t", "5", "--mem", "1G", "-p", "arandu", "--gpus", "2")
        await desk.until(job["key"], lambda job: job["state"] == "RUNNING")
        running = await desk.core.cluster(desk.id).results.report(job["key"])
        assert (running["gpus_asked"], running["gpus"]) == (2, [])
        assert any(
            note == "The usage of its GPUs could not be read: the nodes of the job have no nvidia-smi."
            for note in running["notes"]
        )
        (tools / "nvidia-smi").write_text(NVIDIA_SMI)
        (tools / "nvidia-smi").chmod(0o755)
        running = await desk.core.cluster(desk.id).results.report(job["key"])
        told = {"utilization": 0.97, "memory_used": 71234 << 20, "memory_total": 80 << 30}
        assert running["gpus"] == [{"name": f"A100 {n} of dgx01, step 1", **told} for n in (0, 1)]
        assert "GPU     A100 0 of dgx01, step 1: 97% busy at this moment, 69.6 GiB of 80.0 GiB" in repr(Report(running))
        (tools / "nvidia-smi").write_text("#!/bin/sh\necho 'No devices were found'\n")
        assert (
            "nvidia-smi shows no GPU on the nodes of the job."
            in (await desk.core.cluster(desk.id).results.report(job["key"]))["notes"]
        )
        Path(tmp_path, "go").touch()
        await desk.finished(job["key"])
        (tools / "nvidia-smi").write_text(NVIDIA_SMI)
        whole = await desk.submit("#!/bin/sh\nsleep 600\n", "-t", "5", "-p", "arandu", "--exclusive")
        await desk.until(whole["key"], lambda job: job["state"] == "RUNNING")
        running = await desk.core.cluster(desk.id).results.report(whole["key"])
        names = [gpu["name"] for gpu in running["gpus"]]
        assert [name.partition(",")[0] for name in names] == [f"A100 {n} of dgx01" for n in range(8)], running["notes"]
        await desk.core.cluster(desk.id).actions.cancel(whole["key"])
        async with asyncio.timeout(90):
            report = await desk.core.cluster(desk.id).results.report(job["key"])
            # accounting receives the step after the job's end
            while report["source"] != "sacct" or not report["memory_peak"]:
                await asyncio.sleep(0.2)
                report = await desk.core.cluster(desk.id).results.report(job["key"])
        assert (report["cpus"], report["memory_asked"], report["time_limit"]) == (4, 1 << 30, 300)
        assert 200 << 20 < report["memory_peak"] < 1 << 30
        assert report["cpu_time"] > 3
        assert 0 < report["cpu_efficiency"] <= 0.5


def test_gpus_are_read_as_far_as_they_tell():
    printed = b"NVIDIA H200, 97, 71234, 143771\nNVIDIA A100-SXM4-40GB, [N/A], [N/A], 40960\nNo devices were found\n"
    first, second = parse_gpus(printed)
    assert first == {
        "name": "NVIDIA H200",
        "utilization": 0.97,
        "memory_used": 71234 << 20,
        "memory_total": 143771 << 20,
    }
    assert (second["utilization"], second["memory_total"]) == (None, 40960 << 20)
