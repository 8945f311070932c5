"""Verification of hosts and logins by known_hosts, the user's keys, and the user."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import paramiko

from jupyter_slurm.transport.ssh.auth.login import log_in
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import host_key_order, verify
from jupyter_slurm.transport.ssh.prompts import Asker, Prompter
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier

__all__ = ["login_verification"]


def login_verification(
    prompter: Prompter, opened: Callable[[HostConfig, tuple[str, ...]], None] = lambda host, tried: None
) -> HostVerifier:
    """Return the checks of a connection for the user of ``prompter``, who is asked in the running event loop.

    Parameters
    ----------
    prompter : Prompter
        Asks the user.
    opened : callable, optional
        Called with each host that accepted the login and the attempts, in another thread.
    """
    asker = Asker(prompter, asyncio.get_running_loop())
    accepted: set[tuple[str, bytes]] = set()

    def check(host: HostConfig, key: paramiko.PKey) -> None:
        shown = getattr(key, "public_blob", None)
        verify(host, shown.key_blob if shown is not None else key.asbytes(), asker.ask, accepted)

    def enter(host: HostConfig, transport: paramiko.Transport) -> None:
        opened(host, log_in(transport, host, asker))

    return HostVerifier(check, enter, host_key_order)
