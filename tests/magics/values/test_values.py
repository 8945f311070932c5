"""Tests of variables, functions and classes sent with a cell, and of returned values."""

from __future__ import annotations

import os
import pwd
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("openssh")]

HERE = f"python={sys.executable}"
PLAIN = "python=/usr/bin/python3"  # without IPython, cloudpickle and numpy


def test_variables_travel_and_come_back(kernel: Any) -> None:
    kernel.ok("import numpy as np\nx = {'rate': 0.1}\ndata = np.arange(10.0)")
    kernel.ok(
        f"%%sbatch wait in=x,data out=total,again,x as=there {HERE}\ntotal = data.sum()\nagain = data\nagain[0] = 7\nx['rate'] += 1"
    )
    assert (
        kernel.value("(total, again[0], data[0], x)")
        == "(np.float64(45.0), np.float64(7.0), np.float64(0.0), {'rate': 1.1})"
    )
    assert kernel.value("sorted(there.outputs)") == "['again', 'total', 'x']"
    assert kernel.value("again.flags.writeable, again.base is not None") == "True True"


def test_functions_and_classes_travel_as_source_with_what_they_use(kernel: Any) -> None:
    kernel.ok("import math as m\nfrom collections import Counter")
    kernel.ok(
        "def twice(f):\n    return lambda x: 2 * f(x)\n\ndef helper(x):\n    return m.floor(x) + len(Counter('aab'))"
    )
    kernel.ok(
        "@twice\ndef decorated(x):\n    return x\n\nclass Base:\n    factor = 3\n\nclass Model(Base):\n    def run(self, x):\n        return helper(x) * self.factor + (even(x) if x else 0)"
    )
    kernel.ok("def even(n): return True if n == 0 else odd(n - 1)\ndef odd(n): return False if n == 0 else even(n - 1)")
    kernel.ok("model = Model()\nhalf = lambda x: helper(x) / 2")
    # The other Python has neither cloudpickle nor IPython: bytecode would not load.
    kernel.ok(
        f"%%sbatch in=model,Model,half out=got as=travelled {PLAIN}\n"
        "got = (model.run(4), Model().run(0), type(model) is Model, half(4))"
    )
    assert kernel.value("travelled.result()") == "(19, 6, True, 3.0)"


@pytest.mark.parametrize("python", [HERE, PLAIN])
def test_a_model_and_its_optimizer_stay_one_on_their_way_there_and_back(kernel: Any, python: str) -> None:
    kernel.ok(
        "class Net:\n    def __init__(self): self.weights = [1.0, 2.0]\n\n"
        "class Step:\n    def __init__(self, net): self.weights = net.weights\n"
        "    def __call__(self): self.weights[0] += 1"
    )
    kernel.ok("net = Net()\nstep, alone = Step(net), [1.0]")
    kernel.ok(f"%%sbatch wait in=net,step,alone out=net,step,told,alone {python}\nstep()\ntold = net.weights")
    assert kernel.value("(net.weights, told is net.weights, alone)") == "([2.0, 2.0], True, [1.0])"
    kernel.ok("step()")
    assert kernel.value("(net.weights, told)") == "([3.0, 2.0], [3.0, 2.0])"


def test_values_in_common_take_nothing_from_a_definition_that_needs_one_of_them(kernel: Any) -> None:
    kernel.ok("SETTING = {'lr': 1}\ndef loss(x, setting=SETTING): return x * setting['lr']")
    kernel.ok(
        "class Fit:\n    def __init__(self, setting): self.setting = setting\n    def run(self, x): return loss(x)\n"
        "fit = Fit(SETTING)"
    )
    kernel.ok(f"%%sbatch wait in=fit,SETTING out=told {PLAIN}\ntold = fit.run(3), fit.setting == SETTING")
    assert kernel.value("told") == "(3, True)"


