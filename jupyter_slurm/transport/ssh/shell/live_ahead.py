"""Commands with live output, whose login shell has often started ahead.

After each command, the same call is made for the next one: the login shell starts, reads its start-up files, and waits
for its text. It serves one command, so that no state passes from one to the next.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Final

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Context, Sink
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.shell.live import LiveCall
from jupyter_slurm.transport.ssh.shell.pool import ShellPool
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["LiveCommands", "text_line"]

_BORROW_TIMEOUT_S: Final = 60.0
_ANSWER_PERIOD_S: Final = 0.01  # seconds after a command until its answer is sent
_QUIET_PERIOD_S: Final = 0.05  # seconds after a command without other work, in favour of its caller
_MAX_WAIT_S: Final = 90.0  # seconds that a shell waits for its text
_SLACK_S: Final = 10.0  # seconds that the host ends a waiting shell later than this client
_MAX_LINE_BYTES: Final = 8 << 10  # bytes of a text as a line: some shells read it byte by byte
_MIN_SHELLS: Final = 3  # shells that a connection must allow: other commands need theirs
_TIMED: Final = re.compile(rb"SECONDS|/proc/|\bps\b", re.IGNORECASE)
"""Words of a text that can show the age of its shell."""


def text_line(text: bytes) -> bytes | None:
    """Return a text as one line for ``printf %b``; None: it is too long, or could show that its shell is older."""
    if _TIMED.search(text):
        return None
    line = re.sub(rb"[^ -\[\]-~]", lambda found: b"\\0%03o" % found[0][0], text) + b"\n"
    return line if len(line) <= _MAX_LINE_BYTES else None


@dataclass
class _Waiting:
    """A call that waits for its text: what was asked, and the shell."""

    asked: tuple[Sequence[str], float, Context | None]
    call: LiveCall
    shell: Shell
    expiry: asyncio.TimerHandle


class LiveCommands:
    """Commands with live output on one connection.

    Parameters
    ----------
    link : PersistentLink
        The connection.
    pool : ShellPool
        Its shells, of which each command takes one.
    """

    def __init__(self, link: PersistentLink, pool: ShellPool) -> None:
        self._link, self._pool = link, pool
        self._waiting: _Waiting | None = None
        self._starting: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(
        self,
        argv: Sequence[str],
        text: bytes,
        sink: Sink,
        *,
        time_limit: float,
        context: Context | None,
        ahead: Sequence[str] | None,
    ) -> int:
        """See :meth:`jupyter_slurm.transport.base.Transport.run_live`."""
        try:
            if ahead is not None and (waiting := self._take((ahead, time_limit, context), text)) is not None:
                try:
                    code = await waiting.call.send_text(waiting.shell, text_line(text) or b"", sink)
                except BaseException:
                    self._pool.return_shell(waiting.shell)
                    raise
                self._run_later(self._return_shell(waiting.shell))
                if code is not None:
                    return code
            call = LiveCall(self._link, argv, time_limit, context)
            async with self._pool.borrow(_BORROW_TIMEOUT_S) as shell:
                return await call.run(shell, text, sink)
        finally:
            self._run_later(self._warm_up())
            if ahead is not None and (self._starting is None or self._starting.done()):
                self._starting = self._run_later(self._start_ahead((ahead, time_limit, context)))

    def close(self) -> None:
        """Stop the preparation of commands. The pool ends their shells."""
        for task in tuple(self._tasks):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                task.cancel()
        self._end()

    def _take(self, asked: tuple[Sequence[str], float, Context | None], text: bytes) -> _Waiting | None:
        """Return the waiting call, if it is what is asked for and still waits."""
        waiting = self._waiting
        if waiting is None or text_line(text) is None:
            return None
        if waiting.asked != asked:
            self._end()
            return None
        self._waiting = None
        waiting.expiry.cancel()
        if not self._pool.take_ahead(waiting.shell):
            return None
        waiting.shell.usable = False  # its standard input is the guard's
        return waiting

    def _end(self) -> None:
        """End the waiting call."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.expiry.cancel()
            self._pool.end_ahead(waiting.shell)

    async def _start_ahead(self, asked: tuple[Sequence[str], float, Context | None]) -> None:
        await asyncio.sleep(_QUIET_PERIOD_S)
        if self._waiting is not None and self._pool.waits_for_text(self._waiting.shell):
            return
        self._end()
        if self._pool.limit < _MIN_SHELLS:
            return
        ahead, time_limit, context = asked
        call = LiveCall(self._link, ahead, time_limit, context)
        with contextlib.suppress(TransportError, paramiko.SSHException, OSError, EOFError):
            async with self._pool.borrow(_BORROW_TIMEOUT_S) as shell:
                if shell.is_starter or shell in self._pool.holding:
                    return
                shell.usable = False
                await call.start_ahead(shell, _MAX_WAIT_S + _SLACK_S)
                shell.usable = shell.waits_for_text = True
            expiry = asyncio.get_running_loop().call_later(_MAX_WAIT_S, self._end)
            self._waiting = _Waiting(asked, call, shell, expiry)

    async def _return_shell(self, shell: Shell) -> None:
        """Close a shell whose command has ended."""
        try:
            await asyncio.sleep(_ANSWER_PERIOD_S)
        finally:
            self._pool.return_shell(shell)

    async def _warm_up(self) -> None:
        """Open a shell for the next command, if none is idle."""
        await asyncio.sleep(_ANSWER_PERIOD_S)
        with contextlib.suppress(TransportError):
            async with self._pool.borrow(_BORROW_TIMEOUT_S):
                pass

    def _run_later(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task
