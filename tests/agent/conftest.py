"""Agents for tests: in a private directory, with a minimal core (tests/hosts/plumbing.py)."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from plumbing import PlumbingCore

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting import discovery, log_file
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent, serve_in_thread
from jupyter_slurm.agent.hosting.endpoint import Endpoint
from jupyter_slurm.config import Settings


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Ignore test_document.py if none of its tests is selected: its collection takes each worker half a minute."""
    chosen = str(config.getoption("markexpr"))
    is_left_out = "not slow" in chosen or "not alone" in chosen or chosen.startswith("remote")
    return True if is_left_out and collection_path.name == "test_document.py" else None


@pytest.fixture
def place() -> Iterator[Path]:
    """Provide a short private directory: the path of a Unix socket has at most 108 bytes."""
    path = Path(tempfile.mkdtemp(prefix="jsa-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_settings(place: Path) -> Callable[..., Settings]:
    """Return settings below ``place``; keywords override."""

    def make(**values: Any) -> Settings:
        paths = {"runtime_dir": str(place / "run"), "state_dir": str(place / "state"), "job_root": str(place / "jobs")}
        return Settings(**{**paths, "sites": [], **values})

    return make


@pytest.fixture(params=["unix", "tcp"])
def settings(request: pytest.FixtureRequest, make_settings: Callable[..., Settings]) -> Settings:
    """Provide settings of an agent in this process, on a Unix socket and on a port."""
    return make_settings(agent_host="inprocess", agent_socket=request.param)


@pytest.fixture
def core() -> PlumbingCore:
    return PlumbingCore()


@pytest.fixture
def agent(settings: Settings, core: PlumbingCore) -> Iterator[ThreadedAgent]:
    """Provide an agent in a thread of this process."""
    running = serve_in_thread(settings, core)
    assert running is not None
    yield running
    running.stop()


@pytest.fixture
def client(agent: ThreadedAgent, settings: Settings) -> Iterator[AgentClient]:
    with AgentClient.connect(settings, start=False) as connected:
        yield connected


@pytest.fixture
def plain_http() -> Callable[[Endpoint], httpx.Client]:
    """Return a factory: ``plain_http(endpoint)`` is a client that shares no code with the package's."""

    def make(endpoint: Endpoint) -> httpx.Client:
        uds = endpoint.place.socket if endpoint.port is None else None
        return httpx.Client(
            base_url=endpoint.base_url,
            headers=endpoint.headers,
            # Reading the list of authorities takes longer than all other work.
            transport=httpx.HTTPTransport(uds=uds, verify=False),
            trust_env=False,
            timeout=60,
        )

    return make


@pytest.fixture
def stream() -> Callable[..., Iterator[tuple[str, dict[str, Any]]]]:
    """Return a function: ``stream(client, path, params=None)`` is an event stream for code without a loop."""

    def read(client: AgentClient, path: str, params: Any = None) -> Iterator[tuple[str, dict[str, Any]]]:
        async def following() -> tuple[str, dict[str, Any]]:
            return await anext(events)

        with asyncio.Runner() as runner:
            events = client.astream(path, params)
            with contextlib.suppress(StopAsyncIteration):
                while True:
                    yield runner.run(following())

    return read


@pytest.fixture
def daemon_settings(make_settings: Callable[..., Settings]) -> Iterator[Settings]:
    """Provide settings of an agent in a separate process, which is ended after the test."""
    values = make_settings(agent_host="daemon")
    yield values
    record = next((discovery.read_record(place) for place in discovery.search_locations(values)), None)
    if record is not None and record["pid"] != os.getpid() and not discovery.is_stale(record):
        # The record of a killed agent may name another process by now, such as the agent of another test.
        with contextlib.suppress(OSError):
            if os.readlink(f"/proc/{record['pid']}/fd/2") == log_file.log_path(values):
                os.kill(record["pid"], signal.SIGKILL)


class _Process(subprocess.Popen[str]):
    """A process that a failing test does not wait for."""

    def __exit__(self, kind: Any, value: Any, traceback: Any) -> None:
        if kind is not None:
            self.kill()
        super().__exit__(kind, value, traceback)


@pytest.fixture
def run_python() -> Callable[..., subprocess.Popen[str]]:
    """Start Python code in a separate process, with this interpreter."""

    def run(code: str, *args: str, **options: Any) -> subprocess.Popen[str]:
        return _Process(
            [sys.executable, "-c", code, *args],
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            **options,
        )

    return run
