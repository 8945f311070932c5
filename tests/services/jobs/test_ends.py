"""Tests of how jobs end and why they wait, each on a real cluster: the explanation, and the next step."""

from __future__ import annotations

import asyncio
import re
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.root,
    pytest.mark.here_only("nothing of it depends on the way there"),
]

SLEEP = "#!/bin/sh\nexec sleep 300\n"

ENDS = {
    # script: state, exit code, signal, explanation, next step
    "exit 1": ("FAILED", 1, None, "ended with exit code 1", "last lines of its output"),
    "no-such-command": ("FAILED", 127, None, "A command was not found.", "Load its module"),
    "/etc/passwd": ("FAILED", 126, None, "could not be run", "chmod +x"),
    "sh -c 'kill -9 $$'": ("FAILED", 137, None, "A program of the job was ended by SIGKILL", "memory limit"),
    "kill -9 $$": ("FAILED", None, 9, "The job was ended by SIGKILL", "memory limit"),
    "kill -11 $$": ("FAILED", None, 11, "The job was ended by SIGSEGV", "an error in the program"),
    "kill -15 $$": ("FAILED", None, 15, "The job was ended by SIGTERM", "scancel, preemption"),
}
WAITS = {
    # options: reason, explanation, next step
    "--hold": ("JobHeldUser", "It is held.", "scontrol release {id}"),
    "--begin=now+1hour": ("BeginTime", "earliest start time", "automatically"),
    "-L solver:1": ("Licenses", "waits for a licence|Waits for 1 licence of solver; 0 of 1 ", "scontrol show licenses"),
    "--qos=one": (
        "QOSMaxJobsPerUserLimit",
        "limit of the QOS for jobs for one user|The QOS one allows 1 job at a time, counting each array task; 1 run",
        "have ended",
    ),
    "-p short -t 30": (
        "PartitionTimeLimit",
        "longer than the partition allows|It requests 30:00; partition short allows ",
        "scontrol update jobid={id} timelimit=",
    ),
    "-w c4aiscw2": ("ReqNodeNotAvail", "Nodes: c4aiscw2|Not available: c4aiscw2", "without naming nodes"),
    "--reservation=later": ("Reservation", "[Ww]aits for its reservation", "automatically"),
    "-w c4aiscw1 --exclusive": ("Resources", "Next in line|Waits for ", ""),
    "-w c4aiscw1 --exclusive --nice=1000": (
        "Nodes required for job",
        "down, drained or reserved|Not available: |Waits for ",
        "sinfo -R shows why",
    ),
}
BEFORE = ("-L solver:1", "--qos=one", "--array=0-1%1")


@pytest.fixture
def cluster(strict_cluster: EmbeddedCluster) -> EmbeddedCluster:
    return strict_cluster


async def submit(desk: Any, text: str, *options: str) -> dict[str, Any]:
    return await desk.submit(text, "-c1", "--mem=100", *options)


def is_said(job: dict[str, Any], words: str, step: str) -> bool:
    return words in job["reason_text"] and step.format(id=job["id"]) in job["next_step"]


async def test_every_end_has_words_and_a_next_step(desk, cluster):
    failed = {text: await submit(desk, f"#!/bin/sh\n{text}\n") for text in ENDS}
    for text, (state, code, signal, words, step) in ENDS.items():
        ended = await desk.finished(failed[text]["key"])
        assert (ended["state"], ended["exit_code"], ended["signal"]) == (state, code, signal), text
        assert is_said(ended, words, step), ended
    cancelled = await submit(desk, SLEEP, "--hold")
    lost = await submit(desk, SLEEP, "--no-requeue", "-w", "c4aiscw2")
    late = await submit(desk, SLEEP, "-w", "c4aiscw2", "--exclusive", "-t1", "--deadline=now+65seconds")
    victim = await submit(desk, SLEEP, "-p", "short", "-w", "c4aiscw1")
    never = await submit(desk, SLEEP, f"--dependency=afterok:{failed['exit 1']['id']}")
    blind = await submit(desk, SLEEP, "-o", "/proc/no/such/folder/out")
    await asyncio.gather(*(desk.until(job["key"], lambda job: job["state"] == "RUNNING") for job in (lost, victim)))
    await desk.core.cluster(desk.id).actions.cancel(cancelled["key"])
    taker = await submit(desk, "#!/bin/sh\ntrue\n", "-p", "high", "-w", "c4aiscw1", "--exclusive")
    cluster.kill_node("c4aiscw2")
    cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=down", "reason=test")
    try:
        ended = await desk.finished(late["key"])  # before its node is back
        assert (ended["state"], is_said(ended, "at its deadline", "a later --deadline")) == ("DEADLINE", True), ended
        ended = await desk.finished(lost["key"])
        assert (ended["state"], is_said(ended, "A node of the job failed.", "--exclude=NODE")) == ("NODE_FAIL", True)
        waits = await desk.until(never["key"], lambda job: job["reason"] == "DependencyNeverSatisfied")
        assert is_said(waits, f"Job {failed['exit 1']['id']} (cell.sh) ended as FAILED.", "remove the dependency")
    finally:
        cluster.start_node("c4aiscw2")
        # the node may be back by itself
        cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=resume", check=False)
    ended = await desk.finished(victim["key"])
    assert (ended["state"], ended["exit_code"]) == ("PREEMPTED", None)
    assert is_said(ended, "A job of higher priority took the nodes.", "with `resume`")
    ended = await desk.finished(blind["key"])
    assert is_said(ended, "output file could not be opened", "Create the directory of --output"), ended
    ended = await desk.finished(cancelled["key"])
    assert (ended["reason_text"], ended["exit_code"]) == ("The job was cancelled.", None)
    assert (await desk.finished(taker["key"]))["state"] == "COMPLETED"
    await desk.core.cluster(desk.id).actions.cancel(never["key"])


async def test_every_reason_to_wait_has_words_and_a_next_step(desk, cluster):
    cluster.run("scontrol", "create", "reservation", "reservationname=later", "users=root", "starttime=now+1hour",
                "duration=10", "nodecnt=1")  # fmt: skip
    before = [await submit(desk, SLEEP, "-t5", "-w", "c4aiscw1", *options.split()) for options in BEFORE]
    await asyncio.gather(*(desk.until(job["key"], lambda job: job["state"] == "RUNNING") for job in before))
    cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=drain", "reason=test")
    try:
        waiting = {options: await submit(desk, SLEEP, "-t5", *options.split()) for options in WAITS}
        admin = await submit(desk, SLEEP, "--hold")
        cluster.run("scontrol", "hold", admin["id"])
        for options, (reason, words, step) in WAITS.items():
            # In numbers, as soon as they are known. Slurm 24.11 does not say which of the requested nodes it waits for.
            told = await desk.until(
                waiting[options]["key"],
                lambda job, reason=reason, words=words: (
                    reason in job["reason"] and re.search(words, job["reason_text"])
                ),
            )
            assert step.format(id=told["id"]) in told["next_step"], told
        told = await desk.until(admin["key"], lambda job: job["reason"] == "JobHeldAdmin")
        assert is_said(told, "An administrator has held it.", "who alone can release it")
        task = await desk.job(f"{before[-1]['id']}_1")
        assert is_said(task, "that you allowed at a time is", "arraytaskthrottle"), task
    finally:
        cluster.run("scontrol", "update", "nodename=c4aiscw2", "state=resume", check=False)
        cluster.run("scontrol", "delete", "reservation=later", check=False)
