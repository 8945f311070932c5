"""Tests of ``%slurm env``: environments that jobs make on a real cluster, from wheels of a folder."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

# Builds the package ``patient`` as soon as a file lets it.
_BACKEND = """\
import pathlib, shutil, time

def build_wheel(folder, settings=None, metadata=None):
    wheels = pathlib.Path({folder!r})
    (wheels / "begun").touch()
    while not (wheels / "open").exists():
        time.sleep(0.05)
    shutil.copy(wheels / "hidden" / "patient-1.0-py3-none-any.whl", folder)
    return "patient-1.0-py3-none-any.whl"
"""

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]


def _wheel(folder: Path, version: str, name: str = "greeting", text: str = "") -> None:
    """Write a wheel of a package."""
    about = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        wheel.writestr(f"{name}.py", text or f"version = '{version}'\n")
        wheel.writestr(f"{about}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        wheel.writestr(f"{about}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{about}/RECORD", "")


def _patient_source(folder: Path) -> None:
    """Write a source package ``patient``, whose build waits until the file ``open`` exists."""
    (folder / "hidden").mkdir(exist_ok=True)
    _wheel(folder / "hidden", "1.0", "patient")
    files = {
        "pyproject.toml": '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
        '[project]\nname = "patient"\nversion = "1.0"\n',
        "backend.py": _BACKEND.format(folder=str(folder)),
        "PKG-INFO": "Metadata-Version: 2.2\nName: patient\nVersion: 1.0\n",
    }
    with tarfile.open(folder / "patient-1.0.tar.gz", "w:gz") as source:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"patient-1.0/{name}")
            entry.size = len(text)
            source.addfile(entry, io.BytesIO(text.encode()))


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
def test_an_environment_is_made_used_replaced_and_removed(
    kernel: Any, requirements: Path, wait_for: Callable[..., Any]
) -> None:
    kernel.ok("%slurm env create my-env from={requirements} tool=pip as=made wait", timeout=180)
    assert "env=my-env uses it" in kernel.value("made.stdout")
    cell = "import greeting, sys\ngot = greeting.version, sys.prefix"
    kernel.ok(f"%%sbatch env=my-env as=cell out=got wait\n{cell}")
    path = kernel.value("got[1]")
    offered = (["my-env"], ["made, last used"])
    wait_for(lambda: kernel.complete("%%sbatch env=my-") == offered, "the environment, offered")
    assert kernel.value("got[0]") == "1.0"
    assert path == kernel.value("cell.record['environment']['venv']")
    assert "/environments/.made/" in path

    ran = kernel.ok("%slurm env create second from={requirements} tool=pip")  # the same packages: no job
    assert f"second is ready: an environment with the same packages exists in {path}" in ran.stdout + str(ran.result)

    requirements.write_text(requirements.read_text().replace("1.0", "3.0"))
    ran = kernel.run("%slurm env create my-env from={requirements} tool=uv wait", timeout=180)
    assert ran.error == "JobFailed"
    assert "uv failed" in ran.traceback
    assert "cannot reach the index" not in ran.traceback
    kernel.ok(f"%%sbatch env=my-env out=got wait\n{cell}")  # as before
    assert kernel.value("got[0]") == "1.0"

    requirements.write_text(requirements.read_text().replace("3.0", "2.0"))
    kernel.ok("%slurm env create my-env from={requirements} wait", timeout=180)
    kernel.ok(f"%%sbatch env=my-env out=got wait\n{cell}")
    assert kernel.value("got[0]") == "2.0"
    kernel.ok("table = %slurm env list\nnames = [row['NAME'] for row in table]")
    assert kernel.value("{'my-env', 'second'} <= set(names)") == "True"

    kernel.ok("%%sbatch --hold env=second as=held\n1")
    ran = kernel.run("%slurm env remove second")
    assert "The environment second is in use by job" in ran.traceback
    kernel.ok("held.cancel()\nheld.wait(check=False)")
    ran = kernel.ok("%slurm env remove second")
    assert path in ran.stdout + str(ran.result)
    ran = kernel.run("%%sbatch env=second\n1")
    assert "There is no environment 'second'" in ran.traceback
    assert "my-env" in ran.traceback


def test_a_job_and_the_login_node_make_environments_of_files_of_this_computer(kernel: Any, requirements: Path) -> None:
    kernel.ok("%slurm env create by-job from={requirements} tool=pip wait", timeout=180)
    requirements.write_text(requirements.read_text().replace("1.0", "2.0"))
    ran = kernel.ok("%slurm env create by-login from={requirements} tool=pip where=login", timeout=180)
    assert "env=by-login uses it" in ran.stdout
    assert "by-login is ready" in str(ran.result)
    cell = "import greeting, sys\ngot = greeting.version, sys.prefix"
    kernel.ok(f"%%sbatch env=by-job out=got wait\n{cell}")
    assert kernel.value("got[0]") == "1.0"
    kernel.ok(f"%%sbatch env=by-login out=got wait\n{cell}")
    assert kernel.value("got[0]") == "2.0"
    made = Path(kernel.value("got[1]"))
    assert not [path.name for path in made.parent.iterdir() if path.name.startswith(".")]  # no request, no files


@pytest.mark.here_only("what the node and the login node do is the same")
def test_hosts_that_reach_no_index_are_named_without_credentials(kernel: Any, requirements: Path) -> None:
    requirements.write_text("--index-url http://ana:hidden@127.0.0.1:9/simple\ngreeting==1.0\n")
    kernel.ok("import os\nos.environ['PIP_RETRIES'] = '1'")
    try:
        ran = kernel.run("%slurm env create nowhere from={requirements} tool=pip wait", timeout=180)
        assert "It did not reach http://127.0.0.1:9/simple." in ran.traceback
        assert "where=login" in ran.traceback
        login = kernel.run("%slurm env create nowhere from={requirements} tool=pip where=login", timeout=180)
    finally:
        kernel.ok("del os.environ['PIP_RETRIES']")
    assert "Neither the nodes nor the login node reach an index. Tried: node " in login.stderr
    assert "(http://127.0.0.1:9/simple), login node " in login.stderr
    assert "nowhere was not made on the login node" in login.traceback
    assert "hidden" not in ran.traceback + ran.stdout + login.stdout + login.stderr


@pytest.mark.here_only("what the node and the login node do is the same")
def test_the_imports_of_the_notebook_become_an_environment_once(kernel: Any, wheels: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheels / "greeting-1.0-py3-none-any.whl") as wheel:
        wheel.extractall(tmp_path)  # the Python of the notebook has it
    (tmp_path / "greeting-1.0.dist-info" / "top_level.txt").write_text("greeting\n")
    (tmp_path / "of_this_computer.py").touch()
    kernel.ok(f"import os, sys\nsys.path.insert(0, {str(tmp_path)!r})")
    kernel.ok(f"os.environ.update(UV_NO_INDEX='1', UV_FIND_LINKS={str(wheels)!r})")
    try:
        kernel.ok("import greeting\nimport of_this_computer")
        cell = "import greeting, sys\ngot = greeting.version, sys.prefix"
        ran = kernel.ok(f"%%sbatch env=auto out=got wait\n{cell}", timeout=180)
        assert "Making the environment auto-" in ran.stderr
        assert "no installed package has these modules: of_this_computer" in ran.stderr
        path = kernel.value("got[1]")
        assert kernel.value("got[0]") == "1.0"
        assert "/environments/.made/" in path
        ran = kernel.ok(f"%%sbatch env=auto out=got wait\n{cell}")
        assert (ran.stderr, kernel.value("got[1]")) == ("", path)
        ran = kernel.ok("%slurm env create named from=notebook")
        assert f"exists in {path}" in ran.stdout + str(ran.result)
        ran = kernel.run("%%sbatch env=auto show\n1")
        assert "env=auto may need a job" in ran.traceback
    finally:
        kernel.ok("del os.environ['UV_NO_INDEX'], os.environ['UV_FIND_LINKS']\nsys.path.pop(0)")


@pytest.mark.here_only("what the node and the login node do is the same")
def test_packages_for_a_newer_cuda_are_refused_and_failed_imports_are_named(
    cluster: Any,
    settings_of: Callable[..., dict[str, str]],
    start_kernel: Callable[..., Any],
    short_path: Path,
    wheels: Path,
) -> None:
    _wheel(wheels, "12.1.105", "nvidia_cuda_runtime_cu12", "import libcuda_of_a_gpu_node\n")
    _wheel(wheels, "1.0", "crashing", "import os\nos.abort()\n")
    file = short_path / "requirements.txt"
    file.write_text(f"--no-index\n--find-links {wheels}\ncrashing\nnvidia-cuda-runtime-cu12==12.1.105\ngreeting\n")
    settings = settings_of(short_path, agent_host="inprocess", advice={"cuda": "11"})
    kernel = start_kernel({**os.environ, **cluster.env(), **settings}, short_path)
    try:
        kernel.ok("%load_ext jupyter_slurm")
        line = f"%slurm env create gpu from={file} tool=pip"
        ran = kernel.run(line)
        assert "nvidia-cuda-runtime-cu12 12.1.105 is built for CUDA 12, but the drivers of " in ran.traceback
        assert "run CUDA 11 at most" in ran.traceback
        assert "`force`" in ran.traceback
        kernel.ok(f"{line} as=made wait force", timeout=180)
        output = kernel.value("made.stdout")
        assert "Warning: the import of crashing: the import ended the process" in output
        assert "nvidia_cuda_runtime_cu12: ModuleNotFoundError: No module named 'libcuda_of_a_gpu_node'" in output
        assert "greeting" not in output.partition("Warning")[2].replace("env=", "")
        ran = kernel.ok("%%sbatch env=gpu out=got wait\nimport greeting\ngot = greeting.version")
        assert kernel.value("got") == "2.0"
        assert "The packages of gpu are built for CUDA 12" in kernel.text(ran.display)
        kernel.ok("[row] = %slurm env list")
        assert kernel.value("row['CUDA'], row['NOT IMPORTED']") == "12 crashing, nvidia_cuda_runtime_cu12"
    finally:
        kernel.stop()


@pytest.mark.here_only("nothing is sent")
def test_the_login_node_makes_no_environment_by_a_job(kernel: Any, requirements: Path) -> None:
    ran = kernel.run("%slurm env create mine from={requirements} where=login --time 10")
    assert "--time has no effect with where=login" in ran.traceback
    ran = kernel.run("%slurm env create mine from={requirements} where=moon")
    assert "Use where=job or where=login" in ran.traceback


@pytest.mark.here_only("what the node and the login node do is the same")
def test_uv_makes_an_environment_from_a_lock_file(kernel: Any, wheels: Path, tmp_path: Path) -> None:
    uv = shutil.which("uv")
    assert uv, "the extra `test` installs it"
    (tmp_path / "pyproject.toml").write_text(
        '[project]\nname = "mine"\nversion = "0"\nrequires-python = ">=3.9"\ndependencies = ["greeting==1.0"]\n'
        f'[tool.uv]\nno-index = true\nfind-links = ["{wheels}"]\n'
    )
    subprocess.run([uv, "lock"], cwd=tmp_path, check=True)
    kernel.ok(f"lock = {str(tmp_path / 'uv.lock')!r}")
    kernel.ok("%slurm env create locked from={lock} as=made wait", timeout=180)
    kernel.ok("%%sbatch env=locked out=got wait\nimport greeting\ngot = greeting.version")
    assert kernel.value("got") == "1.0"
    assert "with uv in" in kernel.value("made.stdout")


@pytest.mark.here_only("what the node and the login node do is the same")
def test_a_cancelled_build_leaves_its_place_to_the_next(kernel: Any, requirements: Path, wheels: Path) -> None:
    _patient_source(wheels)
    requirements.write_text(requirements.read_text() + "patient\n")
    kernel.ok("%slurm env create first from={requirements} tool=uv as=first")
    _wait_for(lambda: (wheels / "begun").exists())
    kernel.ok("%slurm env create second from={requirements} tool=uv as=second")
    _wait_for(lambda: "which makes the same environment" in kernel.value("second.stdout"))
    (wheels / "begun").unlink()
    kernel.ok("first.cancel()\nfirst.wait(check=False)")
    _wait_for(lambda: (wheels / "begun").exists())
    (wheels / "open").touch()
    kernel.ok("second.wait()", timeout=180)
    assert "The job ended before first was complete" in kernel.value("first.stderr")
    kernel.ok("%%sbatch env=second out=got wait\nimport patient, sys\ngot = sys.prefix")
    made = Path(kernel.value("got"))
    assert list(made.parent.glob(f"{made.name[:16]}*")) == [made]  # nothing of the first build, no lock
    kernel.ok("table = %slurm env list\nnames = [row['NAME'] for row in table]")
    assert kernel.value("'second' in names and 'first' not in names") == "True"


def _wait_for(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.1)
