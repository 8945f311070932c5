"""Command with live output: the last call of a shell, whose streams are passed on as they arrive."""

from __future__ import annotations

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
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["LiveCall", "LiveOutput"]

_BEGIN_TIMEOUT_S: Final = 30.0
_CHUNK_BYTES: Final = 1 << 16
_WAIT_STEPS_S: Final = (0.01, 0.1)  # seconds between two looks at standard error, at first and after a silence
_CLOCK_DELAY_S: Final = 0.1  # seconds after which the clock of a command's time limit starts
_STDERR_TIMEOUT_S: Final = 5.0  # seconds that standard error may end later than standard output
_MAX_SIGN_BYTES: Final = 200  # bytes of a line with a mark
_STALE: Final = "stale"  # remark of a command that did not run


class LiveOutput:
    """One stream of a shell, from which the output of a command is passed on.

    Parameters
    ----------
    mark : bytes
        Begins each sign of the shell: ``MARK!remark`` or ``MARK:value``, and a newline.
    """

    def __init__(self, mark: bytes) -> None:
        self._mark, self._held = mark, b""
        self.has_begun = False
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
                passed += data[:at] if self.has_begun else b""
                self._held = data[at:]
                return passed
            passed += data[:at] if self.has_begun else b""
            end = data.find(b"\n", at)
            if end < 0 and len(data) - at < _MAX_SIGN_BYTES:
                self._held = data[at:]
                return passed
            self._read_sign(data[at + len(self._mark) : end].decode("ascii", "replace"))
            data = data[end + 1 :] if end >= 0 else b""
        return passed

    def _read_sign(self, sign: str) -> None:
        if sign == "!begin":
            self.has_begun = True
        elif sign.startswith("!"):
            self.notes.append(sign[1:])
        else:
            self.value = sign[1:]


def _overlap(data: bytes, mark: bytes) -> int:
    """Return the length of the longest end of the data with which the mark begins."""
    return next((size for size in range(min(len(mark) - 1, len(data)), 0, -1) if data.endswith(mark[:size])), 0)


class LiveCall:
    """A command with live output, as the last call of a shell of the pool.

    Parameters
    ----------
    link : PersistentLink
        The connection.
    argv, time_limit, context
        See :meth:`jupyter_slurm.transport.base.Transport.run_live`.
    """

    def __init__(self, link: PersistentLink, argv: Sequence[str], time_limit: float, context: Context | None) -> None:
        self._link, self._argv, self._time_limit, self._context = link, argv, time_limit, context
        self._mark = secrets.token_hex(16)
        self._out, self._err = LiveOutput(self._mark.encode()), LiveOutput(self._mark.encode())
        self._early = b""

    async def run(self, shell: Shell, text: bytes, sink: Sink) -> int:
        """Run the command in a shell, which ends with it."""
        shell.usable = False  # its standard input is the guard's
        code = await self._follow(shell, self._line(shell, ["js_live"], text), sink)
        assert code is not None
        return code

    async def start_ahead(self, shell: Shell, max_wait: float) -> None:
        """Start the command in a shell, where it waits for its text, at most ``max_wait`` seconds.

        Raises
        ------
        OSError, EOFError, paramiko.SSHException
            The connection broke, or the shell does not answer.
        """
        line = self._line(shell, ["js_ahead", f"{max_wait + self._time_limit:g}"], b"")
        await self._link.threads.call(lambda: self._begin(shell.channel, line))

    async def send_text(self, shell: Shell, line: bytes, sink: Sink) -> int | None:
        """Let a command run that has started ahead; None: it was not run, because a start-up file has changed since."""
        return await self._follow(shell, line, sink)

    def _line(self, shell: Shell, call: Sequence[str], text: bytes) -> bytes:
        words = [*call, self._mark, secrets.token_hex(16), f"{self._time_limit:g}"]
        words += [text.decode("utf-8", "surrogateescape"), *context_words(self._context), *self._argv]
        line = shell_line(words)
        if shell.is_starter:
            return json.dumps([line.decode("utf-8", "surrogateescape")]).encode("ascii") + b"\n"
        return line

    async def _follow(self, shell: Shell, line: bytes, sink: Sink) -> int | None:
        name = self._link.name
        try:
            await self._link.threads.call(lambda: self._pass_on(shell.channel, line, sink))
        except LinkLost as error:
            raise LinkLost(
                f"The connection to {name} broke while the command ran.",
                hint="The login node ends the command when it detects the break, or at its time limit. Check what the "
                "command has done before you repeat it.",
                host=name,
            ) from error
        answer = ShellAnswer(self._out.value or "", tuple(self._out.notes), b"", b"")
        if _STALE in answer.notes:
            return None
        check_started(answer, self._argv, self._context)
        if answer.value == "file":
            raise TransportError(
                f"The text of the command cannot be written to a file on {name}.",
                hint="Check the free space of /tmp and of your home directory on the login node.",
            )
        return number(answer.value)

    def _begin(self, channel: Session, line: bytes) -> None:
        """Send the call, and wait until the shell has read it: some shells read more than a line if it is there."""
        channel.settimeout(_BEGIN_TIMEOUT_S)
        channel.sendall(line)
        while not self._out.has_begun:
            data = channel.recv(_CHUNK_BYTES)
            if not data:
                raise EOFError("the shell has ended")
            self._early += self._out.feed(data)
        if self._out.has_ended:
            raise EOFError("the command cannot be started")

    def _pass_on(self, channel: Session, line: bytes, sink: Sink) -> None:
        """Send the call or its text, and pass the output on until the end. The sink ends the wait by an exception."""
        try:
            channel.settimeout(None)
            channel.sendall(line)
            sink(1, self._early)
            _pass_on(channel, self._out, self._err, sink)
        except (OSError, EOFError, paramiko.SSHException) as error:
            raise LinkLost("The connection broke.") from error


def _pass_on(channel: Session, out: LiveOutput, err: LiveOutput, sink: Sink) -> None:
    quick, slow = _WAIT_STEPS_S
    wait, deadline, clock = quick, float("inf"), time.monotonic() + _CLOCK_DELAY_S
    while _STALE not in out.notes and (not out.has_ended or (not err.has_ended and time.monotonic() < deadline)):
        channel.settimeout(wait)
        if time.monotonic() > clock:
            clock = float("inf")
            with contextlib.suppress(OSError, EOFError, paramiko.SSHException):  # if the shell has ended, so has this
                channel.sendall(b"\n")
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
