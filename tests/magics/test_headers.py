"""Tests of the lines of a script that Slurm reads as options."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

_SHOW = 'scontrol show job "$SLURM_JOB_ID" | grep -oE "(JobName|TimeLimit|Comment)=\\S+" | sort -u\n'


@pytest.mark.here_only("it is about the text of a script")
@pytest.mark.parametrize("keywords", ["", "resume", "sweep=x:1"])
@pytest.mark.parametrize("header", ["#PBS -N oldname -l walltime=00:07:00", "#BSUB -J oldname -W 7"])
def test_headers_of_other_batch_systems_count_in_each_form(kernel: Any, keywords: str, header: str) -> None:
    script = f"#!/bin/bash\n{header}\n#SBATCH --comment=kept\n{_SHOW}"
    kernel.ok(f"%%sbatch as=j wait {keywords}\n{script}")
    job = "j[0]" if "sweep" in keywords else "j"
    found = kernel.value(f"{job}.stdout").split()
    assert found == ["Comment=kept", "JobName=oldname", "TimeLimit=00:07:00"]
    assert kernel.value("j.name") == "oldname"
    assert kernel.value("j.data['time_limit']") == "420"


@pytest.mark.here_only("it is about the text of a script")
def test_output_and_array_of_other_batch_systems_are_the_job_s(kernel: Any, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    kernel.ok(f"%%sbatch as=j wait\n#!/bin/sh\n#PBS -o {tmp_path}/mine -N named\necho from the job")
    assert (tmp_path / "mine").read_text() == kernel.value("j.stdout") == "from the job\n"
    kernel.ok("%%sbatch as=a wait\n#!/bin/sh\n#PBS -t 1-2\necho $SLURM_ARRAY_TASK_ID")
    assert ast.literal_eval(kernel.value("[task.stdout for task in a]")) == ["1\n", "2\n"]
    kernel.ok("%%sbatch as=n wait --ignore-pbs\n#!/bin/sh\n#PBS -N named\ntrue")
    assert kernel.value("n.name") == "cell.sh"


@pytest.mark.here_only("it is about a value of an option")
def test_brackets_in_array_make_no_tasks_that_are_not_there(kernel: Any) -> None:
    ran = kernel.run("%%sbatch --array=[0-1] -H as=a\n#!/bin/sh\ntrue\n")
    assert ran.status == "ok", ran.traceback
    assert kernel.value("(len(a), a[1].state)") == "(2, 'PENDING')"
    assert kernel.run("a[42].state").error == "JobNotFound"
    kernel.ok("a.cancel()")
    kernel.ok("%%sbatch sweep=x:1,2,3 --array=[0-1] -H as=s\n#!/bin/sh\ntrue\n")
    assert kernel.value("len(s)") == "2"
    kernel.ok("s.cancel()")
