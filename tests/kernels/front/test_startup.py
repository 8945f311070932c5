"""Tests of the start of a proxy whose kernel runs already, and of what it leaves behind."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.connect import write_connection_file

from jupyter_slurm.errors import ConfigError, JobNotFound, SlurmError, UsageError
from jupyter_slurm.kernels import startup
from jupyter_slurm.kernels.proxy import KernelProxy, KernelStartError
from jupyter_slurm.kernels.startup import KernelStartup
from jupyter_slurm.kernels.state_file import KernelStateFile, read

_NOTEBOOK = "/home/me/n.ipynb"


class _Agent:
    """An agent with an allocation ``A`` and a kernel ``S`` in it; ``troubles`` are raised once, by path."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str]] = []
        self.troubles: dict[str, list[SlurmError]] = {}
        self.step: dict[str, Any] = {"key": "S", "id": "7.1", "kind": "kernel", "state": "RUNNING", "finished": False}
        self.granted = {"key": "A", "id": "7", "kind": "allocation", "state": "RUNNING", "finished": False}

    def get(self, path: str, **_: Any) -> Any:
        return self._answer("GET", path)

    def post(self, path: str, **_: Any) -> Any:
        return self._answer("POST", path)

    def _answer(self, verb: str, path: str) -> Any:
        self.calls.append((verb, path))
        if self.troubles.get(path):
            raise self.troubles[path].pop(0)
        if path == "jobs/S/kernel":
            place = {"node": "n1", "port": 5, "stage": None}
            return {**self.step, **({"node": None, "port": None, "stage": None} if self.step["finished"] else place)}
        if path == "tunnels":
            return {"id": f"t{sum(call == ('POST', path) for call in self.calls)}", "socket": "/nosuch"}
        if path.endswith("/close"):
            return {"state": "closed"}
        job = self.step if path.startswith("jobs/S") else self.granted
        return {**job, "allocation": "A", "restarts": 0, "exit_code": 0, "error": None}

    @property
    def closed(self) -> list[str]:
        return [path for _, path in self.calls if path.endswith("/close")]

    @property
    def requests(self) -> list[str]:
        return [path for verb, path in self.calls if verb == "POST"]


class _Cluster:
    """Cluster of an agent."""

    name, is_remote = "c", True

    def __init__(self, agent: _Agent) -> None:
        self.client = agent

    def path(self, *parts: str) -> str:
        return "/".join(parts)


class _Standin:
    """Placeholder of a kernel, without cells."""

    def __init__(self) -> None:
        self.printed: list[str] = []

    def print_status(self, text: str) -> None:
        self.printed.append(text)


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> _Agent:
    monkeypatch.setattr(startup, "_LOGIN_CHECK_INTERVAL_S", 0.0)
    monkeypatch.setattr(startup, "_RETRY_INTERVAL_S", 0.0)
    return _Agent()


@pytest.fixture
def post(tmp_path: Path) -> Iterator[KernelStateFile]:
    """Provide the state file of a kernel whose proxy was killed."""
    made = KernelStateFile(str(tmp_path / "kernel.json"), _NOTEBOOK, "k")
    made.write(state="running", allocation="A", step="S", secret="00" * 32, words=[])
    yield made
    made.close()


def place_of(agent: _Agent, post: KernelStateFile, *troubles: Exception) -> KernelStartup:
    """Return a startup whose login fails first with these errors."""
    place, left = KernelStartup([], post, name="k"), list(troubles)

    def arrive() -> None:
        if left:
            raise left.pop(0)
        place._entrance._cluster = _Cluster(agent)  # type: ignore[assignment]

    place._entrance.arrive = arrive  # type: ignore[assignment,method-assign]
    return place


async def test_a_running_kernel_is_kept_whatever_stands_between(agent: _Agent, post: KernelStateFile) -> None:
    agent.troubles = {
        "jobs/A": [UsageError("The cluster is not known.", hint="Name it.")],
        "jobs/S/kernel": [JobNotFound("The store was read again.", hint="Wait.")],
    }
    place, standin = place_of(agent, post, ConfigError("c.toml, line 3", hint="Correct the profile.")), _Standin()
    await place.climb(standin)  # type: ignore[arg-type]
    assert place.is_resumed
    assert [" ".join(standin.printed).count(text) for text in ("line 3", "not known", "read again")] == [1, 1, 1]
    assert not agent.requests


async def refused(place: KernelStartup, folder: Path) -> str:
    """Return the text with which a proxy refuses cells after this start."""
    _, connection = write_connection_file(str(folder / "c.json"), ip=str(folder / "c"), transport="ipc", key=b"k")
    proxy = KernelProxy(connection, place, {}, lambda told: None)
    proxy._channels.start()
    try:
        await proxy._serve()
    finally:
        await proxy._channels.close()
    assert proxy._standin.refusal is not None
    return proxy._standin.refusal[1]


