"""Check of start-up files that read a session's input to its end, or replace the login shell by a program that does.

``exec fish`` in ``~/.bashrc`` is one: fish reads all its input before it runs the first line, and the input of a
long-lived shell has no end. From outside, this looks like start-up files that are slow.
"""

from __future__ import annotations

import contextlib
import re
import secrets
import socket
import time
from typing import Final

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.protocols import Session
from jupyter_slurm.transport.ssh.shell.login_shell_check import only_in_terminals

__all__ = ["check_input"]

_TIMEOUT_S: Final = 15.0  # seconds
_MAX_OUTPUT_BYTES: Final = 1 << 20  # bytes


async def check_input(link: PersistentLink) -> TransportError | None:
    """Return the error for such start-up files; None if a session with a short input runs no command either."""
    try:
        with contextlib.closing(await link.open_session(_TIMEOUT_S)) as channel:
            return await link.threads.call(lambda: _check(channel, link.name))
    except (TransportError, paramiko.SSHException, OSError, EOFError):
        return None  # the server may allow no second session


def _check(channel: Session, host: str) -> TransportError | None:
    command, line = (f"js{secrets.token_hex(16)}" for _ in range(2))
    channel.exec_command(f"echo {command} $SHELL {command}")
    channel.sendall(f"echo {line} $SHELL {line} $FISH_VERSION {line}\n".encode())
    channel.shutdown_write()
    # At the beginning of a line: `cat` repeats the input.
    replaced, has_read = (re.compile(f"^{mark} (.*?) {mark}( .+)?", re.MULTILINE) for mark in (line, command))
    out = _output(channel, replaced, has_read)
    if found := replaced.search(out):
        is_fish = (found[2] or "").split()[:-1] != []
        name = "fish" if is_fish else "another program"
        how, what = f"replace it with {name}, which reads all its input before it runs a command", "`exec"
        what += " fish`" if is_fish else "`"
    elif found := has_read.search(out):
        how, what = "read all its input", "commands that read input"
    else:
        return None
    return TransportError(
        f"The login shell on {host} runs no command: its start-up files {how}.",
        hint=only_in_terminals(found[1].strip(), what),
    )


def _output(channel: Session, *wanted: re.Pattern[str]) -> str:
    """Return the output until it has a line of one of these forms."""
    out, deadline = b"", time.monotonic() + _TIMEOUT_S
    while len(out) < _MAX_OUTPUT_BYTES and not any(one.search(out.decode("utf-8", "replace")) for one in wanted):
        channel.settimeout(max(0.01, deadline - time.monotonic()))
        try:
            data = channel.recv(1 << 16)
        except socket.timeout:  # noqa: UP041 - paramiko's name for it
            break
        if not data or time.monotonic() > deadline:
            break
        out += data
    return out.decode("utf-8", "replace")
