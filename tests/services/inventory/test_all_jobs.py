"""Tests of the jobs of others: queried on request, once for all clients, and never by the poller."""

from __future__ import annotations

import asyncio
import pwd
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jupyter_slurm.domain.queries.all_jobs import COLUMNS, all_jobs_argv, hides_jobs, parse_all_jobs
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import ControllerError, ParseError
from jupyter_slurm.services.inventory.all_jobs import AllJobs

pytestmark = [pytest.mark.here_only("what is asked goes by the client, as what is free")]

MARK = "0123456789abcdef"
HOSTILE = f"<b>|~{MARK}~|\n7 bob"


@pytest.fixture
def submit_as(cluster: EmbeddedCluster) -> Iterator[Callable[..., str]]:
    """Return ``submit_as(user, *options)``, which submits a job of another user until the end; returns its id."""
    ids: list[str] = []

    def submit(user: str, *options: str) -> str:
        done = subprocess.run(
            ["sbatch", "--parsable", "--chdir=/", "--output=/dev/null", *options, "--wrap=sleep 600"],
            env=cluster.env(), user=user, group=pwd.getpwnam(user).pw_gid, extra_groups=[], cwd="/",
            check=True, capture_output=True, text=True,
        )  # fmt: skip
        ids.append(done.stdout.strip())
        return ids[-1]

    yield submit
    cluster.run("scancel", *ids)


def _asked(cluster: EmbeddedCluster) -> int:
    """Return how often the controller was queried for the whole table."""
    lines = cluster.run("sdiag").stdout.splitlines()
    return next((int(line.partition("count:")[2].split()[0]) for line in lines if "REQUEST_JOB_INFO " in line), 0)


@pytest.mark.slurm
@pytest.mark.root
async def test_jobs_of_others_are_told_to_who_asks(
    cluster: EmbeddedCluster, tmp_path: Any, open_desk: Any, bob: str, submit_as: Callable[..., str]
) -> None:
    running = submit_as(bob, "-J", HOSTILE, "-p", "devwork", "--time=1:00:00")
    array = submit_as(bob, "-p", "arandu", "--hold", "--array=1-2000%3")
    async with open_desk(cluster, tmp_path) as desk:
        own = await desk.submit("#!/bin/sh\nsleep 300", "-p", "arandu")
        async with asyncio.timeout(60):
            while "RUNNING" not in cluster.run("squeue", "--noheader", f"--jobs={running}", "--format=%T").stdout:
                await asyncio.sleep(0.05)
        told = await desk.core.cluster(desk.id).inventory.all_jobs.to_api(wait=60.0)
        rows = {row[0]: dict(zip(told["columns"], row, strict=True)) for row in told["rows"]}
        assert (told["is_private"], told["interval"], told["unknown_since"]) == (False, 30.0, None)
        assert own["id"] not in rows
        assert {row["user"] for row in rows.values()} == {bob}
        seen = rows[running]
        assert (seen["partition"], seen["nodes"], seen["time_limit"], seen["reason"]) == (
            "devwork",
            "c4aiscw1",
            3600,
            "",
        )
        assert told["asked_at"] - 120 < seen["submit_time"] <= seen["start_time"]
        assert (rows[array]["tasks"], rows[array]["reason"], rows[array]["nodes"]) == (2000, "JobHeldUser", "")
        assert told["reasons"]["JobHeldUser"] == "It is held."
        assert HOSTILE.split("\n")[0] not in str(told), "a name is the person's own business"

        before = _asked(cluster)
        many = await asyncio.gather(
            *(desk.core.cluster(desk.id).inventory.all_jobs.to_api(wait=60.0) for _ in range(20))
        )
        assert all(one == told for one in many)
        assert _asked(cluster) <= before + 1, "at most the agent's own query of names"
        client = desk.core.cluster(desk.id).client
        with pytest.raises(ControllerError, match="has not reported") as caught:
            await AllJobs(client, "root", interval=10, clock=time.time).to_api(wait=0)
        assert caught.value.details == {"retry_after": 1}, "who shows it asks again by itself"
        await desk.core.cluster(desk.id).actions.cancel(own["key"])


@pytest.mark.slurm
@pytest.mark.root
async def test_running_jobs_of_all_users_are_summed(
    cluster: EmbeddedCluster, tmp_path: Any, open_desk: Any, bob: str, submit_as: Callable[..., str]
) -> None:
    """By user, account and partition, with GPUs by type; jobs without a time limit and array tasks count too."""
    several = submit_as(bob, "-p", "arandu", "--gpus=a100:2", "-c", "2", "--array=1-2", "--time=UNLIMITED")
    async with open_desk(cluster, tmp_path) as desk:
        own = await desk.submit("#!/bin/sh\nsleep 300", "-p", "devwork", "-c", "2", "--time=30")
        inventory = desk.core.cluster(desk.id).inventory
        async with asyncio.timeout(60):
            while cluster.run("squeue", "--noheader", "--array", "--format=%T").stdout.split() != ["RUNNING"] * 3:
                await asyncio.sleep(0.05)
        found = await inventory.running.to_api(wait=60.0)
        assert (found["is_private"], found["unknown_since"]) == (False, None)
        assert [(one["user"], one["partition"], one["jobs"], one["cpus"], one["gpus"]) for one in found["sums"]] == [
            (bob, "arandu", 2, 4, {"a100": 4}),
            (found["user"], "devwork", 1, 2, {}),
        ]
        before = _asked(cluster)
        assert await inventory.running.to_api(wait=60.0) == found
        assert _asked(cluster) <= before + 1, "at most the agent's own query of names"
        ends = {job.id.partition("_")[0]: job.end_time for job in await inventory.running.current(wait=0)}
        assert ends[several] == 0, "a job without a limit has no end"
        assert ends[own["id"]] > 0
        await desk.core.cluster(desk.id).actions.cancel(own["key"])


def test_rows_are_read_as_they_are() -> None:
    def row(*fields: str) -> str:
        return f"~{MARK}~".join(fields) + f"~{MARK};\n"

    rest = ("gpu", "lab", "normal", "n[1-2]", "1700000000", "N/A", "UNLIMITED")
    text = row("9", "ann", "RUNNING", "None", *rest) + row("12_[1-3,7%2]", "bob", "PENDING", "Nodes\nre: x, y", *rest)
    text += row("no id", "bob", "PENDING", "", *rest) + row("13+1", "1001", "SUSPENDED", "(null)", *rest)
    found = [dict(zip(COLUMNS, one, strict=True)) for one in parse_all_jobs(text.encode(), MARK, "ann")]
    assert [(one["id"], one["tasks"], one["user"], one["reason"]) for one in found] == [
        ("12", 4, "bob", "Nodes\nre: x, y"),
        ("13+1", None, "1001", ""),
    ]
    assert [found[0][name] for name in ("submit_time", "start_time", "time_limit")] == [1700000000, None, None]
    with pytest.raises(ParseError):
        parse_all_jobs(text.encode()[:-20], MARK, "ann")
    assert all_jobs_argv(MARK)[:4] == ["squeue", "--local", "--all", "--noheader"]
    assert hides_jobs({"PrivateData": "accounts,jobs,users"})
    assert not hides_jobs({"PrivateData": "none"})
