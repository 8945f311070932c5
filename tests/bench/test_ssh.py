"""Benchmark of a command on a machine behind SSH, compared with OpenSSH's shared connection and without SSH."""

from __future__ import annotations

import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ssh_hosts import SshHost

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.transport.base import Context
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 60
COMMAND_AT_MOST = 0.5  # relative to a command over a ControlMaster
SUBMISSION_AT_MOST = 2.0  # relative to sbatch itself

SCRIPT = b"#!/bin/sh\n#SBATCH --hold --job-name=bench\nexec true\n"


@pytest.fixture
def host(ssh_host: Callable[..., SshHost], short_tmp: Path) -> SshHost:
    return ssh_host(name="near", own_network=False, shared=[short_tmp])


@pytest.fixture
def folder(short_tmp: Path, host: SshHost) -> Path:
    path = Path(tempfile.mkdtemp(dir=short_tmp))
    account = pwd.getpwnam(host.user)
    os.chown(path, account.pw_uid, account.pw_gid)
    return path


def _transport(host: SshHost) -> SshTransport:
    key = paramiko.Ed25519Key.from_private_key_file(str(host.key))
    gate = HostVerifier(lambda hop, shown: None, lambda hop, transport: transport.auth_publickey(hop.user, key))
    return SshTransport(ParamikoLink([HostConfig(host.name, host.address, host.port, host.user)], gate))


async def test_a_command_costs_less_than_over_a_control_master(
    host: SshHost, folder: Path, new_table: Callable[[str], Any]
) -> None:
    table = new_table("A command on a machine behind SSH, connection there already")
    transport = _transport(host)
    master = ["ssh", "-F", str(host.ssh_config), "-S", str(folder / "master"), "-o", "BatchMode=yes", host.name]
    with subprocess.Popen([*master, "-M", "-N"], stderr=subprocess.DEVNULL) as shared:
        while not (folder / "master").exists():
            time.sleep(0.01)
        await transport.run(["true"])
        for _ in range(RUNS):
            began = time.perf_counter()
            subprocess.run([*master, "true"], check=True, capture_output=True)
            table.add("ssh -S (ControlMaster)", (time.perf_counter() - began) * 1000)
            began = time.perf_counter()
            await transport.run(["true"])
            table.add("jupyter_slurm", (time.perf_counter() - began) * 1000)
        shared.terminate()
    transport.close()
    assert table.ratio("jupyter_slurm", "ssh -S (ControlMaster)") <= COMMAND_AT_MOST, table.lines()


async def test_a_submission_costs_little_more_than_sbatch(
    host: SshHost, cluster: EmbeddedCluster, folder: Path, new_table: Callable[[str], Any]
) -> None:
    """Job directory, locks, script, sbatch, answer: in one remote execution; compared with sbatch without SSH."""
    table = new_table("A submission from behind SSH, beside sbatch on the login node itself")
    transport = _transport(host)
    (folder / "bench.sh").write_bytes(SCRIPT)
    (folder / "bench.sh").chmod(0o644)
    where = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf)}
    # As the same user: with another user, Python forks before a command starts, which costs more than sbatch.
    bare = {"env": where, "cwd": folder}
    for number in range(RUNS):
        began = time.perf_counter()
        subprocess.run(["sbatch", "--parsable", "bench.sh"], check=True, capture_output=True, **bare)
        table.add("bare sbatch, no SSH", (time.perf_counter() - began) * 1000)
        job = folder / f"job{number}"
        began = time.perf_counter()
        once = await transport.start_detached(
            f"{job}/submit",
            ["sbatch", "--parsable", f"{job}/bench.sh"],
            files={"bench.sh": SCRIPT, "job.json": b"{}" * 500},
            context=Context(cwd=str(folder), env=where),
        )
        done = await once.result(30)
        if number:  # the first run makes the connection
            table.add("start_once over SSH", (time.perf_counter() - began) * 1000)
        assert once.lock is not None
        once.lock.release()
        assert done is not None
        assert int(done.stdout) > 0
    transport.close()
    assert table.ratio("start_once over SSH", "bare sbatch, no SSH") <= SUBMISSION_AT_MOST, table.lines()
