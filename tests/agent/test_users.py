"""Users of a login: reported by the system, removed with their connections."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.hosting.agent_host import ThreadedAgent
from jupyter_slurm.config import Settings
from jupyter_slurm.errors import UsageError

CONNECT = "/v1/clusters/local/connect"

# Another process, which uses the login until its standard input ends.
_USER = """
import sys
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings

client = AgentClient.connect(Settings(runtime_dir=sys.argv[1], agent_socket=sys.argv[2]), start=False)
for name in sys.argv[3:]:
    client.post("/v1/clusters/local/connect", json={"client": {"kind": "kernel", "name": name}})
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def core(core: Any) -> Any:
    core.desk._timeout = 0  # no user is asked
    return core


def users(client: AgentClient) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = client.get("/v1/clusters/local")["users"]
    return told


def test_a_process_is_there_as_long_as_it_lives(
    agent: ThreadedAgent,
    client: AgentClient,
    settings: Settings,
    run_python: Callable[..., subprocess.Popen[str]],
    wait_for: Callable[..., Any],
) -> None:
    assert users(client) == []
    arguments = (settings.runtime_dir, settings.agent_socket, "fit.ipynb")
    with run_python(_USER, *arguments, stdin=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        (user,) = users(client)
        # A port shows the process's user, and no more.
        assert user["pid"] == (process.pid if settings.agent_socket == "unix" else None)
        assert (user["kind"], user["name"]) == ("kernel", "fit.ipynb")
        process.kill()
    wait_for(lambda: not users(client), "it is gone")


def test_who_is_renamed_or_asks_twice_is_one(client: AgentClient, settings: Settings) -> None:
    for name in ("fit.ipynb", "fit.ipynb", "fitted.ipynb"):
        answer = client.post(CONNECT, json={"client": {"kind": "kernel", "name": name}})
        told = [(user["name"], user["pid"]) for user in answer["users"]]
        if settings.agent_socket == "unix":
            assert told == [(name, os.getpid())]
        else:
            assert (name, None) in told
    first = min(user["since"] for user in answer["users"])
    assert first <= client.get("/v1/clusters/local")["users"][-1]["since"]
    client.close()


def test_who_does_not_say_what_it_is_uses_nothing(client: AgentClient) -> None:
    client.post(CONNECT)
    client.post(CONNECT, json={})
    assert users(client) == []
    for wrong in ({"kind": "kernel"}, {"kind": "Kernel", "name": ""}, {"kind": "kernel", "name": "", "pid": 1}):
        with pytest.raises(UsageError):
            client.post(CONNECT, json={"client": wrong})
    assert users(client) == []
