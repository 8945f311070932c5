"""Programs at the remote end of tunnels, and forwarders."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from ssh_hosts import SshHost
from ssh_hosts.sockets import ECHO

from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_port


@pytest.fixture
def new_forwarder() -> Iterator[Callable[..., Forwarder]]:
    """Return a factory: ``new_forwarder(dial, ports=…)``, closed after the test."""
    made: list[Forwarder] = []

    def make(dial: Callable[[], Stream], ports: Any = range(18000, 19000), **options: Any) -> Forwarder:
        made.append(Forwarder(listen_on_port(ports, among="those of the test"), dial, **options))
        return made[-1]

    yield make
    for forwarder in made:
        forwarder.close()


@pytest.fixture(scope="session")
def serve() -> Iterator[Callable[..., int]]:
    """Return a factory: ``serve(host, code, *args)`` runs a program of the host's user and gives the printed port."""
    running: list[subprocess.Popen[str]] = []

    def start(host: SshHost, code: str = ECHO, *args: str, user: str | None = None) -> int:
        argv = host.command("/usr/bin/python3", "-c", code, *(args or ("0",)), user=user or host.user)
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert running[-1].stdout is not None
        return int(running[-1].stdout.readline())

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)  # a child of the command that has entered the host
        process.communicate()
