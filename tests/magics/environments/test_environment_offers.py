"""Tests of the offer of environments: what a cluster behind SSH has, below the first cell that names none."""

from __future__ import annotations

import json
import os
import shutil
import venv
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.documentation import page_url

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko"), pytest.mark.by_day()]


@pytest.fixture(scope="module")
def made() -> Iterator[Path]:
    """Provide a virtual environment in a usual place of the home directory, with a module beside it."""
    folder = Path.home() / ".virtualenvs" / f"jsl-{os.getpid()}"
    venv.create(folder, symlinks=True)
    (folder / "modules/python").mkdir(parents=True)
    (folder / "modules/python/3.99").write_text("#%Module\nsetenv CHOSEN module\n")
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def environment(environment: dict[str, str], home: Path, made: Path, way: Any) -> dict[str, str]:
    """Provide the environment of the kernel, on a cluster whose users find the module."""
    if way.is_remote:
        with (home / "sites" / "far.toml").open("a") as profile:
            profile.write(f"[shell]\nprelude = {json.dumps(f'export MODULEPATH={made}/modules')}\n")
    return environment


def test_the_first_cell_without_an_environment_is_followed_by_those_of_the_cluster(
    kernel: Any, home: Path, made: Path, way: Any, gate: Callable[[str], Path], wait_for: Callable[..., Any]
) -> None:
    go = gate("go")
    cell = f"import pathlib, time\nwhile not pathlib.Path({str(go)!r}).exists(): time.sleep(0.05)"
    first, offered = kernel.ok(f"%%sbatch as=first\n{cell}"), f"env=~/.virtualenvs/{made.name} (venv)"
    if way.is_remote:
        wait_for(lambda: offered in kernel.text(first.display), "the environments")
        text = kernel.text(first.display)
        assert "Environments on far: " in text
        assert page_url("how-to/choose-an-environment") in text
        assert (home / "state/environment-offers/far").exists()
    second = kernel.ok(f"%%sbatch as=second\n{cell}")
    go.touch()
    kernel.ok("first.wait(); second.wait()")
    assert "Environments on" not in kernel.text(second.display), "once for each cluster"
    assert ("Environments on" in kernel.text(first.display)) == way.is_remote
    kernel.ok(f"%%sbatch env=~/.virtualenvs/{made.name} wait out=prefix\nimport sys\nprefix = sys.prefix")
    assert kernel.value("prefix") == str(made)


def test_a_module_is_an_environment(kernel: Any, made: Path, way: Any) -> None:
    if not os.path.exists("/usr/share/modules/init/bash"):
        pytest.skip("environment-modules is not installed")
    if way.is_remote:
        kernel.ok("%%sbatch env=module:python/3.99 wait out=chosen\nimport os\nchosen = os.environ['CHOSEN']")
        assert kernel.value("chosen") == "module"
    ran = kernel.run("%%sbatch env=module:python/4.99\n1")
    assert "module load python/4.99 failed" in ran.traceback
    assert "does not name modules" in kernel.run("%%sbatch env=module:\n1").traceback
