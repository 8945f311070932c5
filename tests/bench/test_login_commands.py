"""Benchmark of a command on the login node from a notebook, compared with OpenSSH's shared connection."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 20
AT_MOST = 0.5
PAUSE_S = 1.0  # seconds between two commands; meanwhile the agent opens the shell of the next one

COMMANDS = """
%load_ext jupyter_slurm

def ours():
    get_ipython().run_line_magic("slurm", "sh true")

def master():
    subprocess.run({master!r}, check=True, capture_output=True)
"""


@pytest.mark.usefixtures("far")
def test_a_command_costs_half_of_one_over_a_control_master(
    start_kernel: Callable[..., Any],
    login_host: SshHost,
    short_tmp: Path,
    new_table: Callable[[str], Any],
    request: pytest.FixtureRequest,
) -> None:
    """The magic as it blocks the kernel: agent, login shell with its start-up files, exit code."""
    path = short_tmp / "bench-master"
    argv = ["ssh", "-F", str(login_host.ssh_config), "-S", str(path), "-o", "BatchMode=yes", login_host.name]
    rows = [("ssh -S (ControlMaster)", "master"), ("%slurm sh", "ours")]
    with subprocess.Popen([*argv, "-M", "-N"], stderr=subprocess.DEVNULL) as shared:
        while not path.exists():
            time.sleep(0.01)
        kernel = start_kernel()
        kernel.prepare(COMMANDS.format(master=[*argv, "true"]))
        for _, work in rows * 3:
            kernel.milliseconds(work)
        table = new_table(f"A command on the login node from a notebook ({request.node.callspec.params['far']})")
        for _ in range(RUNS):
            for row, work in rows:
                time.sleep(PAUSE_S)
                table.add(row, kernel.milliseconds(work))
        shared.terminate()
    assert table.ratio("%slurm sh", "ssh -S (ControlMaster)") <= AT_MOST, table.lines()
