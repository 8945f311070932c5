"""Frameworks distributed over nodes, for real: Ray of PyPI, and PyTorch of Debian, without installing them."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_slurm.embedded.machine.packages import find_program
from jupyter_slurm.embedded.machine.slurm_versions import debian_mirror, default_cache

__all__ = ["ray_packages", "torch_variables"]

RAY = "2.56.0"
PYTHON = "3.11"


def _check_python() -> None:
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run(["/usr/bin/python3", "-c", told], capture_output=True, text=True, check=False).stdout.strip()
    if found != PYTHON:
        pytest.skip(f"/usr/bin/python3 is {found or 'missing'}, that of Debian 12 is {PYTHON}")


@pytest.fixture(scope="session")
def ray_packages() -> Path:
    """Provide a folder for PYTHONPATH with Ray for Debian's Python, which the images have; kept between runs."""
    _check_python()
    folder = default_cache() / f"ray-{RAY}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = folder.with_suffix(f".{os.getpid()}")
            get = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary=:all:"]
            subprocess.run([*get, f"--python-version={PYTHON}", "--target", made, f"ray=={RAY}"], check=True)
            made.rename(folder)
        _give_ray_time(folder)
        _compile(folder)
    return folder


@pytest.fixture(scope="session")
def torch_variables(unavailable: Callable[[str], None]) -> dict[str, str]:
    """Provide the variables that give a job Debian's PyTorch: no GPUs, a tenth of PyPI's size; kept between runs."""
    _check_python()
    if find_program("mmdebstrap") is None:
        unavailable("mmdebstrap is not installed")
    root = default_cache() / "torch-bookworm"
    root.parent.mkdir(parents=True, exist_ok=True)
    with root.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            _unpack_torch(root)
        _compile(root / "usr/lib/python3/dist-packages")
    libraries = next(root.glob("usr/lib/*-linux-gnu"))
    paths = [libraries.parent, libraries, *(libraries / name for name in ("blas", "lapack"))]
    packages = root / "usr/lib/python3/dist-packages"
    return {"PYTHONPATH": str(packages), "LD_LIBRARY_PATH": os.pathsep.join(map(str, paths))}


def _give_ray_time(folder: Path) -> None:
    """Let a node of Ray start for minutes: Ray has 30 s without a setting, too few beside other tests on two cores."""
    module = folder / "ray/_private/node.py"
    own = module.read_text(encoding="utf-8")
    patient = own.replace("raylet_start_wait_time_s = 30\n", "raylet_start_wait_time_s = 240\n")
    assert "raylet_start_wait_time_s = 240\n" in patient, f"Ray {RAY} has no such limit"
    if patient != own:
        made = module.with_suffix(f".{os.getpid()}")
        made.write_text(patient, encoding="utf-8")
        made.chmod(0o644)
        made.rename(module)
        (folder / ".compiled").unlink(missing_ok=True)


def _compile(folder: Path) -> None:
    """Compile the imported modules. Otherwise each of a dozen processes does, if it may not write the folder."""
    stamp = folder / ".compiled"
    if not stamp.exists():
        argv = [
            "/usr/bin/python3",
            "-m",
            "compileall",
            "-q",
            "-x",
            "/(rllib|tune|train|llm|serve|tests|hypothesis|sympy)/",
        ]
        subprocess.run([*argv, str(folder)], check=False, capture_output=True)  # some files are for another Python
        stamp.touch()


def _unpack_torch(root: Path) -> None:
    """Unpack PyTorch with all its dependencies, even if the machine has them."""
    made = root.with_suffix(".new")
    shutil.rmtree(made, ignore_errors=True)
    argv = ["mmdebstrap", "--quiet", "--variant=extract", "--include=python3-torch", "bookworm", str(made)]
    subprocess.run([*argv, f"deb {debian_mirror()} bookworm main"], check=True, capture_output=True)
    # Python 3.11 no longer iterates over an enumeration's empty flag: torchrun of this PyTorch, of 2022, misses its
    # default.
    module = made / "usr/lib/python3/dist-packages/torch/distributed/elastic/multiprocessing/api.py"
    module.write_text(module.read_text().replace("for s in Std:", "for s in (*Std, Std.NONE):"))
    made.chmod(0o755)
    made.rename(root)
