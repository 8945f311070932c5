"""Tests of the lines of a script that Slurm reads as options."""

from __future__ import annotations

import ast
import re
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
    assert kernel.value("n.name") == "n"


@pytest.mark.here_only("it is about the name of a job")
def test_jobs_of_cells_are_called_by_their_variable_or_their_notebook(kernel: Any) -> None:
    kernel.ok("import jupyter_slurm\nbefore = {job.key for job in jupyter_slurm.jobs()}")
    kernel.ok("%%sbatch as=fit -H\n#!/bin/sh\ntrue")
    kernel.ok("%%sbatch as=train -H\nprint(1)")
    kernel.ok("import os; os.environ['JPY_SESSION_NAME'] = '/home/ana/two words.ipynb'")
    kernel.ok("%%sbatch -H\nprint(1)")
    kernel.ok("%%sbatch -H --job-name=mine\n#!/bin/sh\ntrue")
    kernel.ok("four = [job for job in jupyter_slurm.jobs(active=True) if job.key and job.key not in before]")
    shown = "sorted((job.data['name'], job.data['label']) for job in four)"
    (_, cell), *others = ast.literal_eval(kernel.value(shown))
    assert re.fullmatch(r"two words\.ipynb \[\d+\]", cell)
    assert others == [("fit", "fit"), ("mine", None), ("train", "train")]
    assert cell in kernel.value("str(jupyter_slurm.jobs())")
    kernel.ok("for job in four:\n    job.cancel()")


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


@pytest.mark.here_only("it is about the text of a script")
def test_what_sbatch_drops_from_a_header_line_is_told(kernel: Any) -> None:
    ran = kernel.ok(
        f"%%sbatch as=j wait\n#!/bin/sh\n#SBATCH --comment=registry.local:5443#ubuntu\n#SBATCH -n1 # a comment\n{_SHOW}"
    )
    assert "Warning: sbatch drops '#ubuntu' in line 2." in ran.stderr
    assert ran.stderr.count("Warning: sbatch drops") == 1
    assert "Comment=registry.local:5443\n" in kernel.value("j.stdout")
    for kept in ("'registry.local:5443#ubuntu'", "registry.local:5443\\#ubuntu"):
        ran = kernel.ok(f"%%sbatch as=j wait\n#!/bin/sh\n#SBATCH --comment={kept}\n{_SHOW}")
        assert "drops" not in ran.stderr
        assert "Comment=registry.local:5443#ubuntu\n" in kernel.value("j.stdout")


@pytest.mark.here_only("it is about the text of a line and a script")
@pytest.mark.parametrize(
    ("line", "header", "said", "meant"),
    [
        ("--partition = arandu", "", "the = of --partition", "Write --partition=arandu"),
        ("--partition= arandu", "", "the = of --partition", "Write --partition=arandu"),
        ("-p =arandu wait", "", "the = of -p", "Write -p arandu"),
        ("-p arandu wait = 3", "", "beside =", "wait=3, or leave the = out"),
        ("", "--time = 3", "Line 2: no blank may stand beside the = of --time", "Write #SBATCH --time=3"),
        ("-n=2", "", "No = may stand between -n and its value", "Write -n 2 or --ntasks=2."),
        ("", "-n1 -t=3", "Line 2: no = may stand between -t and its value", "Write #SBATCH -t 3 or --time=3."),
        ("", "-n1 --time= 3", "Line 2: no blank may stand beside the = of --time", "Write #SBATCH --time=3"),
    ],
)
def test_blanks_beside_an_equals_sign_are_named(kernel: Any, line: str, header: str, said: str, meant: str) -> None:
    refused = kernel.run(f"%%sbatch {line}\n#!/bin/sh\n#SBATCH {header}\ntrue")
    assert refused.status == "error"
    assert said in refused.traceback
    assert meant in refused.traceback


@pytest.mark.here_only("it is about the text of a script")
def test_a_value_that_sbatch_takes_with_its_equals_sign_is_submitted(kernel: Any) -> None:
    ran = kernel.ok(f"%%sbatch as=j wait\n#!/bin/sh\n#SBATCH -J=signed\n{_SHOW}")
    assert "Warning: Line 2: for sbatch, the = after -J is a part of the value." in ran.stderr
    assert "JobName==signed" in kernel.value("j.stdout")
    refused = kernel.run("%%sbatch\n#!/bin/sh\n#SBATCH -p=arandu\ntrue")
    assert "Write #SBATCH -p arandu" in refused.traceback


@pytest.mark.here_only("it is about the text of a script")
@pytest.mark.parametrize(
    ("header", "marked", "hint"),
    [
        ("#SBATCH -n1 -t 2h", "-t 2h", "hours:minutes:seconds"),
        ("#SBATCH --comment='a b' --mem=16gigs", "--mem=16gigs", "16G"),
        ("#SBATCH -c abc --comment='a b'", "-c abc", "a whole number for --cpus-per-task"),
        ("#SBATCH --mail-type=SOMETIMES", "--mail-type=SOMETIMES", "Valid values of --mail-type: ALL"),
        ("#SBATCH --begin=yesterdayy", "--begin=yesterdayy", "now+2hours"),
        ("#SBATCH --propagate=FOO", "--propagate=FOO", "NOFILE"),
        ("#SBATCH devwork -n1", "devwork", "Begin comments with #"),
        ("#SBATCH --comment=devwork \u2013time=5", "\u2013time=5", "Write --time=5"),
        ("#PBS -l walltime=abc", "#PBS -l walltime=abc", "hours:minutes:seconds"),
    ],
)
def test_a_bad_value_is_named_with_its_line_and_its_form(kernel: Any, header: str, marked: str, hint: str) -> None:
    refused = kernel.run(f"%%sbatch -H -N1\n#!/bin/sh\n# a comment\n{header}\ntrue")
    assert refused.error == "SubmitRefused", refused.traceback
    *_, where, shown, marks, said = refused.traceback.rstrip().splitlines()
    assert where == "line 3 of the cell:"
    assert shown[marks.index("^") : marks.rindex("^") + 1] == marked
    assert hint in said


@pytest.mark.here_only("it is about the text of a script")
def test_lines_that_only_look_like_options_are_named(kernel: Any) -> None:
    lines = ["# SBATCH --comment=a", "  #SBATCH --comment=b", "#sbatch --comment=c", "##SBATCH --comment=d"]
    script = "\n".join(["#!/bin/sh", *lines, "#SBATCH --comment=\u201ckept\u201d", "# SBATCH is a word", _SHOW])
    ran = kernel.ok(f"%%sbatch as=j wait\n{script}")
    assert "Comment=\u201ckept\u201d\n" in kernel.value("j.stdout")  # as sbatch reads the lines
    assert "Slurm ignores line 2, 3, 4." in ran.stderr
    assert "Line 6 has \u201c (U+201C), which is not a quote" in ran.stderr
    ran = kernel.run("%%sbatch -H\n#!/bin/sh\n#SBATCH -n1\u00a0-t5\ntrue")
    assert "Line 2 has no-break space (U+00A0), which is not a blank" in ran.stderr
