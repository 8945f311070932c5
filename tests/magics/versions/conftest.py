"""Fixtures: the package before the move of its modules, and kernels of both versions with one agent and job root."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

EARLIER = "596b304"
"""The last commit of the earlier layout. Its job directories and its API equal the present ones."""

EARLIER_PACKAGES = ("ansi2html", "httptools", "httpx-sse", "tenacity", "tomli-w")
"""Packages that the earlier layout needed, and the present one does not."""


@pytest.fixture(scope="session")
def earlier_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Provide the folder of the package of the earlier commit, from the history of this checkout."""
    root = Path(__file__).parents[3]
    archive = subprocess.run(["git", "-C", str(root), "archive", EARLIER, "jupyter_slurm"], capture_output=True)
    if archive.returncode != 0:
        # A clone without its history, or an sdist: no step of the set-up could bring it. test_recorded.py needs none.
        pytest.skip(f"the history of this checkout does not reach back to {EARLIER}")
    folder = tmp_path_factory.mktemp("earlier")
    subprocess.run(["tar", "-x", "-C", folder], input=archive.stdout, check=True)
    get = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-compile", "--no-deps"]
    subprocess.run([*get, "--target", str(folder), *EARLIER_PACKAGES], check=True)
    return folder


@pytest.fixture
def shared_home(
    short_path: Path, cluster: EmbeddedCluster, settings_of: Callable[..., dict[str, str]]
) -> Iterator[dict[str, str]]:
    """Provide the environment of kernels that share one agent; the agent ends with the test."""
    environment = {**os.environ, **cluster.env(), **settings_of(short_path)}
    yield environment
    stop_agent(environment)


def stop_agent(environment: dict[str, str]) -> None:
    """End the agent, of either version."""

    stop = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "agent", "stop"]
    subprocess.run(stop, env=environment, cwd="/", capture_output=True, check=False)


@pytest.fixture
def kernel_of(
    shared_home: dict[str, str], short_path: Path, earlier_package: Path, start_kernel: Callable[..., Any]
) -> Iterator[Callable[[str], Any]]:
    """Return ``kernel_of("earlier" or "present")``, which starts a kernel of that version, in the same home."""
    started: list[Any] = []

    def start(version: str) -> Any:
        own = {"PYTHONPATH": str(earlier_package)} if version == "earlier" else {}
        kernel = start_kernel({**shared_home, **own}, short_path)
        started.append(kernel)
        kernel.ok("%load_ext jupyter_slurm\nimport jupyter_slurm, os")
        has_moved = kernel.value("os.path.isdir(os.path.join(os.path.dirname(jupyter_slurm.__file__), 'client'))")
        assert has_moved == str(version == "present"), "the kernel has the other version"
        return kernel

    yield start
    for kernel in started:
        kernel.stop()
