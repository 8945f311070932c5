"""Tests of sessions with other servers than Jupyter: any command with a {port}, in a real job, by the local port."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import psutil
import pytest
from sessions import run_a_cell

from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.job_directory import JobDirectory
from jupyter_slurm.runner.proc import family, free_port
from jupyter_slurm.runner.session.command import CommandProcess
from jupyter_slurm.runner.session.jupyter import JupyterServer
from jupyter_slurm.runner.session.jupyter import proc as of_jupyters
from jupyter_slurm.runner.session.serve import SessionRun

pytestmark = [pytest.mark.slurm, pytest.mark.slow]

HERE = "the way there is the same for all of these; the test above goes over SSH"
FILES = ["python3", "-m", "http.server", "{port}", "--bind", "{host}"]
GREETS = """
import socket, sys
server = socket.create_server(("::1", int(sys.argv[1])), family=socket.AF_INET6)
while True:
    caller, _ = server.accept()
    with caller:
        caller.sendall(b"hello")
"""
# The first port is taken by a process outside the command, which the command then detects.
LATE = """
echo "$1" >>ports
if [ "$(wc -l <ports)" = 1 ]; then
    (setsid python3 -m http.server "$1" --bind 127.0.0.1 </dev/null >/dev/null 2>&1 & echo $! >thief)
    until grep -qi ":$(printf %04X "$1") 00000000:0000 0A" /proc/net/tcp; do :; done
    sleep 1  # in which it could be taken for ours
    exit 1
