"""Fixtures: a real kernel on a real cluster, and its messages for a front end."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.manager import KernelManager
from screens import open_screen  # noqa: F401 - a fixture
from ssh_hosts.ways import Way

from jupyter_slurm.embedded import EmbeddedCluster


class Ran:
    """Result of one cell."""

    def __init__(self, reply: dict[str, Any], messages: list[dict[str, Any]]) -> None:
        self.status: str = reply["status"]
        self.error: str | None = reply.get("ename")
        self.traceback: str = "\n".join(reply.get("traceback") or [])
        self.messages = messages

    def _content(self, *kinds: str) -> list[dict[str, Any]]:
        return [message["content"] for message in self.messages if message["msg_type"] in kinds]

    @property
    def stdout(self) -> str:
        return "".join(part["text"] for part in self._content("stream") if part["name"] == "stdout")

    @property
    def stderr(self) -> str:
        return "".join(part["text"] for part in self._content("stream") if part["name"] == "stderr")

    @property
    def result(self) -> dict[str, str]:
        return next((dict(part["data"]) for part in self._content("execute_result")), {})

    @property
    def display(self) -> str | None:
        """Return the display id of the cell's display."""
        shown = [
            part for part in self._content("display_data") if "jupyter-slurm-job" in part["data"].get("text/html", "")
        ]
        assert len(shown) <= 1, "a cell shows its job once"
        return shown[0]["transient"].get("display_id") if shown else None


class Kernel:
    """A kernel and its published messages."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self.env, self.folder = env, folder
        self.messages: list[dict[str, Any]] = []
        self.answer: Callable[[], str] | None = None
        self.asked: list[str] = []
        self._start()

    def _start(self) -> None:
        # With many parallel tests that start kernels, the same port is sometimes assigned twice.
        self.manager = KernelManager(transport="ipc", connection_file=tempfile.mktemp(".json", "k-", self.folder))
        self.manager.start_kernel(env=self.env, cwd=str(self.folder))
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=180)

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()

    def restart(self) -> None:
        """Restart the kernel, as "Restart kernel" does."""
        self.stop()
        self._start()
        self.run("%load_ext jupyter_slurm")

    def begin(self, code: str, cell: str = "") -> str:
        """Send a cell; return the id of the request. JupyterLab names the ``cell``, nbconvert and a terminal none."""
        content = {"code": code, "silent": False, "store_history": True, "stop_on_error": True}
        allow: dict[str, Any] = {"user_expressions": {}, "allow_stdin": self.answer is not None}
        metadata = {"cellId": cell} if cell else {}
        message = self.client.session.msg("execute_request", {**content, **allow}, metadata=metadata)
        self.client.shell_channel.send(message)
        return str(message["header"]["msg_id"])

    def pump(self, seconds: float = 0.05) -> None:
        """Read published messages, and answer input requests."""
        try:
            while True:
                self.messages.append(self.client.get_iopub_msg(timeout=seconds))
                seconds = 0.0
        except queue.Empty:
            pass
        if self.answer is not None:
            try:
                question = self.client.get_stdin_msg(timeout=0)
            except queue.Empty:
                return
            self.asked.append(question["content"]["prompt"])
            self.client.input(self.answer())

    def end(self, request: str, timeout: float = 90.0) -> Ran:
        """Wait for the end of a cell."""
        deadline = time.monotonic() + timeout
        reply = None
        while time.monotonic() < deadline:
            self.pump()
            while reply is None:
                try:
                    answer = self.client.get_shell_msg(timeout=0)
                except queue.Empty:
                    break
                if answer["parent_header"]["msg_id"] == request:
                    reply = answer["content"]
            if reply is not None and any(
                m["msg_type"] == "status" and m["content"]["execution_state"] == "idle" for m in self.under(request)
            ):
                return Ran(reply, self.under(request))
        raise AssertionError(f"the cell did not end within {timeout} s: {self.under(request)}")

    def run(self, code: str, timeout: float = 90.0, *, cell: str = "") -> Ran:
        return self.end(self.begin(code, cell), timeout)

    def ok(self, code: str, timeout: float = 90.0) -> Ran:
        """Run a cell that must succeed."""
        ran = self.run(code, timeout)
        assert ran.status == "ok", ran.traceback
        return ran

    def complete(self, code: str) -> tuple[list[str], list[str]]:
        """Return the completions at the end of the code's first line, with their descriptions."""
        at = len(code.partition("\n")[0])
        reply = self.client.complete(code, at, reply=True, timeout=60)["content"]
        said = reply["metadata"].get("_jupyter_types_experimental") or []
        return list(reply["matches"]), [one["type"].replace("\N{NO-BREAK SPACE}", " ") for one in said]

    def value(self, expression: str) -> str:
        """Return the printed value of an expression."""
        return self.ok(f"print({expression})").stdout.removesuffix("\n")

    def under(self, request: str) -> list[dict[str, Any]]:
        """Return the messages published under a cell."""
        return [m for m in self.messages if m["parent_header"].get("msg_id") == request]

    def drawn(self, display: str | None) -> list[dict[str, Any]]:
        """Return the successive contents of a display id."""
        assert display is not None
        return [
            m["content"]["data"]
            for m in self.messages
            if m["msg_type"] in ("display_data", "update_display_data")
            and m["content"]["transient"].get("display_id") == display
        ]

    def outputs(self, request: str) -> list[dict[str, Any]]:
        """Return the present outputs of a cell except its job: MIME bundles."""
        self.pump()
        ids = [
            m["content"]["transient"]["display_id"]
            for m in self.under(request)
            if m["msg_type"] == "display_data" and "jupyter-slurm-job" not in m["content"]["data"].get("text/html", "")
        ]
        drawn = [self.drawn(display)[-1] for display in ids]
        return [bundle for bundle in drawn if bundle and "application/vnd.jupyter.widget-view+json" not in bundle]

    def text(self, display: str | None) -> str:
        """Return the present text."""
        self.pump()
        return str(self.drawn(display)[-1]["text/plain"])

    def html(self, display: str | None) -> str:
        self.pump()
        return str(self.drawn(display)[-1]["text/html"])


