"""Agents that die within one submission over SSH: the job exists once, and nothing untrue is told."""

from __future__ import annotations

import os
import secrets
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost
from ssh_hosts.ways import Way

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.agent.client.client_errors import broken
from jupyter_slurm.agent.client.http_client import HttpClient
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs import upload
from jupyter_slurm.client.submission.submit import Submission, submit
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import LoginFailed, SubmissionUnknown

pytestmark = [pytest.mark.slurm, pytest.mark.root]


@pytest.fixture(params=["paramiko", "openssh"])
def far(
    request: pytest.FixtureRequest,
    cluster: EmbeddedCluster,
    login_host: SshHost,
    make_settings: Callable[..., Settings],
    tmp_path: Path,
) -> Iterator[Cluster]:
    """Provide a cluster over SSH, as a front end sees it."""
    values = Way(request.param, login_host).settings(cluster, tmp_path, str(tmp_path / "jobs"))
    with AgentClient.connect(make_settings(agent_host="daemon", **values)) as client:
        told = client.post("/v1/clusters", json={"profile": "far"})
        yield Cluster(client, told["id"], is_remote=True)
        client.post("/v1/clusters/far/disconnect")
        client.stop_agent()


@pytest.fixture
def deaths(monkeypatch: pytest.MonkeyPatch, wait_for: Callable[..., Any]) -> list[int]:
    """Kill the agent after it has submitted a job, before its answer arrives, as often as the list has entries."""
    left: list[int] = []
    request = HttpClient.request

    def dying(self: HttpClient, method: str, path: str, **asked: Any) -> Any:
        answer = request(self, method, path, **asked)
        if method == "POST" and path.endswith("/jobs") and answer.status < 300 and left:
            left.pop()
            pid = request(self, "GET", "/v1/agent").json()["pid"]
            os.kill(pid, signal.SIGKILL)
            wait_for(lambda: not os.path.exists(f"/proc/{pid}"), "the end of the agent")
            raise broken(method, path)
        return answer

    monkeypatch.setattr(HttpClient, "request", dying)
    return left


def ids(cluster: EmbeddedCluster, name: str) -> list[str]:
    argv = ["squeue", "-h", "-t", "all", "-n", name, "-o", "%i"]
    done = subprocess.run(argv, env=cluster.env(), capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_submission_survives_the_deaths_of_agents(
    far: Cluster, cluster: EmbeddedCluster, deaths: list[int], number: int, wait_for: Callable[..., Any]
) -> None:
    name = f"lost-{secrets.token_hex(4)}"
    deaths += [0] * number
    job = submit(far, Submission("script", "#!/bin/sh\nsleep 300\n", ["-J", name]))
    assert deaths == []
    # If the next agent cannot read the answer of sbatch at once, it searches the queue.
    known = wait_for(lambda: far.client.get(f"/v1/clusters/far/jobs/{job.key}")["id"], "the ID of the job")
    assert ids(cluster, name) == [known]
    listed = far.client.get("/v1/clusters/far/jobs", params={"state": "all"})
    assert [entry["key"] for entry in listed if known in (entry["id"], entry["name"])] == [job.key]


@pytest.mark.parametrize("obstacle", [LoginFailed("No."), WaitInterrupted("No.")])
def test_what_is_not_known_is_said_and_settled_with_the_next_connection(
    far: Cluster,
    cluster: EmbeddedCluster,
    deaths: list[int],
    obstacle: BaseException,
    monkeypatch: pytest.MonkeyPatch,
    wait_for: Callable[..., Any],
) -> None:
    name = f"lost-{secrets.token_hex(4)}"
    far.log_in()
    deaths.append(0)

    def fail(_: Cluster) -> None:
        raise obstacle

    with monkeypatch.context() as patched:
        patched.setattr(upload, "_log_in", fail)
        with pytest.raises((SubmissionUnknown, WaitInterrupted), match="not known yet") as caught:
            submit(far, Submission("script", "#!/bin/sh\nsleep 300\n", ["-J", name]))
    said = str(caught.value)
    assert "Nothing was submitted" not in said
    assert "Do not run the cell again" in said
    key = said.split("job('")[1].split("'")[0]
    far.log_in()
    path = f"/v1/clusters/far/jobs/{key}"
    number = wait_for(lambda: far.client.get(path)["id"], "the ID of the job")
    assert ids(cluster, name) == [number]
