"""Sessions in tests: a front end that launches, a browser that opens, and checks for leftovers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import subprocess
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pytest
from containers import Docker
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_slurm.errors import JobNotFound
from jupyter_slurm.services.slurm.poller import Poller

__all__ = [
    "Address",
    "Page",
    "ended",
    "hurried",
    "launch",
    "launched",
    "left",
    "nothing_left",
    "processes",
    "ready",
    "run_a_cell",
    "run_in",
    "runner_of",
    "start_kernel",
]

_TEXT: dict[str, Any] = {"capture_output": True, "text": True, "check": True, "timeout": 60}
_PATIENCE = 150.0  # seconds for an answer of Jupyter on a busy machine
_OVER = ("CANCELLED", "COMPLETED", "FAILED", "NODE_FAIL", "PREEMPTED", "TIMEOUT")


def launch(desk: Any, *options: str, **more: Any) -> dict[str, Any]:
    asked = desk.asked("#!", *options, python=sys.executable)
    asked = {name: asked[name] for name in ("key", "options", "args", "context", "python")}
    return {**asked, "idle": 86400.0, **more}


class Page:
    """The page of a session, as in a browser: it posts the form, and follows the redirect."""

    def __init__(self, path: str) -> None:
        assert os.stat(path).st_mode & 0o777 == 0o600
        self.text = Path(path).read_text()
        self.action = re.findall(r'action="([^"]+)"', self.text)[0]
        self.fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', self.text))
        self.cookies = httpx.Cookies()

    def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=_PATIENCE, cookies=self.cookies) as browser:
            answer = browser.request(method, url, **more)
            self.cookies = browser.cookies
            return answer

    async def log_in(self) -> str:
        """Post the form; a page from a file has no origin."""
        answer = await asyncio.to_thread(self._ask, "POST", self.action, data=self.fields, headers={"Origin": "null"})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["Location"])

    async def get(self, path: str) -> int:
        return (await asyncio.to_thread(self._ask, "GET", self.url + path)).status_code

    async def leads_to(self, path: str) -> str:
        return str((await asyncio.to_thread(self._ask, "GET", self.url + path)).headers["Location"])

    @property
    def url(self) -> str:
        return self.action.removesuffix("login")

    @property
    def token(self) -> str:
        return self.fields["token"]


class Address(NamedTuple):
    """Address and token of a Jupyter that the page does not show."""

    url: str
    token: str


async def run_a_cell(page: Page | Address, code: str) -> str:
    """Start a kernel, run a cell in it, and return its output."""
    return await run_in(page, await start_kernel(page), code)


async def start_kernel(page: Page | Address) -> str:
    """Start a kernel and return its ID."""
    headers = {"Authorization": f"token {page.token}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=_PATIENCE) as http:
        return str((await http.post(f"{page.url}api/kernels", json={})).json()["id"])


async def run_in(page: Page | Address, kernel: str, code: str) -> str:
    """Run a cell in a kernel over its WebSocket, and return its output."""
    headers = {"Authorization": f"token {page.token}"}
    url = f"{page.url}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    asked = HTTPRequest(url, headers=headers, connect_timeout=_PATIENCE, request_timeout=_PATIENCE)
    channel = await websocket_connect(asked)
    header = {
        "msg_id": uuid.uuid4().hex,
        "msg_type": "execute_request",
        "username": "",
        "session": "s",
        "version": "5.3",
    }
    content = {"code": code, "silent": False, "store_history": False, "user_expressions": {}, "allow_stdin": False}
    message = {"header": header, "parent_header": {}, "metadata": {}, "content": content, "channel": "shell"}
    await channel.write_message(json.dumps(message))
    printed = ""
    async with asyncio.timeout(_PATIENCE):
        while (text := await channel.read_message()) is not None:
            told = json.loads(text)
            if told["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            if told["msg_type"] == "stream":
                printed += told["content"]["text"]
            if told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                break
        channel.close()
        while text is not None:  # until both ends have closed: otherwise the socket stays open
            text = await channel.read_message()
    return printed


async def ready(desk: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Follow a session until it is ready, as a front end does."""
    seen = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            async for event, data in desk.core.cluster(desk.id).results.stream(asked["key"], {}):
                if event == "job":
                    seen.append(data)
                    if data["session"]["state"] == "ready" or data["finished"]:
                        break
    last = seen[-1] if seen else None
    assert last, "nothing was heard of it"
    assert last["session"]["state"] == "ready", (
        last["session"],
        last["error"],
        await desk.text(asked["key"], "stderr"),
    )
    return last


