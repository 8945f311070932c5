"""Tests of named apps and of servers on a Unix socket: who reaches them, and what is said where one is missing."""

from __future__ import annotations

import asyncio
import os
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.proc import is_free
from jupyter_slurm.runner.session.app import AppProcess
from jupyter_slurm.runner.session.command import CommandProcess
from jupyter_slurm.runner.session.user_gate import is_of_user
from jupyter_slurm.services.sessions.apps import APPS, command_of
from jupyter_slurm.services.sessions.command import with_app

# A small real server: HTTP on a Unix socket, and what it finds about that socket.
ON_SOCKET = """
import http.server, os, socketserver, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(sys.argv[1].encode())
    def address_string(self):
        return "socket"
socketserver.ThreadingUnixStreamServer(sys.argv[1], Handler).serve_forever()
"""

ASKS = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
link.sendall(b"GET / HTTP/1.0\\r\\n\\r\\n")
print(link.recv(100))
"""

HOLDS = """
import socket, sys
link = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
print("connected", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
async def launched(desk: Any) -> AsyncIterator[Callable[..., Any]]:
    """Return ``await launched(app="…")``, which launches a session and ends it after the test."""
    keys = []

    async def begin(**more: Any) -> Any:
        asked = desk.asked("#!", "-p", "arandu")
        asked = {name: asked[name] for name in ("key", "options", "context")}
        asked |= {"python": sys.executable, "idle": 86400.0, **more}
        await desk.core.sessions.launch(desk.id, asked)
        keys.append(asked["key"])
        return await desk.until(asked["key"], lambda job: job["session"]["state"] in ("ready", "ended"))

    yield begin
    await asyncio.gather(*(desk.core.sessions.end(desk.id, key) for key in keys))


async def get(url: str, **more: Any) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=60) as http:
        return await http.get(url, **more)


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.here_only("the way there is the same as to any port of a node")
async def test_a_server_on_a_socket_is_reached_by_its_user_alone(desk: Any, launched: Any) -> None:
    told = await launched(command=["python3", "-c", ON_SOCKET, "{socket}"])
    session = told["session"]
    assert session["state"] == "ready", (session, await desk.text(told["key"], "stderr"))
    place = (await get(session["url"])).text
    folder = os.stat(os.path.dirname(place))
    assert (stat.S_IMODE(folder.st_mode), folder.st_uid) == (0o700, os.getuid())
    if os.geteuid() == 0:  # another user of the node: the gate closes the connection
        argv = ["python3", "-c", ASKS, str(session["port"])]
        tried = subprocess.run(argv, user=65534, capture_output=True, text=True, check=False)
        assert "200" not in tried.stdout
        assert (tried.stdout == "b''\n") or "ConnectionResetError" in tried.stderr, tried
    await desk.core.sessions.end(desk.id, told["key"])
    assert not os.path.exists(os.path.dirname(place))


@pytest.mark.slurm
@pytest.mark.slow
@pytest.mark.here_only("nothing of it depends on the way")
async def test_an_app_that_the_node_lacks_names_what_to_install(desk: Any, launched: Any) -> None:
    told, ssh = await asyncio.gather(
        launched(app="tensorboard", app_values={"logdir": "runs"}, python="/usr/bin/python3"),
        launched(ssh="damaged", command=["sshd", "{host}:{port}"], name="cluster-code"),
    )
    over = await desk.finished(told["key"])
    assert (over["label"], over["session"]["app"]) == ("tensorboard-1", "tensorboard")
    assert over["error"], await desk.text(told["key"], "stderr")
    assert over["error"]["detail"] == "dgx01 has no tensorboard, which app=tensorboard needs."
    assert "pip install tensorboard" in over["error"]["hint"]
    over = await desk.finished(ssh["key"])
    assert (over["session"]["app"], over["error"]["detail"]) == ("ssh", "The key of this computer is not valid.")


def test_the_keywords_of_an_app_are_checked() -> None:
    assert command_of("tensorboard", {"logdir": "a b"})[-2:] == ["--logdir", "a b"]
    for name, values, text in (
        ("tensorboard", {}, "app=tensorboard needs logdir=."),
        ("marimo", {"logdir": "runs"}, "logdir= is not a keyword of app=marimo."),
        ("emacs", {}, "app=emacs is not supported."),
        ("mlflow", {"store": "--host=0.0.0.0"}, "begins with a dash"),
    ):
        with pytest.raises(UsageError, match=text) as refused:
            command_of(name, values)
        assert refused.value.details["option"] in ("app", "logdir", "store")  # a form shows it at this field


def test_no_app_shows_a_secret_or_serves_others() -> None:
    for app in APPS.values():
        words = " ".join(app.command)
        assert "{socket}" in words or ("{secret_file}" in words and "{host}" in words)


def test_the_other_end_of_a_connection_has_a_user() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as far:
        near, address = server.accept()
        with near:
            assert is_of_user(near.getsockname(), address, os.getuid())
            assert not is_of_user(near.getsockname(), address, os.getuid() + 1)
            far.close()
            assert not is_of_user(near.getsockname(), address, os.getuid())  # nobody holds it any more


def test_the_port_of_an_earlier_run_is_free_after_its_connections() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert not is_free(port, after_use=True)
        with socket.create_connection(server.getsockname()) as far:
            server.accept()[0].close()  # the side that closes first keeps the connection in TIME_WAIT (tcp(7))
            assert far.recv(1) == b""
    assert (is_free(port), is_free(port, after_use=True)) == (False, True)


def test_a_connection_of_another_user_is_no_use(tmp_path: Path) -> None:
    server = CommandProcess({"command": ["sleep", "1000"], "base_url": "/", "dir": str(tmp_path)}, dict(os.environ))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.port = listener.getsockname()[1]
        server.process = subprocess.Popen(server.words)
        try:
            server.used = 0.0
            if os.geteuid() == 0:
                argv = ["python3", "-c", HOLDS, str(server.port)]
                with subprocess.Popen(argv, user=65534, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
                    near = listener.accept()[0]
                    assert other.stdout is not None
                    assert other.stdout.readline() == b"connected\n"
                    assert server.unused_for() > 1
                    with near:
                        other.communicate(b"\n", timeout=60)
            with socket.create_connection(listener.getsockname()), listener.accept()[0]:
                assert server.unused_for() < 1
        finally:
            server.process.kill()
            server.process.wait()


def test_a_version_that_is_too_old_is_refused_and_an_older_one_has_its_command(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "mlflow"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    place = SimpleNamespace(
        folder=str(tmp_path),
        put=None,
        job={"session": {**with_app({"app": "mlflow"}), "app": "mlflow", "base_url": "/"}},
    )

    def version_of(version: str) -> AppProcess:
        for package in (tmp_path / "lib/python3.11/site-packages").glob("*"):
            package.rmdir()
        (tmp_path / f"lib/python3.11/site-packages/mlflow-{version}.dist-info").mkdir(parents=True)
        app = AppProcess(place, {"PATH": str(tmp_path / "bin")})
        app._check_installed()
        return app

    assert version_of("3.10.1")._filled("~/runs") == os.path.expanduser("~/runs")
    with pytest.raises(Exception, match=r"has mlflow 1\.30\.0\. app=mlflow needs 2\.0 or newer\."):
        version_of("1.30.0")
    assert "unix:{socket}" in version_of("2.22.5").words
    assert "unix:{socket}" in version_of("3.2.0rc1").words
    assert "--uvicorn-opts" in version_of("3.10.1").words
