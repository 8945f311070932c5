"""Command with live output: the last call of a shell, whose streams are passed on as they arrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import secrets
import socket
import time
from collections.abc import Sequence
from typing import Final

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Context, Sink
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, check_started, context_words, number, shell_line
from jupyter_slurm.transport.ssh.shell.pool import ShellPool
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["LiveOutput", "run_live", "warm_up"]

_BORROW_TIMEOUT_S: Final = 60.0
_CHUNK_BYTES: Final = 1 << 16
_WAIT_STEPS_S: Final = (0.01, 0.1)  # seconds between two looks at standard error, at first and after a silence
_STDERR_TIMEOUT_S: Final = 5.0  # seconds that standard error may end later than standard output
_MAX_SIGN_BYTES: Final = 200  # bytes of a line with a mark


class LiveOutput:
    """One stream of a shell, from which the output of a command is passed on.

    Parameters
    ----------
    mark : bytes
        Begins each sign of the shell: ``MARK!remark`` or ``MARK:value``, and a newline.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark, self._held = mark, b""
        self._has_begun = False
        self.notes: list[str] = []
        self.value: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the sign of the end has arrived."""
        return self.value is not None

    def feed(self, data: bytes) -> bytes:
        """Return the bytes of the command in new data; a possible beginning of a sign is kept for the next call."""
        data, passed = self._held + data, b""
        while self.value is None:
            at = data.find(self._mark)
            if at < 0:
                at = len(data) - _overlap(data, self._mark)
                passed += data[:at] if self._has_begun else b""
                self._held = data[at:]
                return passed
            passed += data[:at] if self._has_begun else b""
            end = data.find(b"\n", at)
            if end < 0 and len(data) - at < _MAX_SIGN_BYTES:
                self._held = data[at:]
                return passed
            self._read_sign(data[at + len(self._mark) : end].decode("ascii", "replace"))
            data = data[end + 1 :] if end >= 0 else b""
        return passed

    def _read_sign(self, sign: str) -> None:
        if sign == "!begin":
            self._has_begun = True
        elif sign.startswith("!"):
            self.notes.append(sign[1:])
        else:
            self.value = sign[1:]


def _overlap(data: bytes, mark: bytes) -> int:
    """Return the length of the longest end of the data with which the mark begins."""
    return next((size for size in range(min(len(mark) - 1, len(data)), 0, -1) if data.endswith(mark[:size])), 0)


async def run_live(
    link: PersistentLink,
    pool: ShellPool,
    argv: Sequence[str],
    text: bytes,
    sink: Sink,
    *,
    context: Context | None,
    time_limit: float,
) -> int:
    """Run a command in a shell of the pool, which ends with it; see :meth:`Transport.run_live`."""
    mark = secrets.token_hex(16)
    words = ["js_live", mark, secrets.token_hex(16), f"{time_limit:g}", text.decode("utf-8", "surrogateescape")]
    line = shell_line([*words, *context_words(context), *argv])
    async with pool.borrow(_BORROW_TIMEOUT_S) as shell:
        shell.usable = False  # its standard input is the guard's
        try:
            answer = await link.threads.call(lambda: _follow(shell, line, mark.encode(), sink))
        except LinkLost as error:
            raise LinkLost(
                f"The connection to {link.name} broke while the command ran.",
                hint="The login node ends the command when it detects the break, or at its time limit. Check what the "
                "command has done before you repeat it.",
                host=link.name,
            ) from error
    check_started(answer, argv, context)
    if answer.value == "file":
        raise TransportError(
            f"The text of the command cannot be written to a file on {link.name}.",
            hint="Check the free space of /tmp and of your home directory on the login node.",
        )
    return number(answer.value)


def _follow(shell: Shell, line: bytes, mark: bytes, sink: Sink) -> ShellAnswer:
    """Send the call, and pass the output on until the end. The sink ends the wait by an exception."""
    out, err = LiveOutput(mark), LiveOutput(mark)
    channel = shell.channel
    try:
        channel.settimeout(None)
        request = json.dumps([line.decode("utf-8", "surrogateescape")]).encode("ascii") + b"\n"
        channel.sendall(request if shell.is_starter else line)
        _pass_on(channel, out, err, sink)
    except (OSError, EOFError, paramiko.SSHException) as error:
        raise LinkLost("The connection broke.") from error
    return ShellAnswer(out.value or "", tuple(out.notes), b"", b"")


def _pass_on(channel: Session, out: LiveOutput, err: LiveOutput, sink: Sink) -> None:
    quick, slow = _WAIT_STEPS_S
    wait, deadline = quick, float("inf")
    while not out.has_ended or (not err.has_ended and time.monotonic() < deadline):
        channel.settimeout(wait)
        data = said = b""
        has_errors = channel.recv_stderr_ready()
        if not out.has_ended and (not has_errors or channel.recv_ready()):
            with contextlib.suppress(socket.timeout):
                data = channel.recv(_CHUNK_BYTES)
                if not data:
                    raise EOFError("the shell has ended")
                sink(1, out.feed(data))
        if out.has_ended:
            deadline = min(deadline, time.monotonic() + _STDERR_TIMEOUT_S)
        if has_errors or out.has_ended:
            with contextlib.suppress(socket.timeout):
                said = channel.recv_stderr(_CHUNK_BYTES)
                if not said and out.has_ended:
                    return
                sink(2, err.feed(said))
        wait = quick if data or said else min(slow, wait * 2)


async def warm_up(pool: ShellPool) -> None:
    """Open a shell for the next command, if none is idle."""
    with contextlib.suppress(TransportError, asyncio.CancelledError):
        async with pool.borrow(_BORROW_TIMEOUT_S):
            pass
