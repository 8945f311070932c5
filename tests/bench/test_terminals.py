"""Benchmark of the echo of a key in a terminal on the login node, compared with ``ssh -t``."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from typing import Any

import pytest
from screens import Screen
from ssh_hosts.sshd import SshHost

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

KEYS = 200
AT_MOST = 1.5
ROUND_TRIP_MS = 20  # of a usual connection: here the two ends are one machine, where ssh alone takes half a millisecond
PAUSE_S = 0.02  # seconds between two keys, as of a user who types fast


def _echo(screen: Screen, key: bytes) -> float:
    """Return the milliseconds until a typed key is shown."""
    time.sleep(PAUSE_S)
    began = time.perf_counter()
    screen.type(key)
    screen.wait(key)
    return (time.perf_counter() - began) * 1000


@pytest.mark.usefixtures("far")
def test_an_echo_costs_little_more_than_over_ssh(
    start_kernel: Callable[..., Any],
    kernel_env: dict[str, str],
    login_host: SshHost,
    new_table: Callable[[str], Any],
    request: pytest.FixtureRequest,
) -> None:
    """The terminal of the far end echoes the key; each key takes the whole way there and back."""
    start_kernel().run("%load_ext jupyter_slurm\n%slurm sh true")  # the login
    ssh = ["ssh", "-F", str(login_host.ssh_config), "-o", "BatchMode=yes", "-tt", login_host.name]
    rows = {"ssh -t": Screen(kernel_env, command=ssh), "jupyter slurm shell": Screen(kernel_env)}
    table = new_table(f"Echo of a key in a terminal ({request.node.callspec.params['far']})")
    with closing(rows["ssh -t"]), closing(rows["jupyter slurm shell"]):
        for screen in rows.values():
            screen.wait(rb"[#$%>] ")
            screen.ask("echo up; exec cat", rb"up\r\n")
        for number in range(KEYS + 20):
            for row, screen in rows.items():
                took = _echo(screen, b"%d" % (number % 10))
                if number >= 20:
                    table.add(row, took)
        for screen in rows.values():
            screen.type(b"\x04\x04")
            screen.end()
    ours, bare = (ROUND_TRIP_MS + table.median(row) for row in ("jupyter slurm shell", "ssh -t"))
    assert ours / bare <= AT_MOST, table.lines()
