"""Kernels on the nodes of a real Slurm, as jupyter_client starts them from a kernelspec."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager

from jupyter_slurm.embedded import EmbeddedCluster

_PATIENCE = 90.0  # seconds for a cell on a busy machine


class Told:
    """What one cell did."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        self.status, self.error = str(reply["status"]), str(reply.get("evalue") or "")
        self.kind = str(reply.get("ename") or "")
        streams = [one["content"] for one in messages if one["msg_type"] == "stream"]
        self.stdout = "".join(part["text"] for part in streams if part["name"] == "stdout")
        self.stderr = "".join(part["text"] for part in streams if part["name"] == "stderr")


class NodeKernel:
    """A kernel of a kernelspec of ours, and what it publishes."""

    def __init__(self, specs: KernelSpecManager, env: dict[str, str], folder: Path, name: str, **variables: str):
        file = tempfile.mktemp(prefix="kernel-", suffix=".json", dir=folder)
        self.manager = KernelManager(kernel_name=name, kernel_spec_manager=specs, connection_file=file)
        self.manager.start_kernel(env={**env, **variables}, cwd=str(folder))
        self.client: Any = self.manager.blocking_client()
        self.client.start_channels(hb=False)
        self.messages: list[dict[str, Any]] = []
        self._listen()

    def _listen(self) -> None:
        """Wait until what is published arrives."""
        while True:
            self.client.kernel_info(reply=True, timeout=_PATIENCE)
            with contextlib.suppress(queue.Empty):
                self.client.get_iopub_msg(timeout=0.5)
                return

    def begin(self, code: str) -> str:
        return str(self.client.execute(code))

    def pump(self, seconds: float = 0.1) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                with contextlib.suppress(ValueError):  # a front that was killed said it, too: its signature is known
                    self.messages.append(self.client.get_iopub_msg(timeout=seconds))
                seconds = 0.0

    def under(self, cell: str) -> list[dict[str, Any]]:
        self.pump()
        return [one for one in self.messages if one["parent_header"].get("msg_id") == cell]

    def said(self, cell: str) -> str:
        """What has been printed under a cell so far."""
        return "".join(one["content"]["text"] for one in self.under(cell) if one["msg_type"] == "stream")

    def end(self, cell: str) -> Told:
        deadline = time.monotonic() + _PATIENCE
        reply = None
        while time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                answer = self.client.get_shell_msg(timeout=0.05)
                reply = answer["content"] if answer["parent_header"].get("msg_id") == cell else reply
            told = self.under(cell)
            if reply is not None and any(one["content"].get("execution_state") == "idle" for one in told):
                return Told(reply, told)
        raise AssertionError(f"the cell did not end: {self.under(cell)}")

    def run(self, code: str) -> Told:
        return self.end(self.begin(code))

    def value(self, expression: str) -> str:
        told = self.run(f"print({expression})")
        assert told.status == "ok", told.error
        return told.stdout.removesuffix("\n")

    @property
    def post(self) -> dict[str, Any]:
        """What the signpost says."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            told: dict[str, Any] = json.loads(Path(f"{self.manager.connection_file}.slurm").read_text())
            return told
        return {}

    @property
    def front(self) -> int:
        """The process of the front."""
        return int(getattr(self.manager.provisioner, "pid", 0))

    def stop(self) -> None:
        if self.manager.has_kernel:
            self.client.stop_channels()
            self.manager.shutdown_kernel()


@pytest.fixture(scope="package")
def desk(short_tmp: Path, cluster: EmbeddedCluster) -> Iterator[tuple[Path, dict[str, str]]]:
    """A folder, and the environment that leads to an agent of its own and to the cluster; both end with the tests."""
    folder = Path(tempfile.mkdtemp(prefix="k", dir=short_tmp))
    places = {"job_root": folder / "jobs", "runtime_dir": folder / "run", "state_dir": folder / "state"}
    chosen = {**{name: str(path) for name, path in places.items()}, "agent_host": "daemon"}
    (folder / "config").mkdir()
    (folder / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": chosen}))
    own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    named = {**own, "IPYTHONDIR": "ipython", "XDG_CACHE_HOME": "cache"}
    env = {**os.environ, **cluster.env(), **{name: str(folder / path) for name, path in named.items()}}
    env["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    yield folder, env
    from jupyter_slurm.agent.client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.errors import AgentError

    with contextlib.suppress(AgentError):
        AgentClient.connect(Settings(**{name: str(path) for name, path in places.items()}), start=False).stop_agent()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node_kernel(desk: tuple[Path, dict[str, str]]) -> Iterator[Callable[..., NodeKernel]]:
    """``node_kernel(*words, **variables)``: a kernel that is asked for in these words; it is shut down in the end."""
    folder, env = desk
    started: list[NodeKernel] = []

    def start(*words: str, **variables: str) -> NodeKernel:
        spec = {
            "argv": [sys.executable, "-m", "jupyter_slurm.kernels", "-f", "{connection_file}", *words],
            "display_name": "A kernel",
            "language": "python",
            "metadata": {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}},
        }
        place = folder / "kernels" / "far"
        place.mkdir(parents=True, exist_ok=True)
        (place / "kernel.json").write_text(json.dumps(spec))
        specs = KernelSpecManager(kernel_dirs=[str(folder / "kernels")], ensure_native_kernel=False)
        started.append(NodeKernel(specs, env, folder, "far", **variables))
        return started[-1]

    yield start
    for one in started:
        one.stop()