async def ended(folder: str) -> None:
    """Check that no process of a session is left."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while processes(folder):
                await asyncio.sleep(0.1)
    assert not processes(folder)


async def nothing_left(desk: Any, told: dict[str, Any], docker: Docker | None = None) -> None:
    """Check that nothing is left of a finished session; ``told``: its description when it was ready, if it was."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while left(desk, told, docker):
                await asyncio.sleep(0.1)
    assert left(desk, told, docker) == {}


def left(desk: Any, told: dict[str, Any], docker: Docker | None = None) -> dict[str, list[str]]:
    """Return the remains of a session: job, processes on the node and before it, ports at both ends, containers."""
    session, tunnels = told["session"], desk.core.tunnels.list_to_api(desk.id)
    queue = ["squeue", "--me", "--noheader", "--states=all", "--format=%A %T"]
    rows = [row.split() for row in subprocess.run(queue, env=desk.env, **_TEXT).stdout.splitlines()]
    found = {
        "job": [state for job, state in rows if job == told["id"] and state not in _OVER],
        "processes": processes(told["folder"], told["id"], desk.env["SLURM_CONF"]),
        "port there": [str(session["port"])] if _listens(session["port"]) else [],
        "port here": [str(session["local_port"])] if _is_ours(session["local_port"]) else [],
        "tunnels": [tunnel["id"] for tunnel in tunnels if tunnel["job"] in (told["key"], told["id"])],
        "containers": docker.running() if docker else [],
    }
    return {kind: names for kind, names in found.items() if names}


def runner_of(folder: str) -> int:
    """Return the process of a session's runner, not its measuring process."""
    found = [line.split()[0] for line in processes(folder) if re.search(r"-serve\.py ", line)]
    (runner,) = [int(pid) for pid in found if Path(f"/proc/{pid}/comm").read_text() != "usage\n"]
    return runner


def processes(folder: str, job: str = "no job", conf: str = "") -> list[str]:
    """Return the processes of a job directory or a job: the runner, Jupyter, its kernels, their children."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            env = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
            is_of_job = f"SLURM_JOB_ID={job}".encode() in env or f"--jobid={job}".encode() in words.split(b"\0")
            if folder.encode() in words + b" ".join(env) or (is_of_job and f"SLURM_CONF={conf}".encode() in env):
                found.append(f"{pid} {words.replace(bytes(1), b' ').decode('utf-8', 'replace')}")
    return found


def _listens(port: int | None) -> bool:
    with socket.socket() as probe:
        return port is not None and probe.connect_ex(("127.0.0.1", port)) == 0


def _is_ours(port: int | None) -> bool:
    """Return whether this process listens on the port: another worker's session may reuse a free port at once."""
    own = {os.getpid(), *(child.pid for child in psutil.Process().children(recursive=True))}
    sockets = psutil.net_connections("tcp")
    return any(s.pid in own and s.status == psutil.CONN_LISTEN and s.laddr.port == port for s in sockets)


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make agents poll the queue, and check the route to a session, every second, for tests that wait for both."""
    monkeypatch.setattr("jupyter_slurm.services.sessions.session_launch._RETRY_DELAYS_S", (0.5, 1.0))
    monkeypatch.setattr(
        "jupyter_slurm.services.clusters.composition.Poller",
        lambda look, **more: Poller(look, **{**more, "min_interval": 1.0}),
    )


@pytest.fixture
async def launched(desk: Any) -> AsyncIterator[Callable[..., Any]]:
    """Return a factory: ``await launched("-p", "arandu", name=…)`` is a ready session; none is left after the test."""
    keys = []

    async def begin(*options: str, wait: bool = True, **more: Any) -> Any:
        asked = launch(desk, *options, **more)
        keys.append(asked["key"])
        told = await desk.core.sessions.launch(desk.id, asked)
        return await ready(desk, asked) if wait else told

    yield begin
    for told in await asyncio.gather(*(desk.core.sessions.end(desk.id, key) for key in keys), return_exceptions=True):
        if not isinstance(told, JobNotFound):
            await ended(told["folder"])
