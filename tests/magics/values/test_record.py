"""Tests of recorded submissions, and of jobs that are submitted again."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import jupyter_slurm

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh"), pytest.mark.by_day()]

HERE = f"python={sys.executable}"


@pytest.fixture
def prints(kernel: Any, wait_for: Callable[..., Any]) -> Callable[..., None]:
    """Return ``prints(name, text)``, which waits for output of a job, or for any; its end becomes known later."""

    def wait(name: str, text: str | None) -> None:
        condition = f"assert {name}.stdout" + ("" if text is None else f" == {text!r}")
        wait_for(lambda: kernel.run(condition).status == "ok", f"{name} prints {text!r}")

    return wait


def test_a_job_tells_what_it_was_also_after_a_restart(kernel: Any, environment: dict[str, str]) -> None:
    kernel.ok(f"%%sbatch wait --comment 'two words' -J named as=told {HERE} -- 'an argument'\nprint(1)")
    expected = (
        "['--comment', 'two words', '-J', 'named'] ['an argument'] True "
        f"{jupyter_slurm.__version__} {'.'.join(map(str, sys.version_info[:3]))} None"
    )
    asked = "r = told.record\nv = r['versions']\nprint(r['options'], r['args'], v['slurm'] is not None, v['jupyter_slurm'], v['python'], r['resubmitted_from'])"
    assert kernel.ok(asked).stdout.strip() == expected
    key = kernel.value("told.key")
    kernel.restart()
    kernel.ok(f"import jupyter_slurm\ntold = jupyter_slurm.job({key!r})")
    assert kernel.ok(asked).stdout.strip() == expected
    shown = kernel.ok("told.record").result["text/plain"]
    assert "--comment 'two words' -J named" in shown
    assert "ipython" in shown
    show = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "show", "--record", key]
    told = subprocess.run(show, env={**os.environ, **environment}, check=True, capture_output=True, text=True)
    assert told.stdout.strip() == shown.strip()


def test_a_python_cell_is_submitted_again_with_its_values(kernel: Any) -> None:
    kernel.ok("x = 20")
    kernel.ok(f"%%sbatch --time 5 -c 1 in=x out=y as=first {HERE} -- 22\nimport sys\ny = x + int(sys.argv[1])")
    assert kernel.value("first.result()") == "42"
    key = kernel.value("first.key")
    kernel.restart()
    # The values of the first submission are used, whatever the variable is now; the changed option appears once.
    kernel.ok("import jupyter_slurm\nx = 1")
    kernel.ok(f"first = jupyter_slurm.job({key!r})\nagain = first.resubmit(t='7:00', comment='again', c=None)")
    assert kernel.value("again.result()") == "42"
    assert kernel.value("again.record['resubmitted_from'] == first.key, again.id != first.id") == "True True"
    assert kernel.value("again.record['options']") == "['-t7:00', '--comment=again']"
    assert kernel.value("again.source == first.source, again.resubmit().result()") == "True 42"


def test_a_script_is_submitted_again_byte_for_byte(kernel: Any, tmp_path: Any, prints: Callable[..., None]) -> None:
    script = tmp_path / "it is.sh"
    script.write_bytes(b'#!/bin/sh\n#SBATCH --time=9 --hold\n# \xff\nprintf \'%s\\n\' "$SLURM_JOB_NAME" "$1" $PWD\n')
    kernel.ok(f"import os\nos.makedirs('elsewhere', exist_ok=True)\n%cd elsewhere\njob = %sbatch '{script}' 'a b'")
    kernel.ok("%cd ..\njob.cancel()")
    ran = kernel.run("job.resubmit(hold=None)")
    assert ran.error == "UsageError"
    assert "--hold is set in the text of the job (#SBATCH)" in ran.traceback
    ran = kernel.run("job.resubmit(tmie='1')")
    assert ran.error == "OptionError"
    assert "Did you mean --time" in ran.traceback
    kernel.ok("again = job.resubmit(time='8:00', gpus=None)")
    kernel.ok("%scontrol release {again}")
    prints("again", None)
    assert kernel.value("again.script == job.script, again.record['work_dir'] == job.record['work_dir']") == "True True"
    assert kernel.ok("print(again.stdout)").stdout.split("\n")[:2] == ["it is.sh", "a b"]
    raw = kernel.value("again._cluster.client.get_bytes(again._path('script'))[0]")
    assert raw == repr(script.read_bytes())


@pytest.mark.here_only("over SSH a job begins at home")
def test_a_folder_that_is_gone_is_said(kernel: Any, tmp_path: Any) -> None:
    kernel.ok(f"import os\nos.mkdir('{tmp_path}/short lived')\n%cd -q {tmp_path}/short lived")
    kernel.ok("%%sbatch --hold as=held\n#!/bin/sh\ntrue")
    kernel.ok(f"%cd -q {tmp_path}\nheld.cancel()\nos.rmdir('short lived')")
    ran = kernel.run("held.resubmit()")
    assert ran.error in ("UsageError", "TransportError")
    assert "short lived" in ran.traceback


def test_what_cannot_be_submitted_again_is_said(kernel: Any, cluster: Any) -> None:
    kernel.ok("%%sbatch -n1 --hold : -n1 as=two\n#!/bin/sh\ntrue")
    ran = kernel.run("two.resubmit(time='1')")
    assert "heterogeneous" in ran.traceback
    kernel.ok("two.cancel()")
    number = cluster.run("sbatch", "--parsable", "--hold", "--wrap", "true").stdout.strip()
    ran = kernel.run(f"jupyter_slurm.job({number}).resubmit()" if kernel.ok("import jupyter_slurm") else "")
    assert ran.error == "UsageError"
    assert "there is no record of it" in ran.traceback


def test_a_task_of_an_array_is_submitted_alone(kernel: Any, prints: Callable[..., None]) -> None:
    kernel.ok(f"%%sbatch --array 3-4 as=tasks {HERE}\nimport os\nprint('task', os.environ['SLURM_ARRAY_TASK_ID'])")
    prints("tasks[3]", "task 3\n")
    kernel.ok("alone = tasks[4].resubmit()")
    prints("alone[4]", "task 4\n")
    assert kernel.value("alone.record['options'], len(alone)") == "['--array=4'] 1"
    assert kernel.value("tasks[3].record['used']['executable']") == sys.executable


def test_a_sweep_is_submitted_again_with_its_parameters(kernel: Any, prints: Callable[..., None]) -> None:
    kernel.ok(f"%%sbatch --hold sweep=lr:1,2,3 as=swept {HERE}\nprint(lr * 10)")
    kernel.ok("some = swept.resubmit(array='0,2', hold=None)\nswept.cancel()")
    prints("some[0]", "10\n")
    prints("some[2]", "30\n")
    kernel.ok("%%sbatch sweep=lr:1,2 as=scripts\n#!/bin/sh\necho lr is $lr")
    kernel.ok("more = scripts.resubmit(time='5')")
    prints("more[1]", "lr is 2\n")
    assert kernel.value("more.source == scripts.source") == "True"
