"""How the tasks of an array ended, when Slurm is not there to tell."""

from __future__ import annotations

import asyncio
import base64
import os
import subprocess
from pathlib import Path

import pytest

from jupyter_slurm.runner import values as file_of

pytestmark = pytest.mark.slurm

SWEEP = {"names": ["n"], "rows": [["0"], ["1"], ["2"]]}
CELL = "assert n != 1\ngot = n * 10"


async def test_ends_of_tasks_outlive_the_agent(cluster, open_desk, tmp_path):
    wanted = {"in": [], "out": ["got"], "limit": 1000}
    async with open_desk(cluster, tmp_path) as desk:
        script = await desk.submit("#!/bin/sh\n[ $n != 1 ]\n", "-n1", sweep=SWEEP)
        cell = await desk.submit(CELL, "-n1", sweep=SWEEP, values=wanted)
        assert (script["array"], script["sweep"]) == ("0-2", ["n"])
        for job in (script, cell):
            assert (await desk.finished(job["key"]))["tasks"] == {"COMPLETED": 2, "FAILED": 1}
        told = {job["key"]: await desk.core.tasks(desk.id, job["key"], parameters=True) for job in (script, cell)}
    assert [row[:3] for row in told[script["key"]]["rows"]] == [
        [0, "COMPLETED", 0],
        [1, "FAILED", 1],
        [2, "COMPLETED", 0],
    ]
    assert told[cell["key"]]["parameters"] == [["0"], ["1"], ["2"]]
    await _is_known_to_the_next_agent(cluster, open_desk, tmp_path, told, cell["key"])


async def _is_known_to_the_next_agent(cluster, open_desk, tmp_path, told, cell):
    async with open_desk(cluster, tmp_path) as desk:
        for key, before in told.items():
            assert await desk.core.tasks(desk.id, key, parameters=True) == before
        values = await desk.core.values(desk.id, cell, 0)
        assert [task for task, _ in values["values"]] == [0, 1, 2]  # of the one that failed, why there is no value
        assert base64.b64decode(values["values"][1][1]).startswith(file_of.MAGIC)
        assert (await desk.core.values(desk.id, cell, 1))["values"] == values["values"][1:]
        if not desk.way.is_remote:  # others can have written there
            folder = Path((await desk.job(cell))["folder"])
            folder.chmod(0o777)
            assert (await desk.core.values(desk.id, cell, 0))["values"] == []
            folder.chmod(0o700)
    for file in Path(tmp_path).rglob("tasks.json"):
        file.write_text("[" if file.parent.name == cell else '{"columns": 1}')
    async with open_desk(cluster, tmp_path) as desk:
        rows = (await desk.core.tasks(desk.id, cell, parameters=False))["rows"]
        # The runner's own markers are left.
        assert [row[:3] for row in rows] == [[0, "COMPLETED", 0], [1, "FAILED", 1], [2, "COMPLETED", 0]]
        other = next(key for key in told if key != cell)
        rows = (await desk.core.tasks(desk.id, other, parameters=False))["rows"]
        assert {row[1] for row in rows} == {"UNKNOWN"}


async def test_a_job_that_is_no_array_has_no_tasks(desk):
    job = await desk.submit("#!/bin/sh\ntrue\n", "--hold")
    assert job["array"] is None
    assert (await desk.core.tasks(desk.id, job["key"], parameters=True))["rows"] == []
    assert (await desk.core.values(desk.id, job["key"], 0)) == {"values": [], "next": None}


def slurm(desk, *argv):
    return subprocess.run(argv, env={**os.environ, **desk.env}, check=True, capture_output=True, text=True).stdout


async def test_ten_thousand_tasks_are_told_at_once_and_in_one_row(desk, monkeypatch):
    """Half of them are records of their own, since something was said of them alone."""
    table = {"names": ["n", "text"], "rows": [[str(n), repr(f"row {n}")] for n in range(10_000)]}
    job = await desk.submit("#!/bin/sh\ntrue\n", "-n1", "--hold", sweep=table)
    await asyncio.to_thread(slurm, desk, "scontrol", "update", f"JobId={job['id']}_[0-4999]", "Nice=2")
    await asyncio.to_thread(slurm, desk, "scancel", f"{job['id']}_[9000-9999]")
    client, asked = desk.core._cluster(desk.id).client, []
    ask = client.ask

    async def counted(argv):
        asked.append(argv[0])
        return await ask(argv)

    monkeypatch.setattr(client, "ask", counted)
    seen = await desk.until(job["key"], lambda job: (job["tasks"] or {}).get("PENDING") == 9_000)
    assert (seen["state"], seen["array"]) == ("PENDING", "0-9999")
    for _ in range(3):
        told = await desk.core.tasks(desk.id, job["key"], parameters=True)
    assert set(asked) == {"squeue"}
    # Slurm does not tell of a task any more that was cancelled before it began.
    assert [told["rows"][task][:2] for task in (0, 8999, 9000)] == [
        [0, "PENDING"],
        [8999, "PENDING"],
        [9000, "UNKNOWN"],
    ]
    assert (len(told["rows"]), told["parameters"][9_999]) == (10_000, ["9999", "'row 9999'"])
    await desk.core.cancel(desk.id, job["key"])
