"""Tests of arrays in parts: submitted once, completely or not at all, despite events between two parts."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import JobError, SubmissionUnknown, SubmitRefused
from jupyter_slurm.services.jobs.array_parts import divided

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("the parts are submissions like others, which are tried there")]

SCRIPT = "#!/bin/sh\ntrue\n"


@pytest.fixture
def cluster(strict_cluster: EmbeddedCluster) -> EmbeddedCluster:
    return strict_cluster


@pytest.mark.parametrize("odd", ["...", "", "x", "3-1", "0-3", "1,2%0"])
def test_what_slurm_takes_or_refuses_as_it_is_has_no_parts(odd):
    assert divided("20260101-000000-00000000", odd, {}, (4, 1000)) == []
    assert divided("20260101-000000-00000000", "0-9", {}, (0, 1000)) == []  # MaxArraySize is unknown


def in_queue(cluster: EmbeddedCluster, states: str = "all") -> list[str]:
    return cluster.run("squeue", "-h", f"--states={states}", "-o", "%F %o").stdout.split("\n")[:-1]


async def test_a_part_that_is_refused_takes_the_others_with_it(desk, cluster):
    with pytest.raises(SubmitRefused, match=r"^Tasks 4-6 of this array: sbatch refused the job: QOSMaxSub") as caught:
        await desk.submit(SCRIPT, "-n1", "--hold", "--array=0-6", "--qos=few")
    assert "The parts that were submitted are cancelled: " in caught.value.hint
    number = caught.value.hint.rstrip(".").split(": ")[-1]
    ended = await desk.until(number, lambda job: job["finished"])
    assert ended["state"] == "CANCELLED"
    assert "Tasks 4-6 of this array: " in ended["warnings"][-1]


async def test_the_rest_of_an_array_whose_first_part_has_ended_is_acted_on(desk, cluster):
    submitted = await desk.submit(SCRIPT, "-n1", "--hold", "--array=0-9")
    far = desk.core.cluster(desk.id)
    first = far.tracker.find(submitted["key"])
    cluster.run("scancel", str(first.id))
    await desk.until(submitted["key"], lambda _: first.is_finished)
    numbers = {str(part.id) for part in far.tracker.parts(first)[1:]}
    assert len(numbers) == 2
    (answer,) = await far.actions.act("limit", [submitted["key"]], "7")
    assert answer["error"] is None
    limits = cluster.run("squeue", "-h", "--states=pending", "-o", "%F %l").stdout.split("\n")
    assert dict.fromkeys(numbers, "7:00").items() <= dict(line.split() for line in limits if line).items()
    (answer,) = await far.actions.act("cancel", [submitted["key"]])
    assert answer["error"] is None
    ended = await desk.until(submitted["key"], lambda job: job["finished"])
    assert ended["state"] == "CANCELLED"
    assert not numbers & {line.split()[0] for line in in_queue(cluster, "pending")}
    (answer,) = await far.actions.act("cancel", [submitted["key"]])  # nothing is left to cancel
    assert answer["error"] is None
    (answer,) = await far.actions.act("hold", [submitted["key"]])
    assert "has ended" in answer["error"]["detail"]


@pytest.fixture
def slow_second_sbatch(tmp_path: Path) -> tuple[Path, str]:
    """Provide a file that the second sbatch waits for, and the PATH with that sbatch."""
    go, calls = tmp_path / "go", tmp_path / "calls"
    wrapper = tmp_path / "bin" / "sbatch"
    wrapper.parent.mkdir()
    wrapper.write_text(
        f'#!/bin/sh\necho x >> {calls}\nwhile [ "$(wc -l < {calls})" = 2 ] && [ ! -e {go} ]; do sleep 0.1; done\n'
        'exec /usr/bin/sbatch "$@"\n'
    )
    wrapper.chmod(0o755)
    return go, f"{wrapper.parent}:{os.environ['PATH']}"


async def test_an_agent_that_ends_between_two_parts_leaves_no_doubt(cluster, open_desk, tmp_path, slow_second_sbatch):
    """The agent ends during the second sbatch: the part is found. The third part is reported as not submitted."""
    go, path = slow_second_sbatch
    async with open_desk(cluster, tmp_path, submit_timeout=1.0) as desk:
        asked = desk.asked(SCRIPT, "-n1", "--hold", "--array=0-9", context={"env": {**desk.env, "PATH": path}})
        told = await desk.core.cluster(desk.id).submit(asked)
        assert (told["array"], told["state"], [part["id"] is None for part in told["parts"]]) == (
            "0-9",
            "PENDING",
            [False, True, True],
        )
        assert told["tasks"]["SUBMITTING"] == 6
    go.touch()
    async with open_desk(cluster, tmp_path) as desk:
        known = await desk.until(told["key"], lambda job: job["parts"][1]["id"])
        assert (known["parts"][2]["id"], known["tasks"]["NOT_SUBMITTED"]) == (None, 2)
        assert "Tasks 8-9 were not submitted" in known["error"]["detail"]
        rows = (await desk.core.cluster(desk.id).jobs.tasks(told["key"], parameters=False))["rows"]
        assert [row[:2] for row in rows[7:]] == [[7, "PENDING"], [8, "NOT_SUBMITTED"], [9, "NOT_SUBMITTED"]]
        assert len(await desk.core.cluster(desk.id).jobs.list_jobs(active=True)) == 1
        # A repeated request submits the rest, and nothing twice.
        again = await desk.core.cluster(desk.id).submit(asked)
        assert [part["id"] for part in again["parts"][:2]] == [part["id"] for part in known["parts"][:2]]
        assert (again["parts"][2]["id"] is not None, again["error"]) == (True, None)
        paths = [line.split(" ", 1)[1] for line in in_queue(cluster)]
        ours = [path for path in paths if path.startswith(desk.root)]
        assert len(ours) == len(set(ours)) == 3
        await desk.core.cluster(desk.id).actions.cancel(told["key"])
        ended = await desk.until(told["key"], lambda job: job["finished"])
        assert (ended["state"], {part["state"] for part in ended["parts"]}) == ("CANCELLED", {"CANCELLED"})
        removed: list[str] = []
        async with asyncio.timeout(60):
            while len(removed) < 3:  # one that ended in the present second is not old enough
                cleaned: Any = await desk.core.housekeeping.clean(older_than_days=0.0)
                removed += [path for path in cleaned["removed"] if path.startswith(desk.root)]
                await asyncio.sleep(0.2)
        assert len(removed) == len(set(removed)) == 3


async def test_a_signal_leaves_no_part_out(cluster, open_desk, tmp_path, slow_second_sbatch):
    go, path = slow_second_sbatch
    async with open_desk(cluster, tmp_path, submit_timeout=1.0) as desk:
        sleeps = "#!/bin/sh\nsleep 1000\n"
        job = await desk.submit(sleeps, "-n1", "--array=0-9", context={"env": {**desk.env, "PATH": path}})
        while not any(line.startswith(job["id"]) for line in in_queue(cluster, "running")):
            await asyncio.sleep(0.2)
        with pytest.raises(SubmissionUnknown, match="it cannot get a signal"):  # the second part
            await desk.core.cluster(desk.id).actions.cancel(job["key"], "USR1")
        go.touch()
        await desk.until(job["key"], lambda job: all(part["id"] for part in job["parts"]))
        await desk.core.cluster(desk.id).actions.cancel(job["key"])
        held = await desk.submit(SCRIPT, "--hold", "-n1")
        with pytest.raises(JobError, match=r"Job \d+ has not started"):  # scancel would wait for that
            await desk.core.cluster(desk.id).actions.cancel(held["key"], "USR1")
        assert (await desk.core.cluster(desk.id).actions.cancel(held["key"]))["state"] == "CANCELLED"
