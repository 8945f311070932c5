"""Two login nodes with one home directory: each has its own agent, and both know all jobs, each once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]

JOBS = 6
# One user on one host: submits jobs, and waits until the jobs of both hosts are listed.
USER = """
import json, secrets, sys, time
from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings

asked = json.loads(sys.argv[1])
client = AgentClient.connect(Settings(**asked["settings"]))
path = "/v1/clusters/" + client.post("/v1/clusters", json={"slurm_conf": asked["conf"], "path": asked["path"]})["id"]
mine = []
for _ in range(asked["jobs"]):
    key = time.strftime("%Y%m%d-%H%M%S-", time.gmtime()) + secrets.token_hex(8)
    context = {"cwd": "/tmp", "env": asked["env"], "umask": 0o22, "limits": {}}
    request = {"key": key, "kind": "script", "text": "#!/bin/sh\\ntrue\\n", "options": ["--hold"], "context": context}
    mine.append(client.post(path + "/jobs", json=request)["id"])
deadline = time.monotonic() + 120
while True:
    listed = [job["id"] for job in client.get(path + "/jobs", params={"state": "all"}) if job["key"] and job["id"]]
    if len(listed) >= 2 * asked["jobs"] or time.monotonic() > deadline:
        break
    time.sleep(0.5)
print(json.dumps({"agent": client.get("/v1/agent"), "mine": mine, "listed": sorted(listed)}))
"""


def test_two_login_nodes_with_one_home(
    make_settings: Callable[..., Settings], cluster: EmbeddedCluster, place: Path
) -> None:
    settings = make_settings(agent_host="daemon")
    folders = {
        name: getattr(settings, name) for name in ("runtime_dir", "state_dir", "job_root", "agent_host", "sites")
    }
    env = cluster.env()
    asked = {"settings": folders, "conf": env["SLURM_CONF"], "path": env["PATH"], "env": env, "jobs": JOBS}

    def begin(host: str) -> subprocess.Popen[str]:
        argv = [sys.executable, "-c", USER, json.dumps(asked)]
        inside = ["unshare", "--uts", "sh", "-c", f'hostname {host}; exec "$@"', "sh"]
        return subprocess.Popen([*inside, *argv], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    running = [begin(host) for host in ("login1", "login2")]
    told: list[dict[str, Any]] = []
    try:
        for one in running:
            out, err = one.communicate(timeout=200)
            assert out, err
            told.append(json.loads(out))
        assert told[0]["agent"]["pid"] != told[1]["agent"]["pid"]
        submitted = sorted(told[0]["mine"] + told[1]["mine"])
        assert len(set(submitted)) == 2 * JOBS
        assert [one["listed"] for one in told] == [submitted, submitted]
    finally:
        for one in running:
            one.kill()
            one.wait()
        for one in told:
            os.kill(one["agent"]["pid"], signal.SIGKILL)
