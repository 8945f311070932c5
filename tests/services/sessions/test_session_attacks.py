"""Tests of attacks of another user of the node and of the laptop against a session, all of which fail."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import runpy
import shutil
import signal
import socket
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from jupyter_servers import listening_url
from sessions import Page, launch, nothing_left, processes, ready, run_a_cell, runner_of

from jupyter_slurm.errors import JobError, JobNotFound, TransportError, TunnelError

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.usefixtures("hurried"),
    pytest.mark.root,
    pytest.mark.here_only("the way there has no part in it; tests of tunnels and tests/over_ssh have"),
]

RUNNER = Path(str(resources.files("jupyter_slurm.runner")))

# All information about processes and files that a user of this machine can read.
_SNOOP = """
import os, subprocess, sys
def show(path):
    try:
        with open(path, "rb") as file: sys.stdout.buffer.write(file.read(1000000) + b"\\n")
    except OSError: pass
for pid in filter(str.isdigit, os.listdir("/proc")):
    for name in ("cmdline", "environ", "maps", "net/unix"): show(f"/proc/{pid}/{name}")
for top in sys.argv[2:]:
    for folder, _, names in os.walk(top):
        for name in names: show(os.path.join(folder, name))
for command in ("ps auxwwe", f"scontrol show job -dd {sys.argv[1]}", "squeue -O ALL", f"sacct -P -o ALL -j {sys.argv[1]}"):
    print(command, subprocess.run(command.split(), capture_output=True, text=True).stdout)
"""
# Takes a port, prints the received data, and answers as Jupyter would.
_IMPOSTOR = """
import socket, sys
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    connection = server.accept()[0]
    heard = connection.recv(65536)
    if heard: print(heard, flush=True)
    connection.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Type: application/json\\r\\nContent-Length: 2\\r\\n\\r\\n{}")
    connection.close()
"""


# Prints the protocol of the listener on a port (the greeting of ZMTP 3.1).
_GREETS = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1])), 20) as peer:
    peer.sendall(b"\\xff" + bytes(8) + b"\\x7f\\x03\\x01")
    told = b""
    while len(told) < 32 and (more := peer.recv(64)):
        told += more
sys.stdout.buffer.write(told[12:32].rstrip(b"\\0"))
"""


class Stranger:
    """Another user of this machine."""

    def __init__(self, name: str, env: dict[str, str]) -> None:
        self.name, self.uid = name, pwd.getpwnam(name).pw_uid
        self._who: dict[str, Any] = {"user": name, "group": pwd.getpwnam(name).pw_gid, "extra_groups": [], "cwd": "/"}
        self._who["env"] = {"PATH": os.environ["PATH"], "SLURM_CONF": env["SLURM_CONF"]}

    def run(self, script: str, *args: str) -> bytes:
        argv = ["/usr/bin/python3", "-c", script, *args]
        return subprocess.run(argv, capture_output=True, check=True, timeout=60, **self._who).stdout

    @contextlib.contextmanager
    def takes(self, port: int) -> Iterator[Callable[[], str]]:
        """Listen on a port; return a function that stops and returns the received data."""
        argv = ["/usr/bin/python3", "-c", _IMPOSTOR, str(port)]
        process = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, **self._who)
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            yield lambda: (process.kill(), process.stdout.read())[1]
        finally:
            process.kill()
            process.wait()
            process.stdout.close()


@pytest.fixture
def stranger(alice: str, cluster: Any) -> Stranger:
    return Stranger(alice, cluster.env())


