"""Tests of ``after=`` and its kinds: jobs that wait for others, by variable or by id; several at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]

WAITS = "#!/bin/sh\nwhile [ ! -e '{gate}' ]; do sleep 0.1; done\n{then}"


def test_jobs_wait_for_others_by_name(kernel: Any, gate: Callable[[str], Path]) -> None:
    go = gate("go")
    kernel.ok("%%sbatch as=good -J good\n" + WAITS.format(gate=go, then="true"))
    kernel.ok("%%sbatch as=bad -J bad\n" + WAITS.format(gate=go, then="false"))
    kernel.ok("%%sbatch as=pair --array=0-1\n" + WAITS.format(gate=go, then="[ $SLURM_ARRAY_TASK_ID = 0 ]"))
    kernel.ok("both = [good, bad]")
    kinds = {
        "one": "after=good,pair[0]",
        "two": "afterany=both,pair",
        "three": "after=good afternotok=bad",
        "never": "after=good,bad",
        "four": "aftercorr=pair --array=0-1",
    }
    for name, words in kinds.items():
        kernel.ok(f"%%sbatch {words} as={name}\n#!/bin/sh\ntrue")
    assert kernel.value(
        "[word for word in four.data['argv'] if 'depend' in word] == [f'--dependency=aftercorr:{pair}']"
    ) == ("True")
    assert kernel.value("[job.state for job in (one, two, three, never)]") == str(["PENDING"] * 4)
    kernel.ok(
        "import jupyter_slurm, time\ndone = jupyter_slurm.as_completed([bad, one, two, three, *pair], timeout=80)"
    )
    go.touch()
    assert kernel.value("sorted({job.name for job in done if job.state == 'COMPLETED'})").startswith("['one'")
    assert kernel.value("[job.state for job in (one, two, three)]") == str(["COMPLETED"] * 3)
    kernel.ok("good.wait()")
    assert kernel.value("list(jupyter_slurm.as_completed([one, good])) == [good, one]") == "True"
    kernel.ok(
        "until = time.time() + 80\nwhile 'ended as' not in never.reason_text and time.time() < until: time.sleep(0.2)"
    )
    assert kernel.value("f'Job {bad} (bad) ended as FAILED.' in never.reason_text, never.reason") == (
        "True DependencyNeverSatisfied"
    )
    assert kernel.value("sorted(task.index for task in jupyter_slurm.as_completed(pair))") == "[0, 1]"
    # A finished job needs no dependency, or its condition can never be met.
    shown = kernel.ok("%%sbatch after=good afternotok=bad,pair[1] show\n#!/bin/sh\ntrue").result["text/plain"]
    assert "--dependency" not in shown
    told = kernel.run("%%sbatch after=both\n#!/bin/sh\ntrue")
    assert "ended as FAILED, so this job would never start" in told.traceback
    assert "afterany=" in told.traceback
    told = kernel.run("%%sbatch aftercorr=pair --array=0-1\n#!/bin/sh\ntrue")  # which Slurm may have removed by now
    assert "those that did not end well would never start" in told.traceback
    shown = kernel.ok("%%sbatch aftercorr=good --array=0-1 show\n#!/bin/sh\ntrue").result["text/plain"]
    assert "--dependency" not in shown
    for waiting in ("never.wait()", "await never", "list(jupyter_slurm.as_completed([good, never]))"):
        told = kernel.run(waiting)  # no wait for a condition that can never be met
        assert told.error == "JobFailed"
        assert "ended as FAILED" in told.traceback
    assert "1 is not a job" in kernel.run("jupyter_slurm.wait([1])").traceback
    kernel.ok("never.cancel(); four.cancel()")
    told = kernel.run("jupyter_slurm.wait([good, bad, pair], timeout=60)")
    assert told.error == "JobFailed"
    assert "2 of 3 jobs failed" in told.traceback


def test_what_is_no_job_is_said(kernel: Any) -> None:
    kernel.ok("train = 'no job'")
    cases = {
        "after=trian": "There is no variable trian. Did you mean train?",
        "after=train": "train is a str, not a job",
        "after=train[0]": "train has no tasks",
        "after=4.5": "neither a variable nor a job ID",
        "after=4000000000": "no job 4000000000",
        "after=train --dependency=singleton": "cannot be combined",
        "afterany=train -d singleton": "cannot be combined",
        "afterall=train": "Did you mean",
    }
    for words, said in cases.items():
        assert said in kernel.run(f"%%sbatch {words}\n#!/bin/sh\ntrue").traceback, words
    for typed, not_meant in [
        ("after=opne", "open"),
        ("sweep=opne", "open"),
        ("after=prnt", "print"),
        ("after=Ou", "Out"),
    ]:
        said = kernel.run(f"%%sbatch {typed}\n#!/bin/sh\ntrue").traceback
        assert f"Did you mean {not_meant}?" not in said, "what Python and IPython put there is no job and no table"
    assert "cannot be combined" in kernel.run("%%sbatch after=train\n#!/bin/sh\n#SBATCH -d singleton\ntrue").traceback


def test_what_a_job_waited_for_is_looked_at_again_when_it_is_submitted_again(kernel: Any) -> None:
    kernel.ok("%%sbatch --hold as=first\n#!/bin/sh\ntrue\n")
    for word, name in (("after", "second"), ("afterany", "third")):
        kernel.ok(f"%%sbatch {word}=first as={name} --begin=now+1hour\n#!/bin/sh\ntrue\n")
        assert kernel.value(f"f'{word}ok:{{first}}'.replace('anyok', 'any') in str({name}.data['argv'])") == "True"
    kernel.ok("first.cancel()\nfirst.wait(check=False)")
    said = kernel.run("second.resubmit()").traceback
    first = f"Job {kernel.value('first')} (first)"
    assert f"afterok=: {first} ended as CANCELLED, so this job would never start" in said
    assert "Use job.resubmit(dependency=None)" in said
    kernel.ok("again = [second.resubmit(dependency=None), third.resubmit()]")
    assert kernel.value("any('--dependency' in word for job in again for word in job.data['argv'])") == "False"
    assert kernel.value("[len(job.record['options']) for job in again]") == "[1, 1]"
    kernel.ok("for job in [second, third, *again]:\n    job.cancel()")
