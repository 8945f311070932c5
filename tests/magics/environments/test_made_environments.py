"""Tests of ``%slurm env``: environments that jobs make on a real cluster, from wheels of a folder."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]


def _wheel(folder: Path, version: str) -> None:
    """Write a wheel of the package ``greeting``."""
    about = f"greeting-{version}.dist-info"
    with zipfile.ZipFile(folder / f"greeting-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("greeting.py", f"version = '{version}'\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: greeting\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


@pytest.fixture(scope="module")
def wheels(short_tmp: Path) -> Path:
    """Provide a folder of wheels that the nodes see."""
    folder = short_tmp / "wheels"
    folder.mkdir(exist_ok=True)
    for version in ("1.0", "2.0"):
        _wheel(folder, version)
    folder.chmod(0o755)
    return folder


@pytest.fixture
def requirements(kernel: Any, tmp_path: Path, wheels: Path) -> Path:
    """Provide a requirements.txt whose packages come from the folder alone."""
    file = tmp_path / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {wheels}\ngreeting==1.0\n")
    kernel.ok(f"requirements = {str(file)!r}")
    return file


@pytest.mark.here_only("what the node and the login node do is the same")
def test_an_environment_is_made_used_replaced_and_removed(kernel: Any, requirements: Path) -> None:
    kernel.ok("%slurm env create my-env from={requirements} tool=pip as=made wait", timeout=180)
    assert "env=my-env uses it" in kernel.value("made.stdout")
    cell = "import greeting, sys\ngot = greeting.version, sys.prefix"
    kernel.ok(f"%%sbatch env=my-env as=cell out=got wait\n{cell}")
    path = kernel.value("got[1]")
    assert kernel.value("got[0]") == "1.0"
    assert path == kernel.value("cell.record['environment']['venv']")
    assert "/environments/.made/" in path

    ran = kernel.ok("%slurm env create second from={requirements} tool=pip")  # the same packages: no job
    assert f"second is ready: an environment with the same packages exists in {path}" in ran.stdout + str(ran.result)

    requirements.write_text(requirements.read_text().replace("1.0", "3.0"))
    ran = kernel.run("%slurm env create my-env from={requirements} tool=pip wait", timeout=180)
    assert ran.error == "JobFailed"
    assert "pip failed" in ran.traceback or "python failed" in ran.traceback
    kernel.ok(f"%%sbatch env=my-env out=got wait\n{cell}")  # as before
    assert kernel.value("got[0]") == "1.0"

    requirements.write_text(requirements.read_text().replace("3.0", "2.0"))
    kernel.ok("%slurm env create my-env from={requirements} tool=pip wait", timeout=180)
    kernel.ok(f"%%sbatch env=my-env out=got wait\n{cell}")
    assert kernel.value("got[0]") == "2.0"
    kernel.ok("table = %slurm env list\nnames = [row['NAME'] for row in table]")
    assert kernel.value("names") == "['my-env', 'second']"

    kernel.ok("%%sbatch --hold env=second as=held\n1")
    ran = kernel.run("%slurm env remove second")
    assert "The environment second is in use by job" in ran.traceback
    kernel.ok("held.cancel()\nheld.wait(check=False)")
    ran = kernel.ok("%slurm env remove second")
    assert path in ran.stdout + str(ran.result)
    ran = kernel.run("%%sbatch env=second\n1")
    assert "There is no environment 'second'" in ran.traceback
    assert "my-env" in ran.traceback
