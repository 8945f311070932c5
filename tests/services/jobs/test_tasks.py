"""Tests of the states and ends of array tasks and components, also without an answer of Slurm."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.client.render.job_card import as_text
from jupyter_slurm.errors import JobOutputMissing, UsageError
from jupyter_slurm.runner.variables import values_file as file_of

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh")]

SWEEP = {"names": ["n"], "rows": [["0"], ["1"], ["2"]]}
LARGE = {"names": ["n", "text"], "rows": [[str(n), repr(f"row {n}")] for n in range(10_000)]}
CELL = "assert n != 1\ngot = n * 10"
HET = '#!/bin/sh\necho "$SLURM_HET_SIZE $SLURM_JOB_PARTITION_HET_GROUP_1"\nsrun --het-group=0,1 true\n'
HET_CELL = "import os\nassert os.environ['SLURM_HET_SIZE'] == '2'"
ENDS = [[0, "COMPLETED", 0], [1, "FAILED", 1], [2, "COMPLETED", 0]]


def slurm(desk, *argv):
    return subprocess.run(argv, env={**os.environ, **desk.env}, check=True, capture_output=True, text=True).stdout


async def test_tasks_and_components_are_known_and_outlive_the_agent(cluster, open_desk, tmp_path, monkeypatch):
    wanted = {"in": [], "out": ["got"], "limit": 1000}
    async with open_desk(cluster, tmp_path) as desk:
        asked = _questions(desk, monkeypatch)
        large = await desk.submit("#!/bin/sh\ntrue\n", "-n1", "--hold", sweep=LARGE)
        # Half of them have records of their own, because of individual changes.
        await asyncio.to_thread(slurm, desk, "scontrol", "update", f"JobId={large['id']}_[0-4999]", "Nice=2")
        await asyncio.to_thread(slurm, desk, "scancel", f"{large['id']}_[9000-9999]")
        script = await desk.submit("#!/bin/sh\n[ $n != 1 ]\n", "-n1", sweep=SWEEP)
        cell = await desk.submit(CELL, "-n1", sweep=SWEEP, values=wanted)
        het = await desk.submit(HET, "-n1", "-p", "devwork", ":", "-n1", "-p", "arandu")
        ranks = await desk.submit(HET_CELL, "-n1", "-p", "devwork", ":", "-n1", "-p", "arandu")
        with pytest.raises(UsageError, match="only its first component"):
            await desk.submit("1", "-n1", ":", "-n1", launcher="srun")
        assert (script["array"], script["sweep"], het["array"]) == ("0-2", ["n"], None)
        ended = await asyncio.gather(*(desk.finished(job["key"]) for job in (script, cell, het)))
        assert [job["tasks"] for job in ended[:2]] == [{"COMPLETED": 2, "FAILED": 1}] * 2
        told = {
            job["key"]: await desk.core.cluster(desk.id).jobs.tasks(job["key"], parameters=True)
            for job in (script, cell)
        }
        assert [row[:3] for row in told[script["key"]]["rows"]] == ENDS
        for job in ended[:2]:
            table = told[job["key"]]
            rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
            assert (job["start_time"], job["end_time"]) == (
                min(row["start_time"] for row in rows),
                max(row["end_time"] for row in rows),
            )
            assert job["failed_task"] == {"task": 1, "state": "FAILED", "exit_code": 1, "signal": None}
            assert [row["reason_text"] for row in rows] == ["", "The job ended with exit code 1.", ""]
        assert told[cell["key"]]["parameters"] == [["0"], ["1"], ["2"]]
        components = await _components(desk, het)
        ended = await desk.finished(ranks["key"])
        assert {part["state"] for part in ended["components"]} == {"COMPLETED"}, (
            "never an end without those of its parts"
        )
        await _ten_thousand(desk, large, asked)
    await _are_known_to_the_next_agent(cluster, open_desk, tmp_path, told, cell["key"])
    async with open_desk(cluster, tmp_path) as desk:
        assert (await desk.job(het["key"]))["components"] == components
        assert (await desk.core.cluster(desk.id).jobs.tasks(het["key"], parameters=True))["rows"] == []
        assert (await desk.core.cluster(desk.id).jobs.task_values(het["key"], 0)) == {"values": [], "next": None}


def _questions(desk, monkeypatch):
    """Record the queries to Slurm from now on."""
    client, asked = desk.core.cluster(desk.id).client, []
    ask = client.query

    async def noted(argv):
        asked.append(argv[0])
        return await ask(argv)

    monkeypatch.setattr(client, "query", noted)
    return asked


async def _components(desk, job):
    seen = await desk.until(job["key"], lambda job: job["components"])
    assert await desk.text(job["key"]) == "2 arandu\n"
    told = [(part["id"], part["partition"]) for part in seen["components"]]
    assert told == [(f"{job['id']}+0", "devwork"), (f"{job['id']}+1", "arandu")]
    assert (seen["state"], seen["tasks"]) == ("COMPLETED", None)
    assert f"Component {job['id']}+1: COMPLETED, on dgx" in as_text(seen, [])
    return seen["components"]


async def _ten_thousand(desk, job, asked):
    """Check one row, and all tasks of it, without a query for a single task."""
    seen = await desk.until(job["key"], lambda job: (job["tasks"] or {}).get("PENDING") == 9_000)
    assert (seen["state"], seen["array"]) == ("PENDING", "0-9999")
    asked.clear()
    for _ in range(3):
        told = await desk.core.cluster(desk.id).jobs.tasks(job["key"], parameters=True)
    assert set(asked) <= {"squeue"}
    # Slurm no longer lists a task that was cancelled before its start.
    assert [told["rows"][task][:2] for task in (0, 8999, 9000)] == [
        [0, "PENDING"],
        [8999, "PENDING"],
        [9000, "UNKNOWN"],
    ]
    assert (len(told["rows"]), told["parameters"][9_999]) == (10_000, ["9999", "'row 9999'"])
    alone = [await desk.core.cluster(desk.id).actions.cancel(f"{job['id']}_{task}") for task in range(4_990, 5_010)]
    assert {task["state"] for task in alone} == {"CANCELLED"}
    assert (await desk.job(job["key"]))["tasks"] == {"CANCELLED": 20, "PENDING": 8_980}
    await desk.core.cluster(desk.id).actions.cancel(job["key"])


async def _are_known_to_the_next_agent(cluster, open_desk, tmp_path, told, cell):
    async with open_desk(cluster, tmp_path) as desk:
        listed = {job["key"]: job["tasks"] for job in await desk.core.cluster(desk.id).jobs.list_jobs(active=False)}
        assert [listed[key] for key in told] == [{"COMPLETED": 2, "FAILED": 1}] * 2
        for key, before in told.items():
            assert await desk.core.cluster(desk.id).jobs.tasks(key, parameters=True) == before
        values = await desk.core.cluster(desk.id).jobs.task_values(cell, 0)
        # for the failed task, the reason of the missing value
        assert [task for task, _ in values["values"]] == [0, 1, 2]
        assert base64.b64decode(values["values"][1][1]).startswith(file_of.MAGIC)
        assert (await desk.core.cluster(desk.id).jobs.task_values(cell, 1))["values"] == values["values"][1:]
        if not desk.way.is_remote:  # another program may have written there
            folder = Path((await desk.job(cell))["folder"])
            folder.chmod(0o777)
            assert (await desk.core.cluster(desk.id).jobs.task_values(cell, 0))["values"] == []
            with pytest.raises(UsageError, match=f"not trusted: other users can write to the folder {folder}"):
                await desk.core.cluster(desk.id).results.record(cell)
            with pytest.raises(JobOutputMissing, match=f"not read: other users can write to the folder {folder}"):
                await desk.core.cluster(desk.id).results.output(cell, "values", 0, 0)
            folder.chmod(0o700)
    for file in Path(tmp_path).rglob("tasks.json"):
        file.write_text("[" if file.parent.name == cell else '{"columns": 1}')
    async with open_desk(cluster, tmp_path) as desk:
        rows = (await desk.core.cluster(desk.id).jobs.tasks(cell, parameters=False))["rows"]
        assert [row[:3] for row in rows] == ENDS  # only the runner's markers are left
        other = next(key for key in told if key != cell)
        rows = (await desk.core.cluster(desk.id).jobs.tasks(other, parameters=False))["rows"]
        assert {row[1] for row in rows} == {"UNKNOWN"}


async def test_more_tasks_than_the_cluster_takes_are_refused_with_a_hint(desk):
    table = {"names": ["n"], "rows": [["0"]] * 60_000}
    with pytest.raises(UsageError, match="60,000 tasks, but this cluster holds at most 59,999 jobs") as caught:
        await desk.submit("#!/bin/sh\ntrue\n", "-n1", sweep=table)
    assert "Submit fewer tasks" in caught.value.hint


@pytest.mark.here_only("what the number means is decided above the connection")
async def test_the_second_number_of_a_task_never_stands_for_the_array(desk):
    job = await desk.submit("#!/bin/sh\ntrue\n", "-n1", "--hold", "--array=0-2")
    slurm(desk, "scontrol", "update", f"JobId={job['id']}_0", "TimeLimit=7")  # Slurm gives this task a number
    shown = slurm(desk, "squeue", "-h", "-r", "-j", job["id"], "-O", "arraytaskid,jobid")
    number = dict(line.split() for line in shown.splitlines())["0"]
    assert number != job["id"]
    far = desk.core.cluster(desk.id)
    for act in ("requeue", "limit", "cancel"):
        (answer,) = await far.actions.act(act, [number], "9" if act == "limit" else None)
        assert f"is {job['id']}_0, which is a part of job {job['id']}" in answer["error"]["detail"]
        assert f"Give the ID {job['id']}_0." in answer["error"]["hint"]
    with pytest.raises(UsageError, match="which is a part of job"):
        await far.jobs.find(number)
    (answer,) = await far.actions.act("cancel", [f"{job['id']}_0"])
    assert answer["error"] is None
    # an answer of the queue from before the cancellation may come after it
    await desk.until(job["key"], lambda one: one["tasks"] == {"CANCELLED": 1, "PENDING": 2})
    await far.actions.cancel(job["key"])
