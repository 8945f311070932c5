"""Tests of ``env=`` and ``modules=`` for steps: a real venv and real Modules, in a real allocation."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("environments are found the same way for jobs, over SSH, too")]

SEEN = "import os, sys\nseen = os.path.basename(sys.prefix), os.environ.get('GREETED'), os.environ.get('VIRTUAL_ENV')"


@pytest.fixture
def made(tmp_path: Path, unavailable: Callable[[str], None]) -> Path:
    """Return a folder with two virtual environments and a module."""
    if not os.path.exists("/usr/share/modules/init/bash"):
        unavailable("environment-modules is not installed")
    for name in ("first", "second"):
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path / name)], check=True)
    (tmp_path / "greeter").write_text("#%Module\nsetenv GREETED {two words}\n")
    return tmp_path


@pytest.fixture(autouse=True)
def nothing_is_left(kernel: Any) -> Iterator[None]:
    yield
    kernel.ok("import jupyter_slurm\nfor one in jupyter_slurm.allocations(): one.release()")


def test_steps_run_in_the_environment_of_their_line_else_of_their_allocation(kernel: Any, made: Path) -> None:
    first, second, module = made / "first", made / "second", made / "greeter"
    kernel.ok(f"%salloc -p arandu env={first} modules={module} as=held wait")
    kernel.ok(f"%%srun wait out=seen\n{SEEN}")
    assert kernel.value("seen") == str(("first", "two words", str(first)))
    kernel.ok("%srun wait as=step sh -c 'command -v python; echo $GREETED'")
    assert kernel.value("step.stdout") == f"{first}/bin/python\ntwo words\n"
    kernel.ok(f"%srun env={second} wait as=step sh -c 'command -v python; echo -$GREETED-'")
    assert kernel.value("step.stdout") == f"{second}/bin/python\n--\n", "not added to that of the allocation"
    kernel.ok(f"%%srun wait as=step env={second}\n#!/bin/sh\necho $VIRTUAL_ENV")
    assert kernel.value("step.stdout") == f"{second}\n"
    assert kernel.value("step.record['environment']['venv']") == str(second)
    kernel.ok(f"%%srun wait out=seen python={sys.executable}\n{SEEN}")
    assert kernel.value("seen[1:]") == str(("two words", str(first))), "another Python, in the same environment"


def test_a_process_keeps_its_environment(kernel: Any, made: Path) -> None:
    first, second, module = made / "first", made / "second", made / "greeter"
    kernel.ok("%salloc -p arandu as=held")
    kernel.ok(f"%%remote out=seen env={first} modules={module}\n{SEEN}")
    assert kernel.value("seen") == str(("first", "two words", str(first)))
    ran = kernel.run(f"%%remote env={second}\n1")
    assert "already runs with other options" in ran.traceback
    kernel.ok("%remote restart")
    kernel.ok(f"%%remote out=seen\n{SEEN}")
    assert kernel.value("seen") == str(("first", "two words", str(first))), "as before the restart"
    kernel.ok("%remote stop")
    kernel.ok(f"%%remote out=seen env={second}\n{SEEN}")
    assert kernel.value("seen") == str(("second", None, str(second)))
    kernel.ok(f"%%sbatch wait out=seen env={first} modules={module}\n{SEEN}")
    assert kernel.value("seen") == str(("first", "two words", str(first))), "the same words for a job"


def test_what_cannot_be_used_is_refused_before_anything_is_submitted(kernel: Any, made: Path) -> None:
    (made / "job.sh").write_text("#!/bin/sh\n")
    for line, command in (
        ("%salloc", ""),
        ("%srun", " true"),
        ("%sbatch", f" {made}/job.sh"),
        ("%%sbatch", "\n1"),
        ("%slurm launch", ""),
    ):
        for env, said in (
            (f"env={made}/lost", "lost does not exist on"),
            ("image=/lost.sif", "/lost.sif does not exist on"),
            ("image=a:1 env=b", "image= and env= cannot be combined"),
            ("image=a:1 modules=b", "Modules are of no use in the container image"),
            ("modules=no/such", "cannot be loaded"),
            ("modules=a,,b", "modules=a,,b does not name modules"),
            ("modules=a env=module:b", "env= names modules, too"),
        ):
            ran = kernel.run(f"{line} {env} -p arandu{command}")
            assert said in ran.traceback, (line, env)
    kernel.ok("import jupyter_slurm, time\nwhile jupyter_slurm.allocations(): time.sleep(0.2)")
    assert "image=" in kernel.complete("%sbatch im")[0]
    for line in ("%salloc ", "%%sbatch wait ", "%slurm launch -p arandu "):
        assert {"env=", "image=", "modules="} <= set(kernel.complete(line)[0]), line


def test_a_session_loads_the_modules_of_its_line(kernel: Any, made: Path, wait_for: Callable[..., Any]) -> None:
    server = "sh -c 'echo \"greeted $GREETED\"; exec python3 -m http.server --bind {host} {port}'"
    kernel.ok(f"%slurm launch -p arandu --time 5:00 noopen modules={made}/greeter name=shown -- {server}")
    try:
        wait_for(lambda: "greeted two words" in kernel.value("shown.log()"), "its output")
    finally:
        kernel.ok("shown.stop()")
