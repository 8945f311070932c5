"""Who lets a connection through: known_hosts, the person's keys, and the person."""

from __future__ import annotations

import asyncio

import paramiko

from jupyter_slurm.transport.ssh.chain import Gate
from jupyter_slurm.transport.ssh.known_hosts import host_key_order, verify
from jupyter_slurm.transport.ssh.login import log_in
from jupyter_slurm.transport.ssh.prompts import Asker, Prompter
from jupyter_slurm.transport.ssh.ssh_config import Host

__all__ = ["personal_gate"]


def personal_gate(prompter: Prompter) -> Gate:
    """Return the checks of a connection for the person behind ``prompter``, who is asked in the running event loop."""
    asker = Asker(prompter, asyncio.get_running_loop())

    def check(host: Host, key: paramiko.PKey) -> None:
        shown = getattr(key, "public_blob", None)
        verify(host, shown.key_blob if shown is not None else key.asbytes(), asker.ask)

    return Gate(check, lambda host, transport: log_in(transport, host, asker), host_key_order)
