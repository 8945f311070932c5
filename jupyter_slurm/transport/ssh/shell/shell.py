"""A long-lived POSIX shell on the remote host, independent of the login shell and of the output of its start-up files.

The login shell gets one short command that bash, zsh, dash, csh and fish parse alike; it ends in ``/bin/sh -s``. All
further input is lines of calls to functions defined at this shell's start, with values quoted by
:func:`~jupyter_slurm.domain.scripts.script.quote_argv`. Answers end at a random mark on both streams, which no other
program knows.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NoReturn

import paramiko

from jupyter_slurm.errors import CommandTimeout, TransportError
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import AnswerTooLarge, LinkLost, Session
from jupyter_slurm.transport.ssh.shell import starter_program
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, number, shell_line, split_notes
from jupyter_slurm.transport.ssh.shell.functions import FUNCTIONS
from jupyter_slurm.transport.ssh.shell.prelude import PreludeEnd, no_command_hint, prelude_text

__all__ = ["Shell"]

_MAX_NOISE_BYTES: Final = 1 << 20  # bytes that start-up files may print
_MAX_ANSWER_BYTES: Final = 256 << 20  # bytes of an answer: the queue of a large cluster has 50 MB
_WAIT_STEP_S: Final = 0.5  # seconds between two checks of the other stream and the clock
# seconds of silence after which the line is sent again: start-up files may have read it or changed the shell
_SILENCE_S: Final = 3.0
_CHUNK_BYTES: Final = 1 << 18
_MAX_READ_BYTES: Final = 16 * _CHUNK_BYTES  # bytes received between two checks of the clock
_STDERR_TIMEOUT_S: Final = 5.0  # seconds that stderr may end later than stdout, at the start of a shell

# A program that reads this line as a command ends in the new shell, unless it is that shell already. csh has neither
# functions nor `test -n "$unset"`, fish no `$?`; all have `||`, single quotes and printenv(1). A quoted word is never
# an alias. A quoted `exec` would not be csh's builtin: if it is an alias, the following command runs as a child.
_SHELL_GUARD: Final = (
    "'printenv' JUPYTER_SLURM_SHELL >/dev/null || {how} JUPYTER_SLURM_SHELL={{token}} /bin/sh -c '{{inner}}'"
)
_START_LINE: Final = "; ".join(_SHELL_GUARD.format(how=how) for how in ("exec env", "'env'"))
_PLAIN: Final = "unset -f echo; echo {ready}; exec /bin/sh -s"
# Some PATHs are set only by a login shell; csh takes no -c after -l.
_LOGIN: Final = (
    'case "$SHELL" in'
    ' *csh) exec "$SHELL" -c "if (-r /etc/csh.login) source /etc/csh.login; if (-r ~/.login) source ~/.login;'
    ' echo {ready}; exec /bin/sh -s; /bin/sh -s" ;;'
    ' *) exec "$SHELL" -l -c "echo {ready}; exec /bin/sh -s" ;;'
    " esac"
)


def _read_available(receive: Callable[[int], bytes]) -> bytes | None:
    """Return the received bytes, empty at the end, None if nothing came yet."""
    try:
        return receive(_CHUNK_BYTES)
    except socket.timeout:  # noqa: UP041 - paramiko's name for it
        return None


@dataclass(eq=False)
class Shell:
    """A shell over a channel, for blocking calls from one thread at a time.

    Attributes
    ----------
    pid, group : int
        Its process and process group on the remote host; 0 before :meth:`start`.
    token : str
        The mark in its remote environment (``JUPYTER_SLURM_SHELL`` in ``/proc/PID/environ``).
    usable : bool
        Whether the shell can take another call.
    is_starter : bool
        Whether a Python handles its requests.
    waits_for_text : bool
        Whether its last call has started ahead, and takes only the text of a command.
    patience, took : float
        Seconds allowed for start-up files, and seconds that they took, reported to the first user of the shell.
    prelude_end : PreludeEnd or None
        How the prelude ended; None before :meth:`start`.
    cause : TransportError or None
        Why the shell does not start, if another session has shown it; the shell was then closed.
    """

    channel: Session
    prelude: str = ""
    login: bool = False
    startup_timeout: float = 120.0
    generation: int = 0
    startup_duration: float = 0.0
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    pid: int = 0
    group: int = 0
    usable: bool = True
    is_abandoned: bool = False
    prelude_end: PreludeEnd | None = None
    cause: TransportError | None = None
    is_starter: bool = False
    waits_for_text: bool = False

    def __post_init__(self) -> None:
        self._mark = secrets.token_hex(16).encode()
        self._out, self._err = bytearray(), bytearray()
        self._starts = True
        self._is_used = False

    def start(self) -> None:
        """Start the shell, wait for its start-up files, and define the functions.

        Raises
        ------
        TransportError
            The shell does not start in time.
        LinkLost
            The connection broke.
        """
        ready = secrets.token_hex(16)
        inner = (_LOGIN if self.login else _PLAIN).format(ready=ready)
        start = _START_LINE.format(token=self.token, inner=inner)
        begun = time.monotonic()
        deadline = begun + self.startup_timeout
        self.channel.settimeout(_WAIT_STEP_S)
        try:
            self.channel.exec_command(start)
        except paramiko.ChannelException:
            raise  # some carriers report a session over the limit only at this point
        except (paramiko.SSHException, OSError, EOFError):
            raise self._ended("was refused") from None
        self._await_ready(ready.encode() + b"\n", start.encode() + b"\n", deadline)
        setup = self._functions()
        setup += f"printf '%s?\\n' \"$js_mark\" >&2\n{prelude_text(self.prelude)}"
        setup += "js_ready; js_end $$.$js_group.$js_prelude\n"
        self._send(setup.encode("utf-8", "surrogateescape"))
        try:
            answer = self._collect(deadline, "the shell")
        except LinkLost:
            raise self._ended("or the cluster's prelude ended the shell") from None
        pid, group, code = (number(said) for said in (*answer.value.split("."), "", "")[:3])
        self.pid, self.group, self.prelude_end = (
            pid,
            group,
            PreludeEnd.from_shell(code, self._startup_output(answer.stderr)),
        )
        self._starts, self.startup_duration = False, time.monotonic() - begun

    def _functions(self) -> str:
        return f"unset js_mark; js_mark={self._mark.decode()}{FUNCTIONS}"

    def start_python(self) -> None:
        """Let a Python on the remote host, if any, handle this shell's requests; it supports starts and locks.

        Raises
        ------
        CommandTimeout, LinkLost
            The shell is no longer usable.
        """
        if self._is_used:
            return
        self._is_used = True
        program = starter_program.program()
        deadline = time.monotonic() + self.startup_timeout
        mark = secrets.token_hex(8)
        self._discard()
        self._send(shell_line(["js_become", starter_program.loader(mark, len(program))]))
        while f"{mark}\n".encode() not in self._out:
            if self._mark + b":" in self._out:
                self._collect(deadline, "the shell")
                return  # no Python, or it is too old
            self._wait_turn(deadline, "Python", None)
        self._out.clear()
        told = json.dumps({"mark": self._mark.decode(), "shell": f"{self._functions()}\njs_ready\n"})
        self._send(program + told.encode("ascii") + b"\n")
        self.is_starter = self._collect(deadline, "Python").value == "python"

    def call(
        self, arguments: Sequence[str], *, timeout: float | None, stdin: bytes | memoryview | None = None
    ) -> ShellAnswer:
        """Call a function of the shell; ``js_feed`` reads ``stdin`` to its end, and is the last call.

        Raises
        ------
        CommandTimeout, LinkLost
            No answer arrived. The shell is no longer usable.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        self._discard()
        self._send(self._request(arguments))
        if stdin is not None:
            self._await_command_start(deadline)
            self._feed(memoryview(stdin), deadline)
            if arguments[0] == "js_feed":
                self.usable = False
                self._end_input()
        answer = self._collect(deadline, "the command", timeout)
        if self.is_starter and answer.value.startswith("ended"):
            self._lose_starter()
        return answer

    def close(self) -> None:
        """Close the shell by ending its standard input."""
        self.usable = False
        self.channel.close()

    # Internal ----------------------------------------------------------------------------------------------------

    def _request(self, arguments: Sequence[str]) -> bytes:
        if not self.is_starter:
            return shell_line(arguments)
        known = (
            arguments
            if arguments[0] in starter_program.BUILT_IN_FUNCTIONS
            else [shell_line(arguments).decode("utf-8", "surrogateescape")]
        )
        return json.dumps(list(known)).encode("ascii") + b"\n"

    def _send(self, data: bytes) -> None:
        with self._mapped_errors():
            self.channel.sendall(data)

    def _await_ready(self, ready: bytes, second_mark: bytes, deadline: float) -> None:
        nudge = time.monotonic() + _SILENCE_S
        while ready not in self._out:
            if not self._receive():
                raise self._ended("ended")
            self._limit_size()
            if time.monotonic() > deadline:
                self.usable = False
                raise self._silent(f"did not start within {self.startup_timeout:g} s,")
            if time.monotonic() > nudge:
                nudge = deadline
                self._send(second_mark)
        # If the line was sent again, its answer may come twice; the second run has no effect.
        del self._out[: self._out.index(ready) + len(ready)]

    def _limit_size(self) -> None:
        if self._starts and len(self._out) + len(self._err) > _MAX_NOISE_BYTES:
            self.usable = False
            raise self._silent("printed without end")
        if len(self._out) + len(self._err) > _MAX_ANSWER_BYTES:
            self.usable = False
            self._out.clear()
            self._err.clear()
            raise AnswerTooLarge(
                f"The answer was not read, because it is larger than {_MAX_ANSWER_BYTES >> 20} MiB.",
                hint="Run the command in a terminal on the login node to see what it prints.",
            )

    def _ended(self, subject: str) -> TransportError:
        """Return why a shell ended before it began: the connection ends first, or a moment later."""
        self.usable = False
        if self.cause is not None:
            return self.cause
        transport = self.channel.get_transport()
        transport.join(1.0)
        return self._silent(subject) if transport.is_active() else LinkLost("The connection broke.")

    def _silent(self, subject: str) -> TransportError:
        said = next(
            (
                text
                for each in (self._startup_output(self._err), self._out)
                if (text := printable(bytes(each[-400:])).strip())
            ),
            "",
        )
        return TransportError(
            f"The login shell {subject} before it ran a command" + (f": {said}" if said else "."),
            hint=no_command_hint(said),
        )

    def _startup_output(self, err: bytes | bytearray) -> bytes:
        """Return the output of the prelude, or of start-up files if the prelude has not begun."""
        return bytes(err).rpartition(self._mark + b"?\n")[2]

    def _receive(self) -> bool:
        """Receive available data, after a while of waiting; False: the stream has ended."""
        with self._mapped_errors():
            other = self.channel.recv_stderr_ready()  # both streams share one window: the other stream must not fill it
            data = _read_available(self.channel.recv) if not other or self.channel.recv_ready() else None
            self._out += data or b""
            for _ in range(_MAX_READ_BYTES // _CHUNK_BYTES):
                if not self.channel.recv_stderr_ready():
                    break
                self._err += self.channel.recv_stderr(_CHUNK_BYTES)
        return data != b""

    @contextlib.contextmanager
    def _mapped_errors(self) -> Iterator[None]:
        """Map paramiko's exceptions when it cannot acknowledge received data."""
        try:
            yield
        except (OSError, EOFError, paramiko.SSHException) as error:
            self.usable = False
            raise LinkLost("The connection broke.") from error

    def _discard(self) -> None:
        """Drop the output that background programs printed meanwhile."""
        with self._mapped_errors():
            for _ in range(_MAX_READ_BYTES // _CHUNK_BYTES):
                if self.channel.recv_ready():
                    self._out += self.channel.recv(_CHUNK_BYTES)
                if self.channel.recv_stderr_ready():
                    self.channel.recv_stderr(_CHUNK_BYTES)
        has_ended = self.is_starter and self._mark in self._out
        self._out.clear()
        self._err.clear()
        if has_ended:
            self._lose_starter()

    def _lose_starter(self) -> NoReturn:
        """Report that the Python has ended, whose state the shell does not have."""
        self.usable = False
        raise LinkLost("The remote process that starts commands has ended.")

    def _await_command_start(self, deadline: float | None) -> None:
        """Wait until the shell has passed its standard input to the command."""
        mark = self._mark + b"!begin\n"
        while mark not in self._out:
            self._wait_turn(deadline, "the command", None)
        del self._out[: self._out.index(mark) + len(mark)]

    def _feed(self, remaining: memoryview, deadline: float | None) -> None:
        """Send a command its input while the command reads it."""
        while remaining and self._mark + b":" not in self._out[-_CHUNK_BYTES:]:
            try:
                remaining = remaining[self.channel.send(remaining[: _CHUNK_BYTES >> 2]) :]
            except socket.timeout:  # noqa: UP041 - paramiko's name for it
                pass
            except (OSError, EOFError, paramiko.SSHException):
                return  # the wait for the answer reports the cause
            if self.channel.recv_ready() or self.channel.recv_stderr_ready():
                self._receive()
            if self.is_abandoned or (deadline is not None and time.monotonic() > deadline):
                return
        if remaining:
            self.usable = False  # unread input would be taken for the next call

    def _end_input(self) -> None:
        with contextlib.suppress(OSError, EOFError, paramiko.SSHException):
            self.channel.shutdown_write()

    def _limit_time(self, deadline: float | None, client: str, timeout: float | None) -> None:
        if self.is_abandoned or (deadline is not None and time.monotonic() > deadline):
            self.usable = False
            said = f" within {timeout:g} s" if timeout is not None else ""
            raise CommandTimeout(
                f"{client} gave no answer{said}.", hint="Check the load of the login node, and try again later."
            )

    def _wait_turn(self, deadline: float | None, client: str, timeout: float | None) -> None:
        self._limit_time(deadline, client, timeout)
        self._limit_size()
        if not self._receive():
            self.usable = False
            raise LinkLost("The connection broke while a command ran.")

    def _collect(self, deadline: float | None, client: str, timeout: float | None = None) -> ShellAnswer:
        mark = self._mark + b":"
        seen = 0
        while (at := self._out.find(mark, seen)) < 0 or self._out.find(b"\n", at) < 0:
            seen = max(0, len(self._out) - len(mark)) if at < 0 else at
            self._wait_turn(deadline, client, timeout)
        end = self._out.index(b"\n", at)
        value = bytes(self._out[at + len(mark) : end]).decode("ascii", "replace")
        self._await_errors(mark + b"\n", deadline, client, timeout)
        out, notes = split_notes(bytes(self._out[:at]), self._mark + b"!")
        err = bytes(self._err[: self._err.index(mark)])
        self._out.clear()
        self._err.clear()
        return ShellAnswer(value, notes, out, err, self.prelude_end)

    def _await_errors(self, mark: bytes, deadline: float | None, client: str, timeout: float | None) -> None:
        soon, seen = time.monotonic() + _STDERR_TIMEOUT_S, 0
        while self._err.find(mark, seen) < 0:
            seen = max(0, len(self._err) - len(mark))
            self._limit_size()
            if self._starts and (mark in self._out or time.monotonic() > soon):
                self.usable = False
                raise TransportError(
                    "The start-up files of the login shell redirect its error output.",
                    hint="Change `exec 2>…` in your start-up files (.bashrc, .zshenv, .cshrc, config.fish), or in "
                    "`prelude` of the profile, so that only interactive shells run it.",
                )
            self._limit_time(deadline, client, timeout)
            with self._mapped_errors():
                data = _read_available(self.channel.recv_stderr)
            if data is None:
                if self._starts and self.channel.recv_ready():
                    self._out += self.channel.recv(_CHUNK_BYTES)
                continue
            if not data:
                self.usable = False
                raise LinkLost("The connection broke while a command ran.")
            self._err += data