fi
python3 -m http.server "$1" --bind 127.0.0.1 &
wait
"""

WAITS = """
until [ -e go ]; do sleep 0.1; done
exec python3 -m http.server "$1" --bind 127.0.0.1
"""


@pytest.fixture
async def served(desk: Any) -> AsyncIterator[Callable[..., Any]]:
    """Return ``await served(["program", "{port}"], name=…)``, which launches a session and ends it after the test."""
    keys = []

    async def begin(command: list[str], *options: str, until: str = "ready", **more: Any) -> Any:
        asked = desk.asked("#!", "-p", "arandu", *options)
        asked = {name: asked[name] for name in ("key", "options", "context")}
        asked |= {"python": sys.executable, "idle": 86400.0, "command": command, **more}
        told = await desk.core.sessions.launch(desk.id, asked)
        keys.append(asked["key"])
        if until:
            told = await desk.until(asked["key"], lambda job: job["session"]["state"] in (until, "ended"))
            said = await desk.text(asked["key"], "stderr")
            assert told["session"]["state"] == until, (told["session"], told["error"], said)
        return told

    yield begin
    await asyncio.gather(*(desk.core.sessions.end(desk.id, key) for key in keys))


async def get(url: str) -> httpx.Response:
    async with httpx.AsyncClient(trust_env=False, timeout=60, follow_redirects=True) as http:
        return await http.get(url)


async def said(desk: Any, told: dict[str, Any]) -> str:
    """Return why a session has ended, after its end."""
    over = await desk.finished(told["key"])
    assert over["session"]["state"] == "ended"
    return str(over["error"]["detail"] if over["error"] else over["state"])


async def test_a_command_serves_through_a_local_port(desk: Any, served: Any, tmp_path: Path) -> None:
    (tmp_path / "it's {here} é.txt").write_text("content")
    told = await served(FILES, dir=str(tmp_path))
    session = told["session"]
    assert (told["label"], session["server"], session["command"]) == ("python3-1", "python3", FILES)
    assert 8000 <= session["local_port"] <= 9000
    assert session["url"] == f"http://127.0.0.1:{session['local_port']}/"
    assert "it's {here} é.txt" in (await get(session["url"])).text
    opened = await desk.core.sessions.open(desk.id, "python3-1")
    assert (opened["page"], opened["session"]["url"]) == (None, session["url"])
    await desk.core.sessions.end(desk.id, "python3-1")
    assert await said(desk, told) == "CANCELLED"
    with socket.socket() as probe, pytest.raises(ConnectionRefusedError):
        probe.connect(("127.0.0.1", session["port"]))


@pytest.mark.here_only(HERE)
async def test_a_folder_goes_with_one_and_comes_back_from_it(desk: Any, served: Any, tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "note").write_text("of the laptop")
    command = ["sh", "-c", 'echo made >result; exec "$@"', "sh", *FILES]
    told = await served(command, stage={"folders": [{"source": str(project)}]})
    assert told["work_dir"] == told["stage"]["folders"][0]["dest"]
    assert (await get(f"{told['session']['url']}note")).text == "of the laptop"
    await desk.core.sessions.end(desk.id, told["key"])
    over = await desk.until(told["key"], lambda job: job["stage"]["state"] == "back")
    assert (over["stage"]["files"], (project / "result").read_text()) == (1, "made\n")


@pytest.mark.here_only(HERE)
async def test_the_way_to_one_is_there_before_it_serves(desk: Any, served: Any, tmp_path: Path, wait_for: Any) -> None:
    command = ["sh", "-c", WAITS, "sh", "{port}"]
    told = await served(command, dir=str(tmp_path), until="starting")
    await asyncio.to_thread(wait_for, lambda: steps_of(told["id"]), "a step that leads there")
    found = steps_of(told["id"])
    (tmp_path / "go").touch()
    await desk.until(told["key"], lambda job: job["session"]["state"] == "ready")
    assert steps_of(told["id"]) & found


def steps_of(job: str) -> set[int]:
    """Return the processes of its steps, without that of the session itself."""
    found = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            env = process.environ()
            if env.get("SLURM_JOB_ID") == job and "SLURM_STEP_ID" in env:
                found.add(process.pid)
    return found


@pytest.mark.here_only(HERE)
async def test_only_its_own_listener_counts_and_what_it_says_does_not(desk: Any, served: Any, tmp_path: Path) -> None:
    late, greets = await asyncio.gather(
        served(["sh", "-c", LATE, "sh", "{port}"], dir=str(tmp_path)),
        served(["python3", "-c", GREETS, "{port}"], name="greets"),
    )
    ports = (tmp_path / "ports").read_text().split()
    assert [len(ports), late["session"]["port"]] == [2, int(ports[1])]
    assert "was taken by another program. sh tries another one." in await desk.text(late["key"], "stderr")
    assert (await get(f"{late['session']['url']}ports")).text.split() == ports
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "thief").read_text()), 9)
    reader, writer = await asyncio.open_connection("127.0.0.1", greets["session"]["local_port"])
    assert await reader.read() == b"hello"
    writer.close()


@pytest.mark.here_only(HERE)
async def test_one_that_cannot_serve_says_why(desk: Any, served: Any) -> None:
    with pytest.raises(UsageError, match="sqlite_web 'a b' does not name the port") as refused:
        await served(["sqlite_web", "a b"])
    assert "{host} {port}" in refused.value.hint
    lost, public, broken = await asyncio.gather(
        served(["no-such-program", "{port}"], until=""),
        served(["python3", "-m", "http.server", "{port}"], until=""),
        served(["sh", "-c", "echo broken by $0 $1 >&2; exit 3", "{port}", "caf\udce9 '{x}'\n"], until=""),
    )
    # Slurm's name of the node, not that of the machine
    assert await said(desk, lost) == "dgx01 has no no-such-program."
    assert re.match(r"python3 listens on (0\.0\.0\.0|::), which other users can reach", await said(desk, public))
    assert await said(desk, broken) == "sh ended before it was ready (exit code 3)."
    log = Path(broken["folder"], "stderr").read_bytes()  # its output is unchanged
    assert re.fullmatch(rb"broken by \d+ caf\xe9 '\{x\}'\nsh ended .*\n", log), log


@pytest.mark.here_only(HERE)
async def test_it_ends_when_nothing_is_connected(desk: Any, served: Any) -> None:
    unused = await served(FILES, idle=2.0, until="")
    assert await said(desk, unused) == "COMPLETED"
    assert "This session was not used for 2 s" in await desk.text(unused["key"], "stderr")


def test_a_connection_is_use_and_one_that_was_over_between_two_looks_too(wait_for: Any) -> None:
    one = CommandProcess({"command": FILES, "base_url": "/"}, dict(os.environ))
    one.start()
    try:
        wait_for(one.is_ready, "an answer")
        with socket.create_connection(("127.0.0.1", one.port)):
            assert one.unused_for() == 0.0
        wait_for(lambda: one.unused_for() > 0.0, "the end of the connection")
        one.used = float("-inf")  # as if use was not checked meanwhile
        assert one.unused_for() < float("inf")
    finally:
        one.end()
    assert one.process.returncode is not None


# After a while the server accepts everybody, on another port.
OPENS = """
python3 -m http.server "$1" --bind 127.0.0.1 &
until [ -e go ]; do sleep 0.05; done
python3 -m http.server 0 & echo $! >open
wait
"""


@pytest.mark.here_only(HERE)
async def test_one_that_lets_others_in_later_is_told_at_the_session_as_long_as_it_does(
    desk: Any, served: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("jupyter_slurm.services.jobs.runner_events._EVENT_MAX_AGE_S", 6.0)  # checks every three seconds
    told = await served(["sh", "-c", OPENS, "sh", "{port}"], dir=str(tmp_path), idle=30.0)
    _, writer = await asyncio.open_connection("127.0.0.1", told["session"]["local_port"])  # the session is in use
    assert told["warnings"] == []
    (tmp_path / "go").touch()
    told = await desk.until(told["key"], lambda job: job["warnings"])
    said = r"sh listens on port \d+ of (0\.0\.0\.0|::), which other users can reach over the network\. Let it .*"
    assert re.fullmatch(said, "".join(told["warnings"])), told["warnings"]
    assert re.findall(f"Warning: {said}", await desk.text(told["key"], "stderr")) != []
    os.kill(int((tmp_path / "open").read_text()), signal.SIGKILL)
    after = await desk.until(told["key"], lambda job: not job["warnings"])
    assert after["session"]["state"] == "ready"
    writer.close()


async def test_a_jupyter_that_hangs_is_unused_while_nothing_that_it_has_started_computes(
    tmp_path: Path, wait_for: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Jupyter has chosen another port, because the intended one was taken."""
    session = {"base_url": "/", "idle": 2.0}
    (tmp_path / "job.json").write_text(json.dumps({"key": "k", "session": session}))
    one, taken = JupyterServer(JobDirectory(str(tmp_path))), free_port()
    with socket.create_server(("127.0.0.1", taken)):
        monkeypatch.setattr(of_jupyters, "random_port", lambda: taken)
        one.start()
        wait_for(one.is_ready, "an answer")
    assert one.port != taken
    try:
        page: Any = SimpleNamespace(url=f"http://127.0.0.1:{one.port}/", token=one.token)
        begin = "import subprocess, sys; print(subprocess.Popen([sys.executable, '-c', 'while True: pass']).pid)"
        works = int(await run_a_cell(page, begin))
        one.unused_for()  # the use by its children is counted from now on
        one.process.send_signal(signal.SIGSTOP)
        assert [one.unused_for() for _ in range(2)] == [0.0, 0.0]
        os.kill(works, signal.SIGKILL)
        wait_for(lambda: one.unused_for() >= session["idle"], "that nobody can use it")
        one.process.send_signal(signal.SIGCONT)
        wait_for(lambda: one.unused_for() >= 0 and not one.silent, "an answer")
    finally:
        for pid in family(one.process.pid):  # it may still hang, and a child compute
            os.kill(pid, signal.SIGKILL)
        one.process.wait()