async def test_nothing_that_others_can_read_has_the_token_and_no_port_lets_them_in(
    open_desk: Any, accounting_cluster: Any, alice: str, tmp_path: Path
) -> None:
    async with open_desk(accounting_cluster, tmp_path) as desk:
        asked, stranger = launch(desk, "-p", "arandu", name="mine"), Stranger(alice, accounting_cluster.env())
        await desk.core.sessions.launch(desk.id, asked)
        told = await ready(desk, asked)
        page = Page((await desk.core.sessions.open(desk.id, "mine"))["page"])
        await page.log_in()
        places = [told["folder"], str(tmp_path / "state"), desk.core.settings.runtime_dir]
        seen = await asyncio.to_thread(stranger.run, _SNOOP, told["id"], *places)
        assert f"JobId={told['id']}".encode() in seen
        assert f"sacct -P -o ALL -j {told['id']}".encode() in seen
        assert re.search(rb"\n[^\n]*-serve\.py", seen)  # the existence and the path of the process are visible
        assert page.token.encode() not in seen
        for port, said in ((told["session"]["port"], b"403"), (told["session"]["local_port"], b"")):
            url = f"http://127.0.0.1:{port}/jupyter-slurm/{told['key']}/api/contents"
            curl = f"import subprocess; subprocess.run(['curl', '-sS', '-o', '/dev/null', '-w', '%{{http_code}}', {url!r}])"
            assert (await asyncio.to_thread(stranger.run, curl)).removesuffix(b"000") == said
        assert await run_a_cell(page, "print(1)") == "1\n"
        (kernel,) = (Path(told["folder"]) / "serving" / "runtime").glob("kernel-*.json")
        for name, port in json.loads(kernel.read_text()).items():
            if name.endswith("_port"):
                assert await asyncio.to_thread(stranger.run, _GREETS, str(port)) == b"CURVE", name
        await desk.core.sessions.end(desk.id, "mine")
        await desk.finished(told["key"])
        await nothing_left(desk, told)


def one_of(told: dict[str, Any], pattern: str) -> int | None:
    """Return the process of a session whose command line contains a text."""
    found = [int(line.split()[0]) for line in processes(told["folder"]) if re.search(pattern, line)]
    return found[0] if found else None


def killed(pid: int) -> Callable[[], bool]:
    """Kill a process; return a function that tells whether its files are closed, as its parent may be stopped."""
    os.kill(pid, signal.SIGKILL)
    return lambda: ") Z " in Path(f"/proc/{pid}/stat").read_text()


async def until(true: Callable[[], Any], what: str) -> Any:
    async with asyncio.timeout(60):
        while not (found := true()):
            await asyncio.sleep(0.01)
    assert found, what
    return found


async def test_who_takes_the_port_of_a_jupyter_that_died_hears_nothing(
    desk: Any, launched: Any, stranger: Stranger
) -> None:
    """Neither from the runner, which has not yet detected its end, nor from the user's browser."""
    starts, runs = await asyncio.gather(
        launched("-p", "arandu", name="starts", wait=False), launched("-p", "arandu", name="runs", wait=False)
    )
    jupyter = await until(lambda: one_of(starts, "start.py jupyterlab"), "a Jupyter")
    runner = runner_of(starts["folder"])
    os.kill(runner, signal.SIGSTOP)
    signs = Path(starts["folder"]) / "serving" / "runtime"

    def listens() -> Any:
        return next((url for record in signs.glob("jpserver-*.json") if (url := listening_url(record))), None)

    port = urlsplit(await until(listens, "that it listens")).port
    token = (Path(starts["folder"]) / "serving" / "token").read_text()
    await until(killed(jupyter), "that its port is free")
    with stranger.takes(port) as heard:
        os.kill(runner, signal.SIGCONT)
        over = await desk.finished(starts["key"])
        assert "ended before it was ready (signal 9)" in over["error"]["detail"]
        said = heard()
        assert (token in said, said) == (False, "")
    assert "port" not in json.loads((Path(starts["folder"]) / "served.json").read_text())

    asks = runpy.run_path(str(RUNNER / "session" / "jupyter.py"))["JupyterServer"]
    lives = object.__new__(asks)  # a running process whose port belongs to another one
    lives.port, lives.base_url, lives.token, lives.process = port, "/", token, SimpleNamespace(pid=os.getpid())
    with stranger.takes(port) as heard:
        assert await asyncio.to_thread(lives.query, "api") is None
        assert heard() == ""

    told = await desk.until(runs["key"], lambda job: job["session"]["state"] == "ready")
    page = Page((await desk.core.sessions.open(desk.id, "runs"))["page"])
    await page.log_in()
    runner, jupyter = runner_of(told["folder"]), one_of(told, "start.py jupyterlab")
    assert jupyter
    os.kill(runner, signal.SIGSTOP)
    await until(killed(jupyter), "that its port is free")
    with stranger.takes(told["session"]["port"]) as heard:
        with pytest.raises(httpx.TransportError):
            await page.log_in()
        assert heard() == ""
    os.kill(runner, signal.SIGCONT)
    over = await desk.finished(told["key"])
    assert over["error"]["detail"] == "jupyterlab ended (signal 9)."
    await nothing_left(desk, told)