def test_what_cannot_travel_is_said_by_name_before_submission(kernel: Any) -> None:
    kernel.ok(
        "import threading\nlock, fine, table = threading.Lock(), 1, [1]\ndef uses(): return table\nimport functools\nsmall = functools.lru_cache(uses)"
    )
    before = kernel.value("len(__import__('jupyter_slurm').jobs())")
    ran = kernel.run("%%sbatch in=lock,fine,fin,uses,small\nfine")
    assert ran.error == "UsageError"
    assert "lock (lock) cannot be sent: cannot pickle" in ran.traceback
    assert "there is no variable fin. Did you mean fine?" in ran.traceback
    assert "uses uses table, which is not sent" in ran.traceback
    assert "small cannot be sent: its source is unknown" in ran.traceback
    kernel.ok(
        "from jupyter_slurm.client.settings import settings\nsettings().values_limit, limit = 2_000_000, settings().values_limit"
    )
    ran = kernel.run("%%sbatch in=big,fine\nfine" if kernel.ok("big = b'x' * 3_000_000") else "")
    assert "larger than 2.0 MB: big 3.0 MB" in ran.traceback
    kernel.ok("settings().values_limit = limit")
    assert "Python cells" in kernel.run("%%sbatch in=fine\n#!/bin/sh\ntrue").traceback
    assert "not a variable name" in kernel.run("%%sbatch in=fine.real\n1").traceback
    assert kernel.value("len(__import__('jupyter_slurm').jobs())") == before


def test_one_bad_value_does_not_lose_the_rest(kernel: Any) -> None:
    kernel.ok(f"%%sbatch out=good,bad,missing as=mixed {HERE}\nimport threading\ngood, bad = 42, threading.Lock()")
    told = kernel.ok("mixed.wait()").stderr
    assert "bad was not returned: it cannot be pickled" in told
    assert "missing was not returned: the cell ended without it" in told
    assert kernel.value("good") == "42"
    assert kernel.value("dict(mixed.outputs)") == "{'good': 42}"
    assert kernel.value("sorted(mixed.outputs.errors)") == "['bad', 'missing']"
    ran = kernel.run("mixed.outputs['bad']")
    assert ran.error == "JobError"
    assert "cannot be pickled" in ran.traceback
    assert "bad is not returned to the notebook" in kernel.value("mixed.stderr")


def test_that_a_value_is_missing_is_said_once(kernel: Any) -> None:
    ran = kernel.ok(f"%%sbatch wait out=good,gone {HERE}\ngood = 1")
    assert "gone is not returned to the notebook" in kernel.drawn(ran.display)[-1]["text/plain"]
    assert "gone was not returned" not in ran.stderr
    kernel.ok(f"%%sbatch out=gone as=failing {HERE}\n1 / 0")
    ran = kernel.run("failing.wait()")
    assert "gone is not returned to the notebook" in ran.traceback
    assert "gone was not returned" not in ran.stderr
    kernel.ok(f"%%sbatch out=gone as=asked {HERE}\n1")
    ran = kernel.run("asked.result()")
    assert "JobError: gone was not returned: the cell ended without it" in ran.traceback
    assert "gone" not in ran.stderr


def test_a_module_that_is_missing_over_there_is_named(kernel: Any) -> None:
    kernel.ok("import numpy as np\nvector, number = np.zeros(3), 5")
    ran = kernel.run(f"%%sbatch wait in=vector,number {PLAIN}\nnumber")
    assert ran.error == "JobFailed"
    assert "vector needs the module numpy" in ran.traceback
    assert "/usr/bin/python3" in ran.traceback


@pytest.mark.here_only("it looks into files of this machine")
def test_values_outlive_the_kernel_and_are_taken_from_our_own_folder_only(kernel: Any, tmp_path: Path) -> None:
    kernel.ok(f"%%sbatch wait out=kept as=later {HERE}\nkept = list(range(3))")
    key, folder = kernel.value("later.key"), Path(kernel.value("later.data['folder']"))
    kernel.restart()
    kernel.ok(f"import jupyter_slurm\nlater = jupyter_slurm.job({key!r})")
    assert kernel.value("later.result()") == "[0, 1, 2]"
    assert (folder / "out.values").stat().st_mode & 0o777 == 0o600
    kernel.ok(f"again = jupyter_slurm.job({key!r})")
    os.chmod(folder, 0o777)
    ran = kernel.run("again.outputs")
    os.chmod(folder, 0o700)
    assert ran.error == "JobOutputMissing"


