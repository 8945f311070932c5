"""From the start of a session's job to a page that can be used, beside the same JupyterLab started by hand there."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 7
AT_MOST = 1.1

LAUNCH = """
_ = get_ipython().run_line_magic("slurm", "launch -p arandu name=bench{number}")
import jupyter_slurm, time, httpx
session = jupyter_slurm.session("bench{number}")
session.wait_ready()
assert httpx.get(session.url + "api", trust_env=False).status_code == 200
print(f"ready {{time.time()}} {{session.id}}")
"""


def _ours(kernel: Any, number: int) -> float:
    """Return the milliseconds from the first process of the job to the page, which came through the tunnel."""
    ready, job = kernel.run(LAUNCH.format(number=number)).split("ready", 1)[1].split()[:2]
    own = [process for process in psutil.process_iter() if _is_of(process, job)]
    began = min(process.create_time() for process in own)
    kernel.run("session.stop()")
    return (float(ready) - began) * 1000


def _is_of(process: psutil.Process, job: str) -> bool:
    try:
        return process.environ().get("SLURM_JOB_ID") == job
    except psutil.Error:
        return False


def _by_hand(cluster: EmbeddedCluster, folder: Path) -> float:
    """Return the milliseconds from the command to the page, on the same node, which is this machine."""
    token = secrets.token_hex(16)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", f"--port={port}", "--ip=127.0.0.1", "--allow-root"]
    with subprocess.Popen(
        ["srun", "-p", "arandu", *command, f"--IdentityProvider.token={token}"],
        env={**os.environ, **cluster.env()},
        cwd=folder,
        stderr=subprocess.DEVNULL,
    ):
        while True:
            try:
                if httpx.get(f"http://127.0.0.1:{port}/api", trust_env=False).status_code == 200:
                    break
            except httpx.TransportError:
                time.sleep(0.02)
        ready = time.time()
        own = [
            p
            for p in psutil.process_iter(["cmdline"])
            if f"--IdentityProvider.token={token}" in (p.info["cmdline"] or ())
        ]
        began = max(process.create_time() for process in own)  # srun was there before
        for process in own:
            process.kill()
    return (ready - began) * 1000


def test_a_session_is_there_nearly_as_soon_as_by_hand(
    start_kernel: Callable[..., Any], cluster: EmbeddedCluster, home: Path, new_table: Callable[[str], Any]
) -> None:
    kernel = start_kernel()
    kernel.run("%load_ext jupyter_slurm")
    table = new_table("From the start of the job to a page that can be used")
    for number in range(RUNS):
        by_hand, ours = _by_hand(cluster, home), _ours(kernel, number)
        if number:  # the first one fills the caches of the disk
            table.add("jupyter lab by hand", by_hand)
            table.add("a session", ours)
    assert table.ratio("a session", "jupyter lab by hand") <= AT_MOST, table.lines()
