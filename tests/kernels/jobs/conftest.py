"""Fixtures: kernels on the nodes of a real Slurm, started by jupyter_client from a kernelspec."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from jupyter_servers import listening_url
from replicas import Replica
from ssh_hosts.ways import Way

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import AgentError

_PATIENCE = 150.0  # seconds for a cell on a busy machine
_FRONT = "jupyter_slurm"  # sender in the messages of a proxy


class Told:
    """Result of one cell."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        self.status, self.error = str(reply["status"]), str(reply.get("evalue") or "")
        self.kind = str(reply.get("ename") or "")
        # Output of the kernel, without messages of its proxy during a wait.
        streams = [one for one in messages if one["msg_type"] == "stream" and one["header"]["username"] != _FRONT]
        self.stdout = "".join(one["content"]["text"] for one in streams if one["content"]["name"] == "stdout")
        results = [one["content"]["data"] for one in messages if one["msg_type"] == "execute_result"]
        self.shown = "".join(data["text/plain"] for data in results)


class NodeKernel:
    """A remote kernel of a kernelspec, and its published messages."""

    def __init__(self, manager: Any, client: Any = None) -> None:
        self.manager = manager
        self.client = client or manager.blocking_client()
        self.client.start_channels(hb=False)  # a missed heartbeat is not a failure, on a busy machine
        self.messages: list[dict[str, Any]] = []
        self.listen()

    def listen(self) -> None:
        """Wait until published messages arrive: those of a request, because some of before a restart may come late."""
        try:
            while True:
                asked = self.client.kernel_info(reply=True, timeout=_PATIENCE)["parent_header"]["msg_id"]
                with contextlib.suppress(queue.Empty, ValueError):  # a killed proxy has sent it before
                    while self.client.get_iopub_msg(timeout=0.5)["parent_header"].get("msg_id") != asked:
                        pass
                    return
        except TimeoutError:
            self.client.stop_channels()
            raise

    def begin(self, code: str) -> str:
        return str(self.client.execute(code))

    def pump(self, seconds: float = 0.1) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                with contextlib.suppress(ValueError):  # a killed proxy has sent it before: its signature is known
                    self.messages.append(self.client.get_iopub_msg(timeout=seconds))
                seconds = 0.0

    def under(self, cell: str) -> list[dict[str, Any]]:
        self.pump()
        return [one for one in self.messages if one["parent_header"].get("msg_id") == cell]

    def said(self, cell: str) -> str:
        """Return the text printed under a cell so far."""
        return "".join(one["content"]["text"] for one in self.under(cell) if one["msg_type"] == "stream")

    def wait_for_text(self, message: str, text: str) -> None:
        """Wait until this text was printed under a cell or another message; it may arrive in parts."""
        deadline = time.monotonic() + _PATIENCE
        while (said := self.said(message)) != text:
            assert time.monotonic() < deadline, said

    def heard(self, message: str | None, condition: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Wait for a published message, of a given parent or of any."""
        deadline = time.monotonic() + _PATIENCE
        while time.monotonic() < deadline:
            told = self.messages if message is None else self.under(message)
            if found := next((one for one in told if condition(one)), None):
                return found
            self.pump()
        raise AssertionError(f"not published: {[one['msg_type'] for one in self.messages[-20:]]}")

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
        """Run a cell; repeat it after a failed cell: for a moment ipykernel 6 refuses cells."""
        deadline = time.monotonic() + _PATIENCE
        while (told := self.end(self.begin(code))).status == "aborted" and time.monotonic() < deadline:
            pass
        return told

    def value(self, expression: str) -> str:
        told = self.run(f"print({expression})")
        assert told.status == "ok", told.error
        return told.stdout.removesuffix("\n")

    @property
    def post(self) -> dict[str, Any]:
        """Return the content of the state file."""
        with contextlib.suppress(FileNotFoundError, ValueError):
            told: dict[str, Any] = json.loads(Path(f"{self.manager.connection_file}.slurm").read_text())
            return told
        return {}

    @property
    def front(self) -> int:
        """Return the process of the proxy."""
        return int(getattr(self.manager.provisioner, "pid", 0))

    def stop(self) -> None:
        """Disconnect, and shut the kernel down if it was started by this object."""
        self.client.stop_channels()
        if self.manager is not None and self.manager.has_kernel:
            self.manager.shutdown_kernel()


@dataclass(frozen=True)
class Study:
    """Workplace of a user: a folder, and the environment of an agent and a cluster."""

    folder: Path
    env: dict[str, str]
    cluster: tuple[str, ...]  # name of the cluster in a kernelspec
    started: list[NodeKernel] = field(default_factory=list)

    def start_kernel(self, *words: str, **variables: str) -> NodeKernel:
        """Start a kernel with these words."""
        own = Path(tempfile.mkdtemp(prefix="specs-", dir=self.folder))
        specs = KernelSpecManager(kernel_dirs=[str(self.add_kernel(*words, kernels=own))], ensure_native_kernel=False)
        file = tempfile.mktemp(prefix="kernel-", suffix=".json", dir=self.folder)
        # Not by TCP: another program may take a port between its choice here and its use by the proxy.
        manager = KernelManager(kernel_name="far", kernel_spec_manager=specs, connection_file=file, transport="ipc")
        manager.start_kernel(env={**self.env, **variables}, cwd=str(self.folder))
        try:
            self.started.append(NodeKernel(manager))
        except BaseException:
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()
            raise
        return self.started[-1]

    def stop_kernels(self) -> None:
        """Stop kernels that a failed test has left: otherwise their sockets fail a later test, which collects them."""
        for kernel in self.started:
            kernel.stop()

    def change(self, kernel: NodeKernel, *words: str) -> None:
        """Change the words of a started kernel from its next start on."""
        self.add_kernel(*words, kernels=Path(kernel.manager.kernel_spec.resource_dir).parent)

    def add_kernel(self, *words: str, name: str = "far", kernels: Path | None = None) -> Path:
        """Add a kernel with these words to Jupyter; return its folder."""
        command = [sys.executable, "-m", "jupyter_slurm.kernels", "-f", "{connection_file}"]
        own = (
            []
            if any(word.startswith(("env=", "image=", "python=")) for word in words)
            else [f"python={sys.executable}"]
        )
        argv = [*command, *self.cluster, *words, *own]
        metadata = {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}}
        place = (kernels or self.folder / "data" / "kernels") / name
        place.mkdir(parents=True, exist_ok=True)
        spec = {"argv": argv, "display_name": f"A {name} kernel", "language": "python", "metadata": metadata}
        (place / "kernel.json").write_text(json.dumps(spec))
        return place.parent


@pytest.fixture(scope="module")
def new_study(short_tmp: Path, cluster: EmbeddedCluster, way: Way) -> Callable[..., Any]:
    """Return ``with new_study(jobs=None) as study``: a workplace, optionally with a parent of the job directories."""
    return lambda jobs=None: _studying(Path(tempfile.mkdtemp(prefix="k", dir=short_tmp)), cluster, way, jobs)


@pytest.fixture(scope="module")
def study(new_study: Callable[..., Any]) -> Iterator[Study]:
    """Provide a workplace with an agent that ends with the tests."""
    with new_study() as made:
        yield made


@contextlib.contextmanager
def _studying(folder: Path, cluster: EmbeddedCluster, way: Way, jobs: Path | None) -> Iterator[Study]:
    reached = way.settings(cluster, folder, str(jobs or folder / "jobs"))
    places = {"runtime_dir": str(folder / "run"), "state_dir": str(folder / "state"), **reached}
    (folder / "config").mkdir()
    chosen = {"Settings": {**places, "agent_host": "daemon"}}
    (folder / "config" / "jupyter_slurm_config.json").write_text(json.dumps(chosen))
    own = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "data", "JUPYTER_RUNTIME_DIR": "runtime"}
    named = {**own, "IPYTHONDIR": "ipython", "XDG_CACHE_HOME": "cache"}
    slurm = {} if way.is_remote else cluster.env()
    env = {**os.environ, **slurm, **{name: str(folder / path) for name, path in named.items()}}
    env["PYTHONPATH"] = os.pathsep.join(entry for entry in sys.path if entry)
    study = Study(folder, env, ("far",) if way.is_remote else ())
    try:
        yield study
    finally:
        study.stop_kernels()
    with contextlib.suppress(AgentError):
        AgentClient.connect(Settings(**places), start=False).stop_agent()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def node_kernel(study: Study) -> Iterator[Callable[..., NodeKernel]]:
    """Return ``node_kernel(*words, **variables)``, which starts a kernel with these words; shut it down at the end."""
    started: list[NodeKernel] = []

    def start(*words: str, **variables: str) -> NodeKernel:
        started.append(study.start_kernel(*words, **variables))
        return started[-1]

    yield start
    for one in started:
        one.stop()


@pytest.fixture
def notebook(study: Study) -> Iterator[NodeKernel]:
    """Provide another notebook, with a local kernel that has the magics."""
    file = tempfile.mktemp(prefix="kernel-", suffix=".json", dir=study.folder)
    manager = KernelManager(transport="ipc", connection_file=file)
    manager.start_kernel(env=study.env, cwd=str(study.folder))
    kernel = NodeKernel(manager)
    assert kernel.run("%load_ext jupyter_slurm").status == "ok"
    yield kernel
    kernel.stop()


@pytest.fixture(scope="module")
def site_kernel(replicas: Callable[[str], Replica]) -> Iterator[Callable[..., NodeKernel]]:
    """Return ``site_kernel(site, *words)``: a kernel on the replica of a site, for all tests of a file."""
    started: list[NodeKernel] = []

    def start(site: str, *words: str) -> NodeKernel:
        laptop = replicas(site).laptop
        env = {**laptop.env, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
        started.append(Study(laptop.home, env, (site,)).start_kernel(*words))
        return started[-1]

    yield start
    for one in started:
        one.stop()


class Server:
    """A Jupyter server of the workplace, with its notebook."""

    def __init__(self, folder: Path, env: dict[str, str], *more: str) -> None:
        self.folder, self._token = folder, secrets.token_hex(16)
        self.env = env
        self._kernels: list[NodeKernel] = []
        own = {**env, "JUPYTER_TOKEN": self._token}
        options = [
            "--allow-root",
            "--no-browser",
            "--port=0",
            "--ServerApp.jpserver_extensions={'jupyter_slurm': True}",
            *more,
        ]
        with (folder / "server.log").open("ab") as log:
            command = [sys.executable, "-P", "-m", "jupyter", "server", *options]
            self.process = subprocess.Popen(command, cwd=folder, env=own, stdout=log, stderr=log)
        record = folder / "runtime" / f"jpserver-{self.process.pid}.json"
        deadline = time.monotonic() + _PATIENCE
        while not hasattr(self, "url"):
            assert time.monotonic() < deadline, (folder / "server.log").read_text()
            time.sleep(0.1)
            if url := listening_url(record):
                self.url = url

    def open(self, notebook: str, kernel: str = "far") -> NodeKernel:
        """Open a notebook with a kernel."""
        asked = {"path": notebook, "name": notebook, "type": "notebook", "kernel": {"name": kernel}}
        self.session = self.ask("POST", "api/sessions", asked)
        return self.connect()

    def connect(self) -> NodeKernel:
        """Return the present kernel of the notebook."""
        self.session = self.ask("GET", f"api/sessions/{self.session['id']}")
        file = str(self.folder / "runtime" / f"kernel-{self.session['kernel']['id']}.json")
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        self.kernel = NodeKernel(None, client)
        self._kernels.append(self.kernel)
        return self.kernel

    def close(self) -> None:
        """Shut the notebook's kernel down."""
        self.kernel.stop()
        self.ask("DELETE", f"api/sessions/{self.session['id']}")

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Request a resource of the server."""
        answer = self.request(method, path, body)
        answer.raise_for_status()
        return answer.json() if answer.content else None

    def request(self, method: str, path: str, body: Any = None) -> httpx.Response:
        headers = {"Authorization": f"token {self._token}"}
        return httpx.request(method, self.url + path, json=body, headers=headers, timeout=_PATIENCE)

    def end(self, number: int) -> None:
        for one in self._kernels:
            one.stop()
        self.process.send_signal(number)
        self.process.wait(_PATIENCE)


@pytest.fixture
def jupyter(study: Study) -> Iterator[Callable[..., Server]]:
    """Return ``jupyter(*options)``, which starts a Jupyter server after the end of the previous one."""
    started: list[Server] = []

    def start(*options: str) -> Server:
        study.add_kernel("-p", "arandu")
        started.append(Server(study.folder, study.env, *options))
        return started[-1]

    yield start
    for one in started:
        one.end(signal.SIGKILL)