@pytest.fixture(scope="session")
def settings_of() -> Callable[..., dict[str, str]]:
    """Return ``settings_of(folder, **settings)``, which writes a configuration and returns its environment."""

    def write(folder: Path, **settings: Any) -> dict[str, str]:
        chosen = {
            "job_root": str(folder / "jobs"),
            "runtime_dir": str(folder / "run"),
            "state_dir": str(folder / "state"),
            "agent_host": "daemon",
            **settings,
        }
        (folder / "config").mkdir(exist_ok=True)
        (folder / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": chosen}))
        return {
            "JUPYTER_CONFIG_DIR": str(folder / "config"),
            "IPYTHONDIR": str(folder / "ipython"),
            "JUPYTER_RUNTIME_DIR": str(folder / "runtime"),
        }

    return write


@pytest.fixture(scope="module")
def home(short_tmp: Path, way: Way) -> Iterator[Path]:
    """Provide a short folder, for the path of a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="m", dir=short_tmp))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def environment(
    way: Way, cluster: EmbeddedCluster, home: Path, settings_of: Callable[..., dict[str, str]]
) -> Iterator[dict[str, str]]:
    """Provide the environment of a kernel with access to the cluster; the agent ends with the module."""
    reached = way.settings(cluster, home, str(home / "jobs"))
    settings = settings_of(home, **reached, **({"cluster": "far"} if way.is_remote else {}))
    slurm = {} if way.is_remote else cluster.env()
    yield {**slurm, **settings, "JUPYTERHUB_API_TOKEN": "secret", "MARK_OF_THE_CELL": "here and there"}
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.errors import AgentError

    folders = {"job_root": str(home / "jobs"), "runtime_dir": str(home / "run"), "state_dir": str(home / "state")}
    with contextlib.suppress(AgentError):
        client = AgentClient.connect(Settings(**folders), start=False)
        if way.is_remote:  # otherwise its SSH connection stays
            client.post("/v1/clusters", json={"profile": "far"})
            client.post("/v1/clusters/far/disconnect")
        client.stop_agent()


@pytest.fixture(scope="session")
def start_kernel() -> Callable[[dict[str, str], Path], Kernel]:
    """Return ``start_kernel(env, folder)``, which starts a kernel with that environment; the caller stops it."""
    return Kernel


@pytest.fixture(scope="module")
def kernel(environment: dict[str, str], home: Path) -> Iterator[Kernel]:
    """Provide a running kernel with the magics."""
    running = Kernel({**os.environ, **environment}, home)
    running.ok("%load_ext jupyter_slurm")
    yield running
    running.stop()


@pytest.fixture
def bare_kernel(environment: dict[str, str], home: Path) -> Iterator[Kernel]:
    """Provide a running kernel without the magics."""
    running = Kernel({**os.environ, **environment}, home)
    yield running
    running.stop()


@pytest.fixture
def gate(tmp_path: Path) -> Callable[[str], Path]:
    """Return ``gate(name)``, the path of a file whose creation lets a waiting job continue."""
    tmp_path.chmod(0o755)
    return lambda name: tmp_path / name
