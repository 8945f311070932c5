"""Tests of %slurm ls and of its command in a terminal, here and over SSH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.by_day()]


def terminal(environment: dict[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", *words]
    env = {**os.environ, **environment, "COLUMNS": "200"}
    return subprocess.run(argv, env=env, capture_output=True, text=True, timeout=120, check=False)


def test_a_directory_is_listed_in_a_notebook_and_a_terminal(kernel: Any, environment: dict[str, str]) -> None:
    kernel.ok(
        '%slurm sh out=where d=$(mktemp -d); cd "$d"; head -c 3000 /dev/zero > data; mkdir sub; touch .hidden; '
        "touch \"$(printf 'e\\033[2J\\nvil')\"; pwd"
    )
    folder = kernel.value("where.strip()").strip("'")
    kernel.ok("from jupyter_slurm.client.clusters import cluster\nhere = cluster.chosen()")
    try:
        shown = kernel.ok(f"found = %slurm ls {folder}\nfound").result["text/plain"]
        lines = [line.split()[:3] for line in shown.splitlines()[1:]]
        assert [line[0] for line in lines] == ["data", r"e\x1b[2J\nvil", "sub/"]
        assert lines[0][1:] == ["3", "KiB"]
        assert "e\\x1b" in kernel.ok(f"%slurm ls {folder}").result["text/html"]
        assert ".hidden" in kernel.ok(f"%slurm ls all {folder}").result["text/plain"]
        assert "data" in kernel.ok(f"%slurm ls {folder}/data").result["text/plain"]
        assert "does not exist" in kernel.run(f"%slurm ls {folder}/none").traceback
        assert "data" in kernel.ok(f"%slurm ls {kernel.value('here')}:{folder}").result["text/plain"]
        done = terminal(environment, "ls", "--json", folder)
        assert (done.returncode, done.stderr) == (0, "")
        assert {entry["name"]: entry["size"] for entry in json.loads(done.stdout)}["data"] == 3000
        assert "sub/" in terminal(environment, "ls", folder).stdout
        assert terminal(environment, "ls", "a", "b", "c").returncode == 1
    finally:
        kernel.ok(f"%slurm sh rm -r {folder}")


def test_two_paths_are_refused(kernel: Any) -> None:
    assert "Use `%slurm ls [all] [[CLUSTER:]PATH]`" in kernel.run("%slurm ls a b").traceback


SUBMIT_AGAIN = """
import jupyter_slurm
from jupyter_slurm.client.clusters.cluster import context
from jupyter_slurm.client.jobs.request import new_key

from_here = job.resubmit()
request = {"key": new_key(), "context": context(job._cluster)}
from_the_panel = jupyter_slurm.job(job._cluster.client.post(job._path("resubmit"), json=request)["key"])
"""


def test_a_script_of_the_cluster_is_submitted_from_its_directory(kernel: Any, gate: Any) -> None:
    script = r"#!/bin/sh\n#SBATCH --time 5:00\npwd; echo $SLURM_SUBMIT_DIR; echo $1 $SLURM_JOB_NAME\n"
    shared = gate("folder").parent
    kernel.ok(f"%slurm sh out=where cd \"$(mktemp -d -p {shared})\"; printf '{script}' > job.sh; pwd -P")
    folder = kernel.value("where.strip()")
    kernel.ok("from jupyter_slurm.client.clusters import cluster\nhere = cluster.chosen()")
    here = kernel.value("here")
    try:
        kernel.ok(f"%sbatch as=job wait --time 4:00 {here}:{folder}/job.sh one")
        assert kernel.value("job.stdout").splitlines() == [folder, folder, "one job.sh"]
        kernel.ok(SUBMIT_AGAIN)
        for again in ("from_here", "from_the_panel"):
            assert kernel.value(f"{again}.wait().stdout").splitlines() == [folder, folder, "one job.sh"]
        kernel.ok(f"%sbatch as=job wait --chdir / {here}:{folder}/job.sh")
        assert kernel.value("job.stdout").splitlines()[0] == "/"
        ran = kernel.run(f"%sbatch {here}:{folder}/none.sh")
        assert "does not exist" in ran.traceback
        assert "is not a file" in kernel.run(f"%sbatch {here}:{folder}").traceback
        kernel.ok(f"%slurm sh out=home cd && pwd -P && cp {folder}/job.sh .j.sh")
        kernel.ok(f"%sbatch as=job wait {here}:~/.j.sh")
        assert kernel.value("job.stdout.splitlines()[:2] == 2 * [home.strip()]") == "True"
    finally:
        kernel.ok(f"%slurm sh rm -rf {folder} ~/.j.sh")


def test_a_script_that_is_missing_on_this_computer_may_be_one_of_the_cluster(kernel: Any, way: Any) -> None:
    ran = kernel.run("%sbatch -p arandu none.sh")
    assert "none.sh cannot be read" in ran.traceback
    assert ("For a script on the cluster, use `%sbatch " in ran.traceback) == way.is_remote


@pytest.mark.parametrize("word", ["~/own.sh", "$HOME/own.sh", "< ~/own.sh"])
def test_the_home_of_a_script_is_that_of_this_computer(kernel: Any, gate: Any, word: str) -> None:
    path = gate("own.sh")
    path.write_text("#!/bin/sh\necho own\n")
    kernel.ok(f"import os\nbefore = os.environ['HOME']\nos.environ['HOME'] = {str(path.parent)!r}")
    try:
        kernel.ok(f"%sbatch as=job wait -p arandu {word}")
        assert kernel.value("job.stdout") == "own\n"
    finally:
        kernel.ok("os.environ['HOME'] = before")


def test_a_script_is_read_as_the_input_of_a_shell(kernel: Any, gate: Any) -> None:
    path = gate("job.sh")
    path.write_text("#!/bin/sh\necho $SLURM_JOB_NAME\n")
    kernel.ok(f"%sbatch as=job wait -p arandu < {path}")
    assert kernel.value("job.stdout") == "job.sh\n"
    assert "two scripts" in kernel.run(f"%sbatch -p arandu other.sh < {path}").traceback
    assert "none.sh cannot be read" in kernel.run("%sbatch < none.sh").traceback
