"""Two agents, as on two login nodes or with two runtime directories, with the same job directories."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.slow]


@pytest.fixture
def daemons(
    place: Path, make_settings: Callable[..., Settings], cluster: EmbeddedCluster
) -> Iterator[list[tuple[AgentClient, str]]]:
    """Provide clients of two daemons with one job_root, and the path of the cluster in their API."""
    with contextlib.ExitStack() as stack:
        found = []
        for number in range(2):
            own = {"runtime_dir": str(place / f"run{number}"), "state_dir": str(place / f"state{number}")}
            client = stack.enter_context(AgentClient.connect(make_settings(agent_host="daemon", **own)))
            pid = client.get("/v1/agent")["pid"]
            stack.callback(os.kill, pid, signal.SIGKILL)
            env = cluster.env()
            named = client.post("/v1/clusters", json={"slurm_conf": env["SLURM_CONF"], "path": env["PATH"]})
            found.append((client, f"/v1/clusters/{named['id']}"))
        yield found


def test_thirty_submissions_in_turn_are_each_there_once_and_known_to_both(
    daemons: list[tuple[AgentClient, str]], cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    (first, path), (second, _) = daemons
    assert first.get("/v1/agent")["pid"] != second.get("/v1/agent")["pid"]

    def submit(number: int) -> dict[str, Any]:
        client, path = daemons[number % 2]
        key = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(8)
        context = {"cwd": "/tmp", "env": cluster.env(), "umask": 0o22, "limits": {}}
        asked = {"key": key, "kind": "script", "text": "#!/bin/sh\ntrue\n", "options": ["--hold"], "context": context}
        return dict(client.post(f"{path}/jobs", json=asked))

    with ThreadPoolExecutor(4) as pool:
        jobs = list(pool.map(submit, range(30)))
    ids = {job["key"]: job["id"] for job in jobs}
    assert None not in ids.values()
    assert len(set(ids.values())) == 30

    def listed(client: AgentClient) -> bool:
        found = {job["key"]: job for job in client.get(f"{path}/jobs", params={"state": "all"}) if job["key"]}
        return {key: job["id"] for key, job in found.items()} == ids and {j["state"] for j in found.values()} == {
            "PENDING"
        }

    for client in (first, second):
        wait_for(lambda client=client: listed(client), "all thirty to be listed", interval=0.5)
    scripts = subprocess.run(
        ["squeue", "--me", "-h", "-t", "all", "-o", "%o"], env=cluster.env(), capture_output=True, text=True, check=True
    ).stdout.split()
    assert [scripts.count(job["script_path"]) for job in jobs] == [1] * 30
    for job in jobs[:2]:  # each cancels one of its own jobs and one of the other's
        for client in (first, second):
            client.post(f"{path}/jobs/{job['key']}/cancel", json={})
    wait_for(
        lambda: all(second.get(f"{path}/jobs/{job['key']}")["state"] == "CANCELLED" for job in jobs[:2]),
        "the cancelled ones",
        interval=0.5,
    )
    for client in (first, second):
        assert client.post("/v1/housekeeping", json={"older_than_days": 0, "dry_run": True})["kept"] == 28
