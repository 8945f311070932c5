"""Tests of the magics that query a database, on a cluster with accounting."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.here_only("what is said is the database's; %squeue and %sinfo go the same way over SSH"),
]


@pytest.fixture(scope="module")
def cluster(accounting_cluster: EmbeddedCluster) -> EmbeddedCluster:
    """Provide the cluster with accounting for the kernel of this module."""
    return accounting_cluster


def test_what_was_and_what_runs(kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> None:
    kernel.ok("%%sbatch -p arandu as=job -J 'a|b <i>'\n#!/bin/sh\nsleep 1000")
    kernel.ok("%%sbatch -p arandu as=failed\n#!/bin/sh\nexit 3")
    job, number = kernel.value("job.id, failed.id").split()
    # The database receives the end of a job a little later.
    argv = ["sacct", "-n", "-P", "-X", "-o", "State", "-j"]
    wait_for(lambda: cluster.run(*argv, number).stdout == "FAILED\n", "the end of one")
    wait_for(lambda: cluster.run(*argv, job).stdout == "RUNNING\n", "the beginning of the other")
    kernel.ok("table = %sacct -X -j {failed} -j {job}")
    assert kernel.value("dict(zip(table['JobID'], table['State']))") == f"{{'{job}': 'RUNNING', '{number}': 'FAILED'}}"
    frame = "table.to_pandas().set_index('JobID')"
    assert kernel.value(f"*{frame}.loc[['{job}', '{number}'], 'ExitCode']") == "0:0 3:0"
    assert kernel.value(f"{frame}.loc['{job}', 'JobName']") == "a|b <i>"

    kernel.ok("import jupyter_slurm\nfree = jupyter_slurm.resources()")
    assert kernel.value("*free.partitions['PARTITION']") == "arandu devwork*"
    assert kernel.value("free.use['jobs'] >= 1, free.unknown_since") == "True None"
    assert kernel.value("*[row for row in free.limits.rows if row[1] == 'urgent']") == (
        "['you, QOS', 'urgent', 'GPUs', '2', '0']"
    )

    kernel.ok("queue = %squeue --me -j {job}")
    assert kernel.value("queue.to_pandas().to_dict('list')['JOBID']") == f"['{job}']"
    for line in ("-a {job}", "{job}.batch", "-j {job}"):
        kernel.ok(f"used = %sstat {line}")
        assert kernel.value("used['JobID']") == f"['{job}.batch']", line


@pytest.mark.parametrize(
    ("line", "column", "value"),
    [
        ("%sacctmgr show qos", "Name", "urgent"),
        ("%sacctmgr show associations user={who}", "Account", "c4ai"),
        ("%sshare -a", "Account", "c4ai"),
        ("%sreport cluster utilization", "Cluster", None),
        ("%sreport user top", "Login", None),
    ],
)
def test_the_database_answers_with_a_table(kernel: Any, line: str, column: str, value: str | None) -> None:
    kernel.ok("import os, pwd\nwho = pwd.getpwuid(os.geteuid()).pw_name")
    ran = kernel.ok(f"table = {line}\ntable")
    assert column in ran.result["text/plain"]
    assert "<table" in ran.result["text/html"]
    values = kernel.value(f"table[{column!r}]")
    assert value is None or re.search(rf"'\s*{value}'", values), values
    frame = "table.to_pandas()"
    assert kernel.value(f"list({frame}.columns) == table.columns, len({frame}) == len(table)") == "True True"


def test_no_secret_of_a_session_is_in_the_database(
    kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    """Neither its token nor one of the Jupyter server that launched it, in any column, of the job or its steps."""
    kernel.ok("%slurm launch -p arandu name=quiet")
    job, folder = kernel.value("quiet.id, quiet.data['folder']").split()
    file = Path(folder, "serving", "token")
    token = wait_for(lambda: file.is_file() and file.read_text(), "its token")
    columns = cluster.run("sacct", "--helpformat").stdout.split()
    argv = ["sacct", "-P", "-D", "-j", job, "-o", ",".join(columns)]
    said = wait_for(lambda: (text := cluster.run(*argv).stdout).count("RUNNING") > 1 and text, "the job and its step")
    kernel.ok("quiet.stop()")
    assert "SubmitLine" in said
    assert token not in said
    assert "JUPYTERHUB_API_TOKEN" not in said


def test_what_was_used_is_told_by_whom_and_where_and_what_is_left(
    kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    """Of the user and of an account; a running job counts up to now, and only time within the period counts."""
    cluster.run("sacctmgr", "-i", "modify", "account", "c4ai", "set", "GrpTRESMins=cpu=60000,gres/gpu=6000")
    kernel.ok("import jupyter_slurm, time\nbegin = time.time()")
    kernel.ok("%%sbatch -p arandu --gpus 2 -n 4 wait as=done\n#!/bin/sh\nsleep 3")
    kernel.ok("%%sbatch -p devwork as=runs\n#!/bin/sh\nsleep 1000")
    wait_for(lambda: kernel.value("runs.state") == "RUNNING", "it runs")
    number = kernel.value("done.id")
    argv = ["sacct", "-n", "-P", "-X", "-o", "State,ElapsedRaw", "-j", number]
    said = wait_for(
        lambda: (text := cluster.run(*argv).stdout).startswith("COMPLETED|") and text, "its end is accounted"
    )
    seconds = int(said.split("|")[1])
    going = [*argv[:-1], kernel.value("runs.id")]
    wait_for(lambda: cluster.run(*going).stdout.startswith("RUNNING|"), "its start is accounted")
    kernel.ok("used = jupyter_slurm.usage('c4ai', start=begin - 1)\nused")
    assert kernel.value("used.accounts") == "['c4ai']"
    kernel.ok("row = next(row for row in used.by('user', 'partition', 'gpu') if row['GPU'] == 'a100')")
    assert kernel.value("row['PARTITION'], row['JOBS']") == "arandu 1"
    hours = [round(4 * seconds / 3600, 4), round(2 * seconds / 3600, 4)]
    assert kernel.value("[row['CPU HOURS'], row['GPU HOURS']]") == str(hours)
    assert kernel.value("{row['JOB']: row['STATE'] for row in used.jobs}[done.id]") == "COMPLETED"
    assert kernel.value("{row['JOB']: row['STATE'] for row in used.jobs}[runs.id]") == "RUNNING"
    assert kernel.value(
        "*[row['OF'] + f\" {row['HOURS IN ALL']:g}\" for row in used.left if row['NAME'] == 'c4ai']"
    ) in (
        "CPUs 1000 GPUs 100",
        "GPUs 100 CPUs 1000",
    )
    assert (
        kernel.value("all(abs(row['HOURS LEFT'] + row['HOURS USED'] - row['HOURS IN ALL']) < 0.1 for row in used.left)")
        == "True"
    )
    ran = kernel.ok("%slurm usage by=partition,qos")
    assert "PARTITION" in ran.result["text/plain"]
    assert "<table" in ran.result["text/html"]
    assert kernel.value("len(jupyter_slurm.usage(start='2020-01-01', end='2020-02-01').jobs)") == "0"
    kernel.ok("figure = used.plot('partition')\ndrawn = figure.axes[0].get_xlabel()")
    assert kernel.value("drawn") == "GPU hours"
    for line, why in (
        ("account=nosuch", "There is no account 'nosuch'"),
        ("start=yesterday", "is not a date"),
        ("start=2026-02-01 end=2026-01-01", "ends before it begins"),
        ("by=colour", "by=colour is not a column"),
        ("month=may", "has no keyword 'month=may'"),
    ):
        ran = kernel.run(f"%slurm usage {line}")
        assert why in ran.traceback, line
    kernel.ok("runs.cancel()")
    cluster.run("sacctmgr", "-i", "modify", "account", "c4ai", "set", "GrpTRESMins=cpu=-1,gres/gpu=-1")


def test_who_uses_what_now(kernel: Any, wait_for: Any) -> None:
    kernel.ok("%%sbatch -p arandu --gpus a100:2 -c 4 as=uses\n#!/bin/sh\nsleep 1000")
    wait_for(lambda: kernel.value("uses.state") == "RUNNING", "it runs")
    kernel.ok("now = %slurm who by=account,partition partition=arandu\nrow = now.table[0]")
    assert kernel.value("row['ACCOUNT'], row['PARTITION'], row['JOBS'], row['GPUS'], row['GPU TYPES']") == (
        "c4ai arandu 1 2 2 a100"
    )
    ran = kernel.ok("%slurm who")
    assert "2 a100" in ran.result["text/plain"]
    assert "<table" in ran.result["text/html"]
    assert "No job with account=nosuch is running." in kernel.ok("%slurm who account=nosuch").result["text/plain"]
    for line, why in (("by=colour", "by=colour is not a column"), ("month=may", "has no keyword 'month=may'")):
        assert why in kernel.run(f"%slurm who {line}").traceback
    kernel.ok("uses.cancel()")


def test_usage_has_a_job_that_has_just_ended(kernel: Any) -> None:
    """Slurm's controller sends the starts of jobs to the database every five seconds only, and answers are reused."""
    kernel.ok("import jupyter_slurm\njupyter_slurm.usage('c4ai')")
    for number in range(2):
        kernel.ok(f"%%sbatch -p devwork wait as=brief{number}\n#!/bin/sh\ntrue")
        listed = kernel.value(f"brief{number}.id in set(jupyter_slurm.usage('c4ai').jobs['JOB'])")
        assert listed == "True", number
