"""Sessions: a real Jupyter in a real job, reached through the local port as a browser does."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import uuid
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from ssh_hosts.ways import new_login_host
from tornado.httpclient import HTTPRequest
from tornado.websocket import websocket_connect

from jupyter_slurm.errors import JobNotFound

pytestmark = [pytest.mark.slurm]


@pytest.fixture(scope="module")
def login_host(ssh_host: Any, short_tmp: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A login node that allows as many sessions as OpenSSH's own settings do: one is for the tunnel."""
    return new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=10)


def launch(desk: Any, *options: str, **more: Any) -> dict[str, Any]:
    asked = desk.asked("#!", *options, python=sys.executable)
    asked = {name: asked[name] for name in ("key", "options", "args", "context", "python")}
    return {**asked, "idle": 86400.0, **more}


class Page:
    """The page of a session, as a browser has it: it posts what is in the form, and goes where it is sent."""

    def __init__(self, path: str) -> None:
        assert os.stat(path).st_mode & 0o777 == 0o600
        self.text = Path(path).read_text()
        self.action = re.findall(r'action="([^"]+)"', self.text)[0]
        self.fields = dict(re.findall(r'name="(\w+)" value="([^"]*)"', self.text))
        self.cookies = httpx.Cookies()

    def _ask(self, method: str, url: str, **more: Any) -> httpx.Response:
        with httpx.Client(trust_env=False, timeout=30, cookies=self.cookies) as browser:
            answer = browser.request(method, url, **more)
            self.cookies = browser.cookies
            return answer

    def log_in(self) -> str:
        """Post the form; a page from a file has no origin."""
        answer = self._ask("POST", self.action, data=self.fields, headers={"Origin": "null"})
        assert answer.status_code == 302, answer.text
        return str(answer.headers["Location"])

    def get(self, path: str) -> httpx.Response:
        return self._ask("GET", self.url + path)

    @property
    def url(self) -> str:
        return self.action.removesuffix("login")

    @property
    def token(self) -> str:
        return self.fields["token"]


async def run_a_cell(page: Page, code: str) -> str:
    """Start a kernel, run a cell in it over its WebSocket, and return what it prints."""
    headers = {"Authorization": f"token {page.token}"}
    async with httpx.AsyncClient(trust_env=False, headers=headers, timeout=60) as http:
        kernel = (await http.post(f"{page.url}api/kernels", json={})).json()["id"]
    url = f"{page.url}api/kernels/{kernel}/channels".replace("http", "ws", 1)
    channel = await websocket_connect(HTTPRequest(url, headers=headers))
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
    async with asyncio.timeout(60):
        while (text := await channel.read_message()) is not None:
            told = json.loads(text)
            if told["parent_header"].get("msg_id") != header["msg_id"]:
                continue
            if told["msg_type"] == "stream":
                printed += told["content"]["text"]
            if told["msg_type"] == "status" and told["content"]["execution_state"] == "idle":
                break
    channel.close()
    return printed


async def ready(desk: Any, asked: dict[str, Any]) -> dict[str, Any]:
    """Follow a session until it is ready, as a front door does."""
    seen = []
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(90):
            async for event, data in desk.core.stream(desk.id, asked["key"], {}):
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


async def gone(desk: Any, job: dict[str, Any], port: int) -> None:
    """See that nothing is left of a session: no process, no port."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while processes(job["folder"]) or desk.core.tunnels.told(desk.id):
                await asyncio.sleep(0.1)
    assert not processes(job["folder"])
    assert not desk.core.tunnels.told(desk.id)
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", port))


def processes(folder: str) -> list[str]:
    """Processes that have to do with a job directory: the runner, Jupyter, its kernels."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
            if folder in words:
                found.append(f"{pid} {words}")
    return found


@pytest.fixture
async def launched(desk: Any) -> AsyncIterator[Callable[..., Any]]:
    """``await launched("-p", "arandu", name=…)``: a session that is ready; none is left after the test."""
    keys = []

    async def begin(*options: str, wait: bool = True, **more: Any) -> Any:
        asked = launch(desk, *options, **more)
        keys.append(asked["key"])
        told = await desk.core.sessions.launch(desk.id, asked)
        return await ready(desk, asked) if wait else told

    yield begin
    for key in keys:
        with contextlib.suppress(JobNotFound):
            await desk.core.sessions.end(desk.id, key)
            await desk.finished(key)


async def test_a_session_from_its_launch_to_its_end(desk: Any, launched: Any) -> None:
    told = await launched("-p", "arandu", "--gpus", "1", name="training")
    session = told["session"]
    assert 8000 <= session["local_port"] <= 9000
    assert session["server"].startswith("jupyterlab 4")
    assert urlsplit(session["url"]).path == f"/jupyter-slurm/{told['key']}/"
    opened = await desk.core.sessions.open(desk.id, "training")
    page = Page(opened["page"])
    assert page.get("api/contents").status_code == 403
    assert page.log_in() == f"/jupyter-slurm/{told['key']}/"
    assert page.get("lab").status_code == 200
    assert page.get("api/contents").status_code == 200
    assert await run_a_cell(page, "import os; print(os.environ['SLURM_JOB_ID'])") == f"{told['id']}\n"
    assert page.token not in str(told)
    assert page.token not in await desk.text(told["key"], "stdout") + await desk.text(told["key"], "stderr")
    kept = await desk.core.sessions.rename(desk.id, "training", "serious")
    assert kept["label"] == "serious"
    assert [one["key"] for one in desk.core.sessions.told(desk.id, active=True)] == [told["key"]]
    with pytest.raises(JobNotFound, match="there is no session training"):
        await desk.core.sessions.one(desk.id, "training")
    await desk.core.sessions.end(desk.id, "serious")
    over = await desk.finished(told["key"])
    assert (over["state"], over["session"]["state"], over["session"]["url"]) == ("CANCELLED", "ended", None)
    await gone(desk, told, session["local_port"])