async def test_a_kernel_that_was_not_looked_up_is_found_by_the_restart_that_was_advised(
    agent: _Agent, post: KernelStateFile, tmp_path: Path
) -> None:
    place = place_of(agent, post, OSError("No space left on device"))
    assert "Restart the kernel to try again" in await refused(place, tmp_path)
    place.mark("restarting")
    await place.release(restart=True)
    again = place_of(agent, post, RuntimeError("another fault"))
    assert "another fault" in await refused(again, tmp_path)
    last = place_of(agent, post)
    await last.climb(_Standin())  # type: ignore[arg-type]
    assert (last.is_resumed, agent.requests) == (True, [])
    assert post.data["state"] == "running"


async def test_a_restart_without_a_refusal_gets_another_kernel(agent: _Agent, post: KernelStateFile) -> None:
    place = place_of(agent, post)
    place.mark("restarting")
    assert post.data["state"] == "restarting"


async def test_a_kernel_that_is_known_to_have_ended_is_not_waited_for(
    agent: _Agent, post: KernelStateFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise UsageError("The partition is closed.", hint="Use another one.")

    monkeypatch.setattr(startup, "request_kernel", refuse)
    agent.granted.update(finished=True, state="CANCELLED")
    parsed: Any = type("Parsed", (), {"keywords": {}})()
    place = place_of(agent, post)
    arrive = place._entrance.arrive
    monkeypatch.setattr(place._entrance, "arrive", lambda: (arrive(), parsed)[1])
    assert "The partition is closed." in await refused(place, tmp_path)
    assert post.data["state"] == "over"


@pytest.mark.parametrize("restart", [True, False])
async def test_the_tunnel_of_a_kernel_ends_with_it(agent: _Agent, post: KernelStateFile, restart: bool) -> None:
    place = place_of(agent, post)
    await place.climb(_Standin())  # type: ignore[arg-type]
    for _ in range(2):
        with pytest.raises(OSError, match="No such file"):
            await place.connect()  # the agent has the tunnel, and its socket does not answer
    agent.troubles["jobs/S/cancel"] = [UsageError("No.", hint="Wait.")]
    with pytest.raises(UsageError):
        await place.release(restart=restart)
    assert agent.closed == ["tunnels/t2/close"]


async def test_the_tunnel_of_a_kernel_that_has_ended_by_itself_is_closed(agent: _Agent, post: KernelStateFile) -> None:
    place = place_of(agent, post)
    await place.climb(_Standin())  # type: ignore[arg-type]
    with pytest.raises(OSError, match="No such file"):
        await place.connect()
    agent.step.update(finished=True, state="COMPLETED")
    agent.troubles["tunnels/t1/close"] = [UsageError("No.", hint="Wait.")]
    assert await place.ended()
    assert await place.ended()
    assert agent.closed == ["tunnels/t1/close"]
    with pytest.raises(KernelStartError):
        await place._wait(_Standin())  # type: ignore[arg-type]


_HANGS = """
import asyncio, json, sys, threading
from jupyter_slurm.kernels.proxy import KernelProxy
from jupyter_slurm.kernels.startup import KernelStartup
from jupyter_slurm.kernels.state_file import KernelStateFile

async def main(file):
    post = KernelStateFile(file, "/home/me/n.ipynb", "k")
    post.write(state="running", allocation="A", step="S", secret="00" * 32, words=[])
    place = KernelStartup([], post, name="k")

    def arrive():
        print("asks", flush=True)
        threading.Event().wait()

    place._entrance.arrive = arrive
    return await KernelProxy(json.load(open(file)), place, {}, lambda told: None).run()

sys.exit(asyncio.run(main(sys.argv[1])))
"""


def test_a_proxy_that_leaves_its_kernel_does_not_wait_for_the_agent(tmp_path: Path) -> None:
    """The next proxy of the notebook waits for the lock of its state file."""
    file, _ = write_connection_file(str(tmp_path / "kernel-1.json"), ip=str(tmp_path / "c"), transport="ipc", key=b"k")
    command = [sys.executable, "-P", "-c", _HANGS, file]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "asks\n"
            process.send_signal(signal.SIGHUP)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, said) == (0, "")
    assert read(file)["state"] == "running"
    again = KernelStateFile(str(tmp_path / "kernel-2.json"), _NOTEBOOK, "k")
    assert again.data.get("step") == "S"
    again.close()


async def test_a_request_may_be_given_up_before_its_answer(agent: _Agent, post: KernelStateFile) -> None:
    troubles: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: troubles.append(context))
    place, answers = place_of(agent, post), threading.Event()
    asked = asyncio.ensure_future(place._do(answers.wait))
    await asyncio.sleep(0)
    for call in list(place._calls):
        call.cancel()
    await asyncio.gather(asked, return_exceptions=True)
    await asyncio.sleep(0)
    answers.set()
    assert not troubles


async def test_a_kernel_that_is_shut_down_before_it_is_looked_up_is_released_later(
    agent: _Agent, post: KernelStateFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[str] = []
    monkeypatch.setattr(startup, "schedule_release", left.append)
    await place_of(agent, post).release(restart=False)
    assert left == [post.path.removesuffix(".slurm")]
    assert read(left[0]).get("step") == "S", "the other process needs it"
    assert not agent.requests
