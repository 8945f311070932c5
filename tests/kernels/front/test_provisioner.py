"""Tests of the notebook by which the proxy of a remote kernel is found again, as the provisioner passes it on."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from jupyter_slurm.kernels import provisioner
from jupyter_slurm.kernels.state_file import KernelStateFile

_TELLS = """
import json, os, pathlib, time
draft = pathlib.Path("draft")
draft.write_text(json.dumps(os.environ.get("JPY_SESSION_NAME")))
draft.rename("notebook")
time.sleep(600)
"""


@pytest.fixture
def start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]
) -> Iterator[Callable[[dict[str, str] | None], tuple[Any, Any]]]:
    """Return ``start(env)``, which starts a proxy that tells its notebook; it returns the manager and the notebook."""
    monkeypatch.setattr(provisioner, "schedule_release", lambda *_: None)
    started: list[Any] = []

    def start(env: dict[str, str] | None) -> tuple[Any, Any]:
        (tmp_path / "far").mkdir(exist_ok=True)
        metadata = {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}}
        argv = [sys.executable, "-c", _TELLS]
        spec = {"argv": argv, "display_name": "Far", "language": "python", "metadata": metadata}
        (tmp_path / "far" / "kernel.json").write_text(json.dumps(spec))
        specs = KernelSpecManager(kernel_dirs=[str(tmp_path)], ensure_native_kernel=False)
        file = str(tmp_path / f"kernel-{len(started)}.json")
        manager = KernelManager(kernel_name="far", kernel_spec_manager=specs, connection_file=file, transport="ipc")
        told = tmp_path / "notebook"
        told.unlink(missing_ok=True)
        started.append(manager)
        manager.start_kernel(cwd=str(tmp_path), **({} if env is None else {"env": env}))
        wait_for(told.exists, "the proxy tells its notebook")
        return manager, json.loads(told.read_text())

    yield start
    for manager in started:
        manager.shutdown_kernel(now=True)


def test_a_client_in_a_cell_does_not_pass_on_the_notebook_of_the_cell(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As papermill does. A Jupyter server sets another notebook, or its own if it has one."""
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/outer.ipynb")
    for env in (None, dict(os.environ)):
        _, notebook = start(env)
        assert notebook is None
    _, notebook = start({**os.environ, "JPY_SESSION_NAME": "/home/me/inner.ipynb"})
    assert notebook == "/home/me/inner.ipynb"


def test_a_renamed_notebook_finds_its_kernel_after_a_crash_of_jupyter(start: Callable[..., Any]) -> None:
    manager, notebook = start({**os.environ, "JPY_SESSION_NAME": "/home/me/Untitled.ipynb"})
    post = KernelStateFile(manager.connection_file, notebook, "far")
    post.write(state="running", step="TRAIN")
    manager.update_env(env={**os.environ, "JPY_SESSION_NAME": "/home/me/train.ipynb"})
    assert manager.is_alive()
    post.close()

    def found(number: int, path: str) -> Any:
        file = str(Path(manager.connection_file).with_name(f"kernel-of-{number}.json"))
        again = KernelStateFile(file, path, "far")
        try:
            return again.data.get("step")
        finally:
            again.close()

    assert found(1, "/home/me/Untitled.ipynb") is None
    assert found(2, "/home/me/train.ipynb") == "TRAIN"


def test_a_kernel_without_a_notebook_gets_none_by_a_rename(
    start: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JPY_SESSION_NAME", "/home/me/outer.ipynb")
    manager, notebook = start(dict(os.environ))
    assert notebook is None
    assert manager.is_alive()
    assert not list(Path(manager.connection_file).parent.glob("*.slurm*"))
