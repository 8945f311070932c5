"""Load on the controller from all parts of jupyter_slurm, counted by the controller itself."""

from __future__ import annotations

import pwd
import re
import subprocess
from collections.abc import Callable

import pytest

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.root, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(600)]

OWN, FOREIGN, SECONDS = 1_000, 20_000, 60
# One query in ten seconds, including both ends of the minute; each is two requests (squeue sorts by partition).
LOOKS, REQUESTS = 7, 14

# Runs as the ordinary user. First jobs and kernels, then a line on stdin, then the measured minute.
PROGRAM = r"""
import os, subprocess, sys, threading, time
from concurrent.futures import ThreadPoolExecutor
from jupyter_client.manager import KernelManager, start_new_kernel
from jupyter_slurm.client.clusters.cluster import current
from jupyter_slurm.client.submission.submit import Submission, submit

OWN, SECONDS = int(sys.argv[1]), float(sys.argv[2])
HELD = "#!/bin/sh\n#SBATCH --hold\n"
WATCH = f'''
import time, jupyter_slurm
end, looks = time.monotonic() + {SECONDS}, 0
while time.monotonic() < end:
    assert len(jupyter_slurm.jobs()) >= {OWN}
    job.refresh()
    looks += 1
    time.sleep(1)
print("looks", looks)
'''

def kernel():
    manager, client = start_new_kernel(kernel_name="python3", startup_timeout=120)
    for cell in ("%load_ext jupyter_slurm", "%%sbatch as=job\n" + HELD):
        reply = client.execute_interactive(cell, timeout=120, output_hook=lambda message: None)
        assert reply["content"]["status"] == "ok", reply["content"].get("traceback")
    return manager, client

def watch(client):
    said = []
    hook = lambda message: said.append(message["content"].get("text", ""))
    reply = client.execute_interactive(WATCH, timeout=SECONDS + 120, output_hook=hook)
    assert reply["content"]["status"] == "ok", reply["content"].get("traceback")
    return int("".join(said).split("looks")[1])

def command_line():
    end, looks = time.monotonic() + SECONDS, 0
    while time.monotonic() < end:
        shown = subprocess.run([sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "jobs"],
                               check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        assert len(shown.stdout.splitlines()) > OWN, shown
        looks += 1
        time.sleep(0.5)
    return looks

cluster = current()
with ThreadPoolExecutor(4) as pool:
    list(pool.map(lambda _: submit(cluster, Submission("script", HELD)), range(OWN)))
kernels = [kernel() for _ in range(3)]
print("ready", flush=True)
sys.stdin.readline()
with ThreadPoolExecutor(4) as pool:
    doing = [pool.submit(watch, client) for _, client in kernels] + [pool.submit(command_line)]
    print("looked", *(one.result() for one in doing), flush=True)
sys.stdin.readline()
for manager, client in kernels:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
cluster.client.stop_agent()
"""


@pytest.fixture
def crowd(new_cluster: Callable[..., EmbeddedCluster], bob: str) -> EmbeddedCluster:
    """Provide a cluster whose controller has twenty thousand jobs of bob, none of which can start."""
    cluster = new_cluster()
    done = subprocess.run(
        ["sbatch", "--parsable", "--hold", "--chdir=/", "--output=/dev/null", f"--array=0-{FOREIGN - 1}", "--wrap=true"],
        env=cluster.env(), user=bob, group=pwd.getpwnam(bob).pw_gid, extra_groups=[], cwd="/",
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    # The controller keeps an array as one record until a command changes some of its tasks.
    cluster.run("scontrol", "update", f"JobId={done.stdout.strip()}_[0-{FOREIGN - 2}]", "Nice=2")
    return cluster


def _counts(cluster: EmbeddedCluster) -> tuple[dict[str, int], dict[str, int]]:
    """Return the number of requests that the controller counted, by type and by user."""
    text = cluster.run("sdiag").stdout
    types, users = text.split("statistics by message type")[1].split("statistics by user")
    row = r"^\s+(\S+)\s+\(\s*\d+\) count:(\d+)"
    return tuple({name: int(count) for name, count in re.findall(row, part, re.M)} for part in (types, users))  # type: ignore[return-value]


def test_a_thousand_jobs_three_kernels_and_the_command_line(
    crowd: EmbeddedCluster,
    alice: str,
    user_python: tuple[list[str], dict[str, str]],
) -> None:
    """Check that all parts use the agent, which queries only the user's jobs, once in ten seconds."""
    (python, env), account = user_python, pwd.getpwnam(alice)
    own = {"HOME": account.pw_dir, "USER": alice, "LOGNAME": alice}
    program = subprocess.Popen(
        [*python, "-c", PROGRAM, str(OWN), str(SECONDS)],
        env={**crowd.env(), **env, **own}, user=alice, group=account.pw_gid, extra_groups=[], cwd=account.pw_dir,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    with program:
        assert program.stdin is not None
        assert program.stdout is not None
        try:
            assert program.stdout.readline() == "ready\n"
            types, users = _counts(crowd)
            assert types["REQUEST_SUBMIT_BATCH_JOB"] == 1 + OWN + 3
            crowd.run("sdiag", "--reset")
            print("go", file=program.stdin, flush=True)
            looked = program.stdout.readline().split()
            types, users = _counts(crowd)
            print("done", file=program.stdin, flush=True)
            assert program.wait(60) == 0
        finally:
            program.kill()
    print(f"{looked[1:]} looks of three kernels and the command line; requests: {types}; users: {users}")
    assert looked[0] == "looked"
    assert all(int(count) >= 10 for count in looked[1:])
    assert "REQUEST_JOB_INFO" not in types
    assert 1 <= types["REQUEST_JOB_USER_INFO"] <= LOOKS, types
    assert users[alice] <= REQUESTS, (types, users)