async def test_who_takes_the_local_port_first_gets_no_page_to_log_in_to(
    open_desk: Any, cluster: Any, tmp_path: Path, stranger: Stranger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        wanted = free.getsockname()[1]
    async with open_desk(cluster, tmp_path) as desk:
        asked = launch(desk, "-p", "arandu", name="mine", port=wanted)
        with stranger.takes(wanted) as heard:
            await desk.core.sessions.launch(desk.id, asked)
            told = await desk.until(asked["key"], lambda job: job["session"]["state"] == "unreachable")
            assert f"{wanted} is in use by another user ({stranger.uid})" in told["session"]["message"]
            with pytest.raises(TunnelError, match="is in use by another user"):
                await desk.core.sessions.open(desk.id, "mine")
            assert heard() == ""
        told = await desk.core.sessions.open(desk.id, "mine")
        old = Path(told["page"])
        assert told["session"]["local_port"] == wanted
        text = old.read_text()
        assert str(wanted) in text
    assert not old.exists()
    old.write_text(text)  # as after a kill of the agent
    with stranger.takes(wanted) as heard:
        async with open_desk(cluster, tmp_path) as desk:
            told = await desk.until(asked["key"], lambda job: job["session"]["state"] == "reconnecting")
            assert f"{wanted} on this computer is in use by another user ({stranger.uid})" in told["session"]["message"]
            assert not old.exists()  # it would have posted the token to the foreign port
            with pytest.raises(TunnelError, match="is in use by another user"):
                await desk.core.sessions.open(desk.id, "mine")
            assert heard() == ""
            await desk.until(asked["key"], lambda job: job["session"]["state"] == "ready")
            # Others cannot create the folder in which the agent keeps its pages.
            theirs, ours = tmp_path / "theirs", tmp_path / "state" / f"sessions-{socket.gethostname()}"
            theirs.mkdir()
            os.chown(theirs, stranger.uid, -1)
            ours.rename(tmp_path / "aside")
            ours.symlink_to(theirs)
            with pytest.raises(TransportError, match="is not a directory of yours"):
                await desk.core.sessions.open(desk.id, "mine")
            assert list(theirs.iterdir()) == []
            ours.unlink()
            (tmp_path / "aside").rename(ours)
            page = Page((await desk.core.sessions.open(desk.id, "mine"))["page"])
            await page.log_in()
            assert await page.get("api/contents") == 200
            with monkeypatch.context() as at_once:
                at_once.setattr("jupyter_slurm.services.sessions.login_pages._PAGE_LIFETIME_S", 0.0)
                await desk.core.sessions.open(desk.id, "mine")
            await until(lambda: not old.exists(), "the end of what it is there for")
            await desk.core.sessions.open(desk.id, "mine")
            assert old.exists()
            await desk.core.sessions.end(desk.id, "mine")
            await desk.finished(told["key"])
            await nothing_left(desk, {**told, "session": {**told["session"], "local_port": wanted}})
            await until(lambda: not old.exists(), "the end of its page")


_KNOCK = "import subprocess, sys; subprocess.run(['curl', '-ksS', '--max-time', '20', *sys.argv[1:]])"
_NO_STEPS = "#!/bin/sh\necho 'srun: error: no steps from this host' >&2\nexit 1\n"


async def test_a_port_of_the_node_is_for_its_person_where_the_login_node_reaches_nothing_else(
    open_desk: Any, cluster: Any, tmp_path: Path, stranger: Stranger
) -> None:
    """The agent runs on the login node itself, and no step can reach the node."""
    (tmp_path / "srun").write_text(_NO_STEPS)
    (tmp_path / "srun").chmod(0o755)
    env = {**cluster.env(), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    there = SimpleNamespace(env=lambda: env, slurm_conf=cluster.slurm_conf)
    ports = [27_200, 27_299]
    async with open_desk(there, tmp_path, node_ports=ports) as desk:
        asked = launch(desk, "-p", "arandu", name="mine")
        await desk.core.sessions.launch(desk.id, asked)
        told = await ready(desk, asked)
        assert told["session"]["way"] == "direct"
        (tunnel,) = desk.core.tunnels.list_to_api(desk.id)
        assert (tunnel["proven"], "no steps from this host" in tunnel["failed"]["step"]) == (True, True)
        page = Page((await desk.core.sessions.open(desk.id, "mine"))["page"])
        await page.log_in()
        assert await page.get("api/contents") == 200
        door = json.loads((Path(told["folder"]) / "served.json").read_text())["door"]["port"]
        assert ports[0] <= door <= ports[1]
        for scheme in ("http", "https"):
            url = f"{scheme}://127.0.0.1:{door}{told['session']['path']}api"
            assert await asyncio.to_thread(stranger.run, _KNOCK, url) == b""
        await desk.core.sessions.end(desk.id, "mine")
        await desk.finished(told["key"])
        await nothing_left(desk, told)


@pytest.fixture
async def swapped(desk: Any, launched: Any, stranger: Stranger) -> AsyncIterator[Callable[[], Any]]:
    """Provide a session whose directory was replaced, as the owner of a shared folder can do."""
    told = await launched("-p", "arandu", name="mine")
    own, aside, theirs = Path(told["folder"]), Path(desk.root) / "aside", Path(desk.root) / "theirs"
    (theirs / "serving").mkdir(parents=True)
    shutil.copy(own / "job.json", theirs)
    (theirs / "serving" / "token").write_text("known")
    for path in (theirs, *theirs.rglob("*")):
        os.chown(path, stranger.uid, -1)
    own.rename(aside)
    yield lambda: (told, own, theirs)
    if own.is_symlink():
        own.unlink()
    else:
        shutil.rmtree(own)
    aside.rename(own)


async def test_a_directory_that_others_put_in_the_place_of_ours_is_not_believed(
    desk: Any, swapped: Any, open_desk: Any, cluster: Any, tmp_path: Path, stranger: Stranger
) -> None:
    told, own, theirs = swapped()
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with stranger.takes(port) as heard:
        served = {"server": "jupyterlab", "version": "4", "time": 1.0, "nodes": "dgx01", "gpus": 0, "restarts": 0}
        (theirs / "served.json").write_text(json.dumps({"format": 1, "port": port, **served}))
        for put in (own.symlink_to, lambda target: (own.unlink(), target.rename(own))):
            put(theirs)
            with pytest.raises(JobError, match=f"belongs to another user .uid {stranger.uid}"):
                await desk.core.sessions.open(desk.id, "mine")
        async with open_desk(cluster, tmp_path / "another", job_root=desk.core.settings.job_root) as another:
            with pytest.raises(JobNotFound):  # an agent that begins now does not take it for a job of this user
                await another.job(told["key"])
            with pytest.raises(JobError):
                await another.core.sessions.open(another.id, "mine")
        assert heard() == ""