@pytest.mark.root
def test_values_that_another_user_has_put_there_are_not_loaded(kernel: Any, tmp_path: Path, bob: str) -> None:
    kernel.ok(f"%%sbatch wait out=mine as=done {HERE}\nmine = {{1}}")
    kernel.ok(f"%%sbatch wait --array 0-1 out=each as=tasks {HERE}\neach = {{1}}")
    ran, theirs = tmp_path / "ran", pwd.getpwnam(bob)
    forged = (
        f"import jupyter_slurm.runner.variables.values_file as file, os\n"
        f"class Forged:\n    def __reduce__(self): return os.system, ('touch {ran}',)\n"
        f"found = file.PackedValue({{'mine': Forged()}})\n"
    )
    for job, name in (("done", "out.values"), ("tasks", "out.1.values")):
        folder = Path(kernel.value(f"{job}.data['folder']"))
        kernel.ok(f"{forged}file.write({str(folder / name)!r}, [(found.item, found.pieces)])")
        away = folder.with_name("away")
        folder.rename(away)
        shutil.copytree(away, folder)
        for path in (folder, *folder.iterdir()):
            os.chown(path, theirs.pw_uid, theirs.pw_gid)
            path.chmod(0o755 if path.is_dir() else 0o644)
        failed = kernel.run(
            f"import jupyter_slurm\njupyter_slurm.job({job}.key){'' if job == 'done' else '[1]'}.outputs"
        )
        assert failed.error == "JobOutputMissing"
        assert f"belongs to another user (uid {theirs.pw_uid})" in failed.traceback
        if job == "tasks":
            assert kernel.value("'each' in tasks.table().columns") == "False"
        shutil.rmtree(folder)
        away.rename(folder)
    assert not ran.exists()


def test_tasks_of_an_array_leave_their_own_values(kernel: Any) -> None:
    kernel.ok("base = 10")
    kernel.ok(
        f"%%sbatch --array 1-2 wait in=base out=mine as=tasks {HERE}\nimport os\nmine = base + int(os.environ['SLURM_ARRAY_TASK_ID'])"
    )
    assert kernel.value("[tasks[i].result() for i in (1, 2)]") == "[11, 12]"


@pytest.mark.slow
def test_a_large_array_goes_there_and_back(kernel: Any) -> None:
    """The agent limits the size of request bodies: it gets a file."""
    kernel.ok("import numpy as np\nlarge = np.arange(12_500_000.0)")
    kernel.ok(f"%%sbatch in=large out=larger as=big {HERE}\nlarger = large + 1")
    assert kernel.value("(big.wait().outputs['larger'] - large).max(), larger.nbytes") == "1.0 100000000"


def test_a_folder_travels_with_a_cell_and_what_is_new_comes_back_before_its_wait_is_over(kernel: Any, home: Path):
    (home / "project").mkdir()
    (home / "project" / "read").write_text("from the notebook's machine\n")
    ran = kernel.ok("%%sbatch stage=project as=staged wait\nprint(open('read').read()); open('new', 'w').write('yes')")
    assert (home / "project" / "new").read_text() == "yes"
    assert "from the notebook's machine" in kernel.text(ran.display)
    assert "1 new or changed file copied back" in kernel.text(ran.display)
    where = kernel.value("staged.data['stage']['folders'][0]['dest']")
    assert kernel.value("staged.data['work_dir']") == where
    (home / "project" / "read").write_text("later\n")
    assert "not a way to synchronise" in kernel.run("%%sbatch stage=project sync=all\n1").traceback
    assert "cannot be staged" in kernel.run("%%sbatch stage=nowhere\n1").traceback
    assert "Add stage=DIR" in kernel.run("%%sbatch sync=delete\n1").traceback
    again = kernel.ok("same = staged.resubmit(); same.wait(); print(same.data['stage']['state'], same.stdout)")
    assert again.stdout.startswith("back later\n")
