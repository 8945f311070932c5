"""Test of ``--test-only``, with an agent of its own: it asks more than one agent may ask in a short time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.by_day()]


def test_slurm_says_when_a_job_could_start_and_nothing_is_submitted(kernel: Any, tmp_path: Path) -> None:
    (tmp_path / "try.sh").write_text("#!/bin/sh\n#SBATCH -c 3\ntrue\n")
    listed = "'\\n'.join([*(str(job) for job in __import__('jupyter_slurm').jobs()), *__import__('glob').glob(held.data['folder'] + '/../*')])"
    kernel.ok("%%sbatch --hold as=held\n#!/bin/sh\ntrue")
    before = {*kernel.value(listed).splitlines()}
    for cell, cpus in [
        (f"%sbatch --test-only -p arandu {tmp_path}/try.sh argument", "3 CPUs"),
        ("%sbatch -p arandu --test-only --wrap 'sleep 1'", "1 CPU"),
        ("%%sbatch -p arandu --test-only -c 2\nprint(1)", "2 CPUs"),
        ("%%sbatch -p arandu --test-only -- a b\n#!/bin/sh\n#SBATCH -c 4\ntrue", "4 CPUs"),
        ("%%sbatch -p arandu --test-only sweep=a:1,2;b:3 after=held\nprint(a)", "1 CPU"),
        ("%salloc -p arandu --test-only -n 2", "2 CPUs"),
        ("%srun --test-only -p arandu hostname", "1 CPU"),
    ]:
        said = kernel.ok(cell).result["text/plain"]
        assert said == f"Earliest start: now on dgx01, partition arandu, with {cpus}. Nothing was submitted.", cell
    kernel.ok("could = %sbatch --test-only -p arandu --begin=now+3hours --wrap true")
    assert kernel.value("could.nodes, could.partition, could.cpus") == "dgx01 arandu 1"
    assert kernel.value("2.9 < (could.start.timestamp() - __import__('time').time()) / 3600 < 3.1") == "True"
    assert " (in 2:59:" in kernel.value("could") or " (in 3:00:" in kernel.value("could")
    ran = kernel.run("%%sbatch --test-only -p arandu --gres gpu:a100:9\nprint(1)")
    assert ran.error == "SubmitRefused"
    assert "at most 8 a100 GPUs" in ran.traceback
    assert "^^^^" in ran.traceback
    assert "`wait` has no effect" in kernel.run("%%sbatch --test-only wait\nprint(1)").traceback
    assert {*kernel.value(listed).splitlines()} <= before, "jobs of earlier tests may leave the queue meanwhile"
