"""What all tests share: real clusters, ordinary users, and waiting for conditions."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from jupyter_slurm.embedded import EmbeddedCluster


def _wait_for(condition: Callable[[], Any], what: str, timeout: float = 60.0, interval: float = 0.05) -> Any:
    """Return the first true value of ``condition``; fail with ``what`` when there is none in time."""
    deadline = time.monotonic() + timeout
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            pytest.fail(f"not within {timeout:g} s: {what} (last answer: {value!r})")
        time.sleep(interval)


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., Any]:
    """``wait_for(condition, what, timeout=60)``: tests wait for conditions, never for seconds."""
    return _wait_for


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The default cluster (Arandu) without accounting, one for all tests of the session."""
    with EmbeddedCluster(directory=Path(f"/tmp/jsl-{tmp_path_factory.getbasetemp().name}")) as running:
        yield running


@dataclass
class JupyterServer:
    """A Jupyter server of its own: a process, with a home folder, a token and an agent that nobody else has."""

    url: str
    token: str
    home: Path
    process: subprocess.Popen[bytes]

    @property
    def log(self) -> str:
        """What it has said so far."""
        return (self.home / "server.log").read_text(errors="replace")

    def api(self, path: str) -> str:
        """The address of a path of the agent's API (``v1/…``)."""
        return f"{self.url}jupyter-slurm/api/{path}"


@pytest.fixture(scope="session")
def start_jupyter(cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> Iterator[Callable[..., JupyterServer]]:
    """``start_jupyter("server" or "lab", *arguments, files={name: text})``; on the cluster, stopped at the end."""
    started: list[JupyterServer] = []

    def start(kind: str, *arguments: str, files: dict[str, str] | None = None) -> JupyterServer:
        home = Path(tempfile.mkdtemp(prefix="jsl-jupyter-", dir="/tmp"))
        (home / "run").mkdir(mode=0o700)
        for name, text in (files or {}).items():
            (home / name).write_text(text)
        token = secrets.token_hex(16)
        own = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run"), "JUPYTER_RUNTIME_DIR": str(home / "jupyter")}
        foreign = ("JUPYTER", "XDG_", "SLURM")
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(foreign)}
        env = {**inherited, **own, "JUPYTER_TOKEN": token, "SLURM_CONF": str(cluster.slurm_conf)}
        with (home / "server.log").open("wb") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-m", "jupyter", kind, "--allow-root", "--no-browser", "--port=0", *arguments],
                cwd=home, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        server = JupyterServer("", token, home, process)
        started.append(server)
        record = wait_for(lambda: next((home / "jupyter").glob("jpserver-*.json"), None), f"{kind}: {server.log}")
        server.url = wait_for(lambda: _url(record), "the server's address")
        return server

    yield start
    for server in started:
        _stop_jupyter(server)


def _url(record: Path) -> str | None:
    with contextlib.suppress(ValueError):  # not yet written to its end
        return str(json.loads(record.read_text())["url"])
    return None


def _stop_jupyter(server: JupyterServer) -> None:
    headers = {"Authorization": f"token {server.token}"}
    with contextlib.suppress(httpx.TransportError):
        httpx.post(server.api("v1/agent/stop"), json={}, headers=headers, timeout=60)
    server.process.terminate()
    try:
        server.process.wait(30)
    finally:
        server.process.kill()
        server.process.wait()
        shutil.rmtree(server.home, ignore_errors=True)
