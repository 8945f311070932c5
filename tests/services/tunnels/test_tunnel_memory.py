"""Tests of an agent's stored tunnels after a restart: the file may be damaged, and never prevents the start."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import NotConnected
from jupyter_slurm.services.agent_core import Core
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.tunnels import node_routes
from jupyter_slurm.services.tunnels.local_tunnels import Tunnels
from jupyter_slurm.services.tunnels.login_routes import RouteTarget
from jupyter_slurm.services.tunnels.node_routes import NodeRoutes

_ONE = {"id": "a" * 16, "cluster": "x", "job": "1", "submitted": None, "node": "", "port": 1, "since": 0.0}


def memory_of(state: Path, machine: str = "") -> Path:
    return state / f"tunnels-{machine or socket.gethostname()}.json"


@pytest.mark.parametrize(
    "found",
    ["", "[", "null", "{}", [[1]], [{"id": 1}]]
    + [[{**_ONE, "local_port": port, "socket": None}] for port in (99999, "8000", -1)]
    + [[{**_ONE, "local_port": None, "socket": path}] for path in (5, "/root/\0/x")]
    + ["[" * 100_000],
)
async def test_a_torn_memory_is_no_memory(found: Any, tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    memory_of(state).write_text(found if isinstance(found, str) else json.dumps(found))
    core = Core(Settings(job_root=str(tmp_path / "jobs"), state_dir=str(state)))
    await core.start()
    assert core.tunnels.list_to_api("x") == []
    await core.stop()


async def test_a_port_is_taken_again_before_anybody_logs_in(tmp_path: Path) -> None:
    """A connection meanwhile is refused; nothing waits for it."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    memory_of(state).write_text(json.dumps([{**_ONE, "local_port": port, "socket": None}]))
    core = Core(Settings(job_root=str(tmp_path / "jobs"), state_dir=str(state)))
    await core.start()
    assert [tunnel["local_port"] for tunnel in core.tunnels.list_to_api("x")] == [port]
    assert core.count_holders() == {}
    with socket.create_connection(("127.0.0.1", port)):
        pass
    with pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", port))
    await core.stop()
    assert json.loads(memory_of(state).read_text())[0]["local_port"] == port


async def test_sockets_are_there_again_after_a_log_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A log-out removes their folder. A tunnel that cannot listen yet is kept, whatever the reason."""
    monkeypatch.setattr("jupyter_slurm.services.tunnels.local_tunnels._CHECK_INTERVAL_S", 0.02)
    state, run, other = (tmp_path / name for name in ("state", "run", "other"))
    state.mkdir(mode=0o700)
    other.mkdir()
    other.chmod(0o755)
    paths = [str(run / "tunnels" / "s"), str(other / "s")]
    specs = [{**_ONE, "id": path, "local_port": None, "socket": path} for path in paths]
    memory_of(state).write_text(json.dumps(specs))

    def find_cluster(name: str) -> Any:
        raise NotConnected(f"There is no connection to {name}.")

    tunnels = Tunnels(Settings(state_dir=str(state)), find_cluster, folder=str(run / "tunnels"))
    tunnels.start()
    told = tunnels.list_to_api("x")
    assert [(one["socket"], one["state"]) for one in told] == list(zip(paths, ("open", "broken"), strict=True))
    assert "is open to other users" in told[1]["message"]
    assert [one["socket"] for one in json.loads(memory_of(state).read_text())] == paths
    other.chmod(0o700)
    async with asyncio.timeout(60):
        while tunnels.list_to_api("x")[1]["state"] != "open":
            await asyncio.sleep(0.01)
    for path in paths:
        with socket.socket(socket.AF_UNIX) as sock:
            sock.connect(path)
    await tunnels.stop()


async def test_of_login_nodes_with_one_home_each_has_its_own_ports_and_pages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port of a page on one of them may belong to another user on the other."""
    state, settings = tmp_path / "state", {"job_root": str(tmp_path / "jobs"), "state_dir": str(tmp_path / "state")}
    state.mkdir(mode=0o700)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    memory_of(state, "login1").write_text(json.dumps([{**_ONE, "local_port": port, "socket": None}]))
    page = state / "sessions-login1" / "key.html"
    page.parent.mkdir(mode=0o700)
    page.touch()
    for machine, ports, has_page in (("login2", [], True), ("login1", [port], False)):
        monkeypatch.setattr(socket, "gethostname", lambda name=machine: name)
        core = Core(Settings(**settings))
        await core.start()
        assert [tunnel["local_port"] for tunnel in core.tunnels.list_to_api("x")] == ports
        assert page.exists() == has_page  # an agent removes pages of its killed predecessor
        await core.stop()
    assert json.loads(memory_of(state, "login1").read_text())[0]["local_port"] == port


async def test_a_way_that_is_let_go_while_it_is_looked_for_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a session cancelled before Jupyter listens: no other code knows the route to its node."""
    found, looked, closed = asyncio.Event(), asyncio.Event(), []
    reach = NodeRoutes(*cast(Any, (None, None, None, None)))

    async def log_in(goal: RouteTarget, prompter: Any) -> Any:
        looked.set()
        await found.wait()
        return SimpleNamespace(is_alive=True, close=lambda: closed.append(goal.node))

    monkeypatch.setattr(reach, "_ssh", log_in)
    cluster = cast(Any, SimpleNamespace(id="here"))
    tunnels = Tunnels(Settings(state_dir=str(tmp_path)), lambda _: cluster)
    tunnels._reaches["here"] = (cluster, reach)
    record = JobRecordFile.from_json({"kind": "session", "granted": {"nodes": "n1"}})
    entry = TrackedJob("here", JobFolder("/x/20260101-000000-00000000"), record, JobId(7), JobState("RUNNING"))
    approaching = asyncio.create_task(tunnels.approach("here", entry))
    await looked.wait()
    tunnels.leave("here", str(entry.key))
    goal = RouteTarget("n1", "7", entry.folder)
    while goal in reach._places:
        await asyncio.sleep(0.01)
    found.set()
    await approaching
    assert closed == ["n1"]
    entry.record = JobRecordFile.from_json(
        {"kind": "session", "granted": {"nodes": "n[1"}}
    )  # a value of no real cluster
    await tunnels.approach("here", entry)


async def test_a_relay_that_starts_after_its_caller_has_gone_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A relay is a session on the login node, whose number is limited."""
    begun, go, closed = threading.Event(), threading.Event(), threading.Event()

    def pipe(*_: Any, **__: Any) -> None:
        begun.set()
        go.wait(30)

    monkeypatch.setattr(node_routes, "Multiplex", lambda *_: SimpleNamespace(close=closed.set))
    location = SimpleNamespace(environment={})
    reach = NodeRoutes(*cast(Any, (SimpleNamespace(pipe=pipe), location, None, None)))
    waiting = asyncio.create_task(reach._step(RouteTarget("n1", "7")))
    assert await asyncio.to_thread(begun.wait, 30)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go.set()
    assert await asyncio.to_thread(closed.wait, 30)
    reach.close()
