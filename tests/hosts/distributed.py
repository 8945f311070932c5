"""What is distributed over nodes, for real: Ray of PyPI, and PyTorch of Debian; neither is installed into this machine."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from jupyter_slurm.embedded.roots import default_cache

__all__ = ["ray_packages"]

RAY = "2.56.0"


@pytest.fixture(scope="session")
def ray_packages(unavailable: Callable[[str], None]) -> Path:
    """A folder for PYTHONPATH with Ray for this system's Python, which is that of the images; kept between runs."""
    told = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = subprocess.run(["/usr/bin/python3", "-c", told], capture_output=True, text=True, check=False)
    if (version := found.stdout.strip()) != "3.11":
        unavailable(f"/usr/bin/python3 is {version or 'missing'}, and the images have 3.11")
    folder = default_cache() / f"ray-{RAY}-{version}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            made = folder.with_suffix(f".{os.getpid()}")
            get = [sys.executable, "-m", "pip", "install", "-q", "--no-compile", "--only-binary=:all:"]
            subprocess.run([*get, f"--python-version={version}", "--target", made, f"ray=={RAY}"], check=True)
            made.rename(folder)
    return folder