def test_what_nobody_used_before_its_job_was_requeued_counts(tmp_path: Path, wait_for: Any) -> None:
    job = {"key": "k", "resume": 3, "session": {"command": FILES, "base_url": "/", "idle": 3600.0}}
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "unused").write_text("3000")
    handler, one = signal.getsignal(signal.SIGTERM), CommandProcess(job["session"], dict(os.environ))
    one.start()
    try:
        wait_for(one.is_ready, "an answer")
        run = SessionRun(JobDirectory(str(tmp_path)))
        assert run.unused(one) >= 3000
        assert float((tmp_path / "unused").read_text()) >= 3000  # for the next run
        run.ready -= 1000  # as if ready long ago
        with socket.create_connection(("127.0.0.1", one.port)):
            assert run.unused(one) == 0.0  # the user came back
        assert SessionRun(JobDirectory(str(tmp_path))).before == 0.0
    finally:
        one.end()
        signal.signal(signal.SIGTERM, handler)


@pytest.fixture
def sqlite_web(request: pytest.FixtureRequest) -> Path:
    """Provide a virtual environment with a small server that supports prefixes, made once for all test runs."""
    folder = Path(str(request.config.cache.mkdir("servers"))) / f"sqlite-web-{sys.version_info.minor}"  # type: ignore[union-attr]
    if not (folder / "is-whole").exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", "--without-pip", str(folder)], check=True)
        install = [sys.executable, "-m", "uv", "pip", "install", "-q", "--python", str(folder / "bin" / "python")]
        subprocess.run([*install, "sqlite-web==0.8.2"], check=True)
        (folder / "is-whole").touch()
    return folder


@pytest.mark.here_only(HERE)
@pytest.mark.timeout(600)
async def test_one_of_an_environment_serves_under_the_path_of_its_session(
    desk: Any, served: Any, sqlite_web: Path, tmp_path: Path
) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "runs.db")) as base:
        base.execute("create table losses (epoch integer, loss real)")
    words = ["sqlite_web", "--no-browser", "--port", "{port}", "--host={host}", "--url-prefix={base_url}", "runs.db"]
    told = await served(words, env=str(sqlite_web), dir=str(tmp_path), python=None, default_python=sys.executable)
    url = told["session"]["url"]
    assert url.endswith(f"/jupyter-slurm/{told['key']}/")
    page = await get(url)
    assert page.status_code == 200
    assert f'href="/jupyter-slurm/{told["key"]}/losses/' in page.text
