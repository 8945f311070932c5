"""SSH transport, used on the user's computer: commands and files of a remote host."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import secrets
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from functools import partial
from typing import Any

import paramiko

from jupyter_slurm.domain.options.commands import is_repeatable
from jupyter_slurm.errors import CommandTimeout, TransportError
from jupyter_slurm.transport.base import Completed, Context, FileStat, Route, Sent, Sink, Stream
from jupyter_slurm.transport.ssh.forwarding.dial import dial, open_command
from jupyter_slurm.transport.ssh.forwarding.jump_host import HopPorts
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.protocols import AnswerTooLarge, LinkLost
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, check_started, context_words, number, run_plain
from jupyter_slurm.transport.ssh.shell.detached import (
    LARGE_BYTES,
    RemoteDetachedRun,
    RemoteDirectoryLock,
    detached_arguments,
    draft_path,
    exit_code,
    failed_start,
    started,
)
from jupyter_slurm.transport.ssh.shell.files import RemoteFiles, failure
from jupyter_slurm.transport.ssh.shell.live_ahead import LiveCommands
from jupyter_slurm.transport.ssh.shell.pool import ShellPool
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["SshTransport"]

_CONNECT_TIMEOUT_S = 60.0  # seconds that a file operation waits for a connection
_KILL_TIMEOUT_S = 20.0
_MAX_ATTEMPTS = 20
_BREAK_NOTICE_S = 0.05  # seconds until a break of a connection is noticed


class SshTransport:
    """SSH transport over a link that never blocks the event loop.

    Parameters
    ----------
    link : PersistentLink
        The connection, closed with the transport.
    prelude : str
        Commands of a profile for the remote shell, such as ``module load slurm``; run once in each shell.
    login_shell : bool
        Whether variables such as PATH are those of a login shell.
    timeout : float
        Seconds that the start-up files of the login shell may take.
    slow : callable, optional
        Notifies the user that the start-up files are slow; cancelled when they are done.
    shells : int
        Number of commands that may run at once; fewer if the server allows fewer sessions.
    """

    def __init__(
        self,
        link: PersistentLink,
        *,
        prelude: str = "",
        login_shell: bool = False,
        timeout: float = 120.0,
        slow: Callable[[], Awaitable[object]] | None = None,
        shells: int = 4,
    ) -> None:
        self._link = link
        self._new_shell = lambda session: Shell(session, prelude, login_shell, timeout)
        self._pool = ShellPool(link, self._new_shell, shells, slow)
        self._live = LiveCommands(link, self._pool)
        self._files = RemoteFiles(self._call_repeatable)
        self._tasks: set[asyncio.Task[None]] = set()

    def close(self, *, keep: bool = False) -> None:
        """Close the connection; only detached commands go on. With ``keep``, a login outside this process stays."""
        for task in tuple(self._tasks):
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the task with it
                task.cancel()
        self._live.close()
        self._pool.close()
        self._link.close(keep=keep)

    async def run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes = b"",
        context: Context | None = None,
        timeout: float | None = 60.0,
    ) -> Completed:
        """See :class:`jupyter_slurm.transport.base.Transport`.

        After a break, a read-only command is repeated. For any other command it is unknown whether it ran.
        """
        words = ["js_feed" if stdin else "js_run", *context_words(context), *argv]
        try:
            answer = await self._call(words, timeout=timeout, stdin=stdin or None, may_repeat=is_repeatable(argv))
        except CommandTimeout as error:
            raise CommandTimeout(
                f"{argv[0]} gave no answer within {timeout:g} s.",
                hint="Check whether it ran before you repeat it. The login node may be overloaded.",
                argv=list(argv),
            ) from error
        except AnswerTooLarge as error:
            raise AnswerTooLarge(f"{argv[0]}: {error.message}", hint=error.hint, argv=list(argv)) from error
        except LinkLost as error:
            hint = error.hint
            if hint == LinkLost.usual_hint and not is_repeatable(argv):
                hint = "It is not known whether the command ran. Check before you repeat it."
            raise LinkLost(f"{argv[0]}: {error.message}", hint=hint, argv=list(argv)) from error
        check_started(answer, argv, context)
        return Completed(exit_code(answer.value), answer.stdout, answer.stderr)

    async def run_live(
        self,
        argv: Sequence[str],
        text: bytes,
        sink: Sink,
        *,
        time_limit: float,
        context: Context | None = None,
        ahead: Sequence[str] | None = None,
    ) -> int:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._live.run(argv, text, sink, time_limit=time_limit, context=context, ahead=ahead)

    async def start_detached(
        self,
        prefix: str,
        argv: Sequence[str],
        *,
        files: Mapping[str, bytes] | None = None,
        context: Context | None = None,
        sent: Sent | None = None,
    ) -> RemoteDetachedRun:
        """See :class:`jupyter_slurm.transport.base.Transport`.

        A start is one remote execution. A start whose answer is lost is repeated under the same token. The remote host
        never starts a command twice, and recognises by the token whether the first start came from this caller.
        """
        token, drafts = secrets.token_hex(16), list[str]()
        large = {name: draft_path(prefix) for name, data in (files or {}).items() if len(data) > LARGE_BYTES}
        # First, and in pieces: a shell would have to hold each file in one line.
        await self._files.write_new_files({path: (files or {})[name] for name, path in large.items()}, sent)
        try:
            once = await self._start_detached(prefix, argv, token, drafts, files, large, context)
        except (LinkLost, asyncio.CancelledError):  # a start may still be at work; housekeeping removes its remains
            raise
        except BaseException:
            if large:
                self._run_later(self._tidy([*large.values()]))
            raise
        if large or drafts[1:]:
            self._run_later(self._tidy([*large.values(), *drafts[:-1]]))
        return once

    async def _start_detached(
        self,
        prefix: str,
        argv: Sequence[str],
        token: str,
        drafts: list[str],
        files: Mapping[str, bytes] | None,
        large: Mapping[str, str],
        context: Context | None,
    ) -> RemoteDetachedRun:
        deadline, was_sent, was_lost = time.monotonic() + _CONNECT_TIMEOUT_S, False, False
        while True:
            wait = 0.05 if self._pool.has_waiters else 1.0
            drafts.append(draft_path(prefix))
            words = detached_arguments(prefix, token, drafts[-1], wait, files, large, [*context_words(context), *argv])
            try:
                async with self._pool.borrow(_remaining_time(deadline), for_locks=True) as shell:
                    was_sent = True
                    answer = await self._in_shell(shell, words, _remaining_time(deadline, shell), starts=True)
                    check_started(answer, argv, context)
                    holder, done = started(answer, prefix)
                    hold = self._take_lock(shell, holder)
                    break
            except (FileNotFoundError, TransportError) as error:
                if not isinstance(error, LinkLost) or self._is_over(deadline):
                    raise failed_start(error, prefix, was_sent=was_sent, was_lost=was_lost) from error.__cause__
                was_lost = was_sent
                await asyncio.sleep(_BREAK_NOTICE_S)
        if files is not None and hold is None:  # the answer was lost, and the lock ended with that connection
            with contextlib.suppress(FileNotFoundError):
                hold = await self.acquire_lock(f"{prefix.rpartition('/')[0]}/{next(iter(files))}")
        return RemoteDetachedRun(prefix, hold, done, partial(self._wait_for, prefix))

    async def _wait_for(self, prefix: str, seconds: float, patience: float | None) -> Completed | None:
        """Return the result of a detached run if it ends within some seconds, else None."""
        if self._pool.has_waiters:
            seconds = 0.05
        words = ["js_wait", prefix, f"{seconds:g}"]
        try:
            answer = await self._call(words, timeout=max(patience or 0, _CONNECT_TIMEOUT_S), may_repeat=True)
        except LinkLost:
            return None
        return started(answer, prefix)[1]

    async def read(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._files.read(path, offset, limit)

    async def read_owned(self, path: str, offset: int = 0, limit: int | None = None) -> bytes:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._files.read(path, offset, limit, function="js_read_owned")

    async def write(self, path: str, data: bytes, mode: int = 0o600) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        await self._files.write(path, data, mode)

    async def stat(self, path: str) -> FileStat:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._files.stat(path)

    async def stat_all(self, paths: Sequence[str]) -> dict[str, FileStat]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._files.stat_all(paths)

    async def make_dir(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        await self._files.make_dir(path)

    async def list_dir(self, path: str) -> list[str]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return await self._files.list_dir(path)

    async def remove(self, path: str) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        await self._files.remove(path)

    @property
    def generation(self) -> int:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return self._link.generation

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """See :class:`jupyter_slurm.transport.base.Transport`; waits for a link that is down."""
        return dial(self._link, host, port, timeout)

    def hops(self) -> Mapping[str, Callable[[], Route]]:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return {name: partial(HopPorts, self._link, number) for number, name in enumerate(self._link.hosts[:-1])}

    def pipe(self, argv: Sequence[str], timeout: float, *, env: Mapping[str, str] | None = None) -> Stream:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        return open_command(self._link, self._new_shell, argv, timeout, env, self._pool)

    def when_full(self, give_up: Callable[[], None]) -> None:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        self._pool.idle_streams.append(give_up)

    async def _tidy(self, drafts: Sequence[str]) -> None:
        """Remove the remains of interrupted starts. A start still at work finds its directory taken."""
        with contextlib.suppress(TransportError):
            await self._call(["js_do", "rm", "-rf", "--", *drafts], timeout=_CONNECT_TIMEOUT_S, may_repeat=True)

    async def acquire_lock(self, path: str) -> RemoteDirectoryLock | None:
        """See :class:`jupyter_slurm.transport.base.Transport`; a broken connection also ends the lock."""
        deadline = time.monotonic() + _CONNECT_TIMEOUT_S
        while True:
            try:
                async with self._pool.borrow(_remaining_time(deadline), for_locks=True) as shell:
                    answer = await self._in_shell(
                        shell, ["js_hold", path], _remaining_time(deadline, shell), starts=True
                    )
                    check_started(answer, ["flock"], None)
                    code, _, process = answer.value.partition(" ")
                    if code == "1":
                        return None
                    if code != "0":
                        raise failure(answer, "lock", path)
                    return self._take_lock(shell, number(process))
            except LinkLost:
                if self._is_over(deadline):
                    raise
                await asyncio.sleep(_BREAK_NOTICE_S)

    def _take_lock(self, shell: Shell, process: int | None) -> RemoteDirectoryLock | None:
        if process is None:
            return None
        self._pool.holding[shell] = self._pool.holding.get(shell, 0) + 1
        loop = asyncio.get_running_loop()

        def free(shell: Shell, process: int) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and the transport with it
                loop.call_soon_threadsafe(lambda: self._run_later(self._free(shell, process)))

        return RemoteDirectoryLock(shell, process, free, self._pool.is_alive)

    async def _free(self, shell: Shell, process: int) -> None:
        with contextlib.suppress(TransportError):
            async with self._pool.borrow(None, only=shell):
                self._pool.holding[shell] -= 1
                if not self._pool.holding[shell]:
                    del self._pool.holding[shell]
                await self._in_shell(shell, ["js_free", str(process)], _CONNECT_TIMEOUT_S)

    def _run_later(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _call_repeatable(self, arguments: Sequence[str], stdin: memoryview | None = None) -> ShellAnswer:
        """Call a function that may run twice; a transfer has no time limit."""
        timeout = _CONNECT_TIMEOUT_S if stdin is None else None
        return await self._call(arguments, timeout=timeout, stdin=stdin, may_repeat=True)

    async def _call(
        self,
        arguments: Sequence[str],
        *,
        timeout: float | None,
        stdin: bytes | memoryview | None = None,
        may_repeat: bool = False,
    ) -> ShellAnswer:
        """Call a function of the remote shell; ``again``: it may run twice."""
        deadline = None if timeout is None else time.monotonic() + timeout
        for tries in itertools.count():
            sent = False
            try:
                async with self._pool.borrow(_remaining_time(deadline)) as shell:
                    sent = True
                    return await self._in_shell(shell, arguments, _remaining_time(deadline, shell), stdin)
            except LinkLost:
                if (sent and not may_repeat) or tries >= _MAX_ATTEMPTS or self._is_over(deadline):
                    raise
                await asyncio.sleep(_BREAK_NOTICE_S * tries)
        raise AssertionError

    def _is_over(self, deadline: float | None) -> bool:
        """Return whether waiting for another connection is useless."""
        return not self._link.is_reconnecting or (deadline is not None and time.monotonic() >= deadline)

    async def _in_shell(
        self,
        shell: Shell,
        arguments: Sequence[str],
        timeout: float | None,
        stdin: bytes | memoryview | None = None,
        *,
        starts: bool = False,
    ) -> ShellAnswer:
        # If the pool has only one shell, it stays a shell: it is lent for all commands.
        becomes = starts and self._pool.limit > 1 and shell not in self._pool.holding

        def work() -> ShellAnswer:
            if becomes:
                shell.start_python()
            return shell.call(arguments, timeout=timeout, stdin=stdin)

        try:
            return await self._link.threads.call(work)
        except (asyncio.CancelledError, CommandTimeout, AnswerTooLarge):
            shell.usable, shell.is_abandoned = False, True
            self._run_later(self._end(shell))
            raise

    async def _end(self, shell: Shell) -> None:
        """End a shell that nobody reads any more, and all its processes, by another shell or a new session."""
        for _ in range(_MAX_ATTEMPTS):
            if shell.generation != self._link.generation or not self._link.is_alive:
                return  # the next connection ends the shell
            try:
                await self._kill(shell.group)
                self._pool.bury(shell)
                return
            except (TransportError, paramiko.ChannelException):
                if self._pool.is_stuck:
                    break
                await asyncio.sleep(0.5)
        self._link.drop()  # all sessions hang, and the server allows no more: the next connection ends them

    async def _kill(self, group: int) -> None:
        if (shell := self._pool.idle()) is not None:
            try:
                await self._link.threads.call(lambda: shell.call(["js_stop", f"{group}"], timeout=_KILL_TIMEOUT_S))
            finally:
                self._pool.return_shell(shell)
            return
        channel = await self._link.open_session(_KILL_TIMEOUT_S)
        text = f"kill -s TERM -- -{group}; sleep 0.3; kill -s KILL -- -{group}"
        await self._link.threads.call(lambda: run_plain(channel, text, _KILL_TIMEOUT_S))


def _remaining_time(deadline: float | None, shell: Shell | None = None) -> float | None:
    """Return the remaining seconds, without the start of a fresh shell."""
    extra = shell.startup_duration if shell else 0.0
    return None if deadline is None else max(0.0, deadline + extra - time.monotonic())
