"""Shell pool of a connection: few reused shells, within the server's session limit."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import LinkLost, Session
from jupyter_slurm.transport.ssh.shell.input_check import check_input
from jupyter_slurm.transport.ssh.shell.session_budget import SessionBudget, SessionClaim
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["ShellPool"]

log = logging.getLogger(__name__)

_SLOW_NOTICE_S: float = 10.0  # seconds after which the user is notified of the cause of a wait
_SILENCE_S: float = 5.0  # seconds of silence after which the cause is looked for
_SESSION_CLOSE_S: float = 2.0  # seconds until the server counts a closed session no more
_RETRY_INTERVAL_S: float = 0.1  # seconds


class ShellPool:
    """Pool that lends shells.

    Parameters
    ----------
    link : PersistentLink
        The connection.
    create_shell : callable
        Creates a shell on a channel; the pool starts it.
    limit : int
        Most shells. If the server allows fewer (MaxSessions), the pool detects this.
    slow : callable, optional
        Notifies the user that the first shell's start-up files are slow; cancelled when the shell has started.
    """

    def __init__(
        self,
        link: PersistentLink,
        create_shell: Callable[[Session], Shell],
        limit: int,
        slow: Callable[[], Awaitable[object]] | None = None,
    ) -> None:
        self._link, self._create_shell, self._slow = link, create_shell, slow
        self._allowance = SessionBudget(limit)
        self._idle: list[Shell] = []
        self._ahead: set[Shell] = set()
        self._count = 0  # lent, idle and opening shells
        self._generation = 0
        self._has_started = False
        self._freed_at = -_SESSION_CLOSE_S
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._alive: set[Shell] = set()
        self._dying: set[Shell] = set()
        self._ghosts: list[Shell] = []
        self.holding: dict[Shell, int] = {}
        self.idle_streams: list[Callable[[], None]] = []
        link.add_callback(self._wake)

    @property
    def has_waiters(self) -> bool:
        """Return whether a caller waits for a shell."""
        return any(not waiter.done() for waiter in self._waiting)

    @contextlib.asynccontextmanager
    async def borrow(
        self, timeout: float | None, *, for_locks: bool = False, only: Shell | None = None
    ) -> AsyncIterator[Shell]:
        """Lend a shell, or the given shell only. A shell that is unusable afterwards is closed.

        Shells that hold files are lent last for other commands, because ending a command ends its shell.

        Raises
        ------
        LinkLost
            No connection, or no free shell, within ``patience`` seconds; or the given shell has ended.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        shell = await (self._acquire(deadline, for_locks) if only is None else self._await(only))
        try:
            yield shell
        finally:
            self._hand_shell(shell)

    def idle(self) -> Shell | None:
        """Return an idle shell, if there is one; :meth:`return_shell` returns it to the pool."""
        self._renew()
        return self._idle.pop() if self._idle else None

    def return_shell(self, shell: Shell) -> None:
        """Return a shell from :meth:`idle` to the pool."""
        self._hand_shell(shell)

    def take_ahead(self, shell: Shell) -> bool:
        """Lend a shell whose command has started ahead; False: it has ended, or its session was needed."""
        self._renew()
        if shell not in self._ahead:
            return False
        self._ahead.remove(shell)
        return True

    def waits_for_text(self, shell: Shell) -> bool:
        """Return whether a command that has started ahead still waits in this shell."""
        self._renew()
        return shell in self._ahead

    def end_ahead(self, shell: Shell | None = None) -> bool:
        """End a shell whose command has started ahead, the given one or any, so that its session is free."""
        shell = shell or next(iter(self._ahead), None)
        if shell is None or shell not in self._ahead:
            return False
        self._ahead.remove(shell)
        shell.usable = False
        self._hand_shell(shell)
        return True

    @property
    def limit(self) -> int:
        """Return the largest number of shells, as far as known."""
        return self._allowance.limit

    async def keep_shell(self, timeout: float) -> None:
        """Open a shell if none is open: sessions of other kinds leave the last one to commands.

        A command with live output ends its shell. Without this, a stream could then take the only session.
        """
        self._renew()
        if not self._alive:
            async with self.borrow(timeout):
                pass

    async def close_idle_streams(self) -> None:
        """Have the streams closed that are not in use."""
        for give_up in self.idle_streams:
            give_up()

    async def free_session(self, timeout: float) -> SessionClaim | None:
        """Close a shell to allow a session of another kind; None: the last shell stays.

        The limit is one shell less until :meth:`release_room`. Two concurrent callers get two sessions.

        Raises
        ------
        LinkLost
            All shells were busy for ``patience`` seconds.
        """
        deadline = time.monotonic() + timeout
        claim = self._allowance.claim(self._count)
        if claim is None:
            return None
        try:
            while not self._allowance.is_free(claim, self._count):
                free = [shell for shell in self._idle if shell not in self.holding]
                if free:
                    self._idle.remove(free[0])
                    self._forget(free[0])
                    self._drop(free[0])
                elif not self.end_ahead():
                    await self._wait_turn(deadline)
                self._renew()
        except BaseException:
            self.release_room(claim)
            raise
        return claim

    def release_room(self, claim: SessionClaim) -> None:
        """Record that the other session has ended."""
        self._allowance.release(claim)
        self._wake()

    @property
    def is_stuck(self) -> bool:
        """Return whether all existing shells have been given up."""
        return self._count == len(self._dying)

    def bury(self, shell: Shell) -> None:
        """Record that a given-up shell has ended."""
        if shell in self._dying:
            self._forget(shell)

    def is_alive(self, shell: Shell) -> bool:
        """Return whether a shell is alive, as far as known; it ends with its connection."""
        return shell.generation == self._link.generation and self._link.is_alive and not shell.is_abandoned

    def close(self) -> None:
        """Close the idle shells. Waiting callers check again at once."""
        for shell in (*self._idle, *self._ahead):
            self._drop(shell)
        self._idle.clear()
        self._ahead.clear()
        self._wake()

    # Internal ----------------------------------------------------------------------------------------------------

    async def _acquire(self, deadline: float | None, for_locks: bool) -> Shell:
        while True:
            await self._link.wait_ready(
                _remaining_time(deadline)
            )  # a refusal is the answer; a new connection resets the count
            self._renew()
            free = sorted(self._idle, key=lambda shell: self._is_reserved(shell) != for_locks)
            best = free[0] if free else None
            if best is not None and (for_locks or not self._is_reserved(best) or self._count >= self.limit):
                self._idle.remove(best)
                return best
            if self._count < self.limit:
                shell = await self._open(deadline)
                if shell is not None:
                    return shell
                continue
            if not self.end_ahead():
                await self._wait_turn(deadline)

    def _is_reserved(self, shell: Shell) -> bool:
        return shell.is_starter or shell in self.holding

    async def _await(self, shell: Shell) -> Shell:
        while True:
            self._renew()
            if shell not in self.holding:
                raise LinkLost("The remote shell has ended.")
            if shell in self._idle:
                self._idle.remove(shell)
                return shell
            await self._wait_turn(None)

    def _renew(self) -> None:
        """Forget the shells of an earlier connection, and those that died meanwhile."""
        if self._generation != self._link.generation:
            self._generation = self._link.generation
            self._ghosts += self._alive
            self._alive.clear()
            self._dying.clear()
            self._idle.clear()
            self._ahead.clear()
            self.holding.clear()
            self._count = 0
            self._allowance.forget()
        for shell in [shell for shell in self._idle if shell.channel.closed]:
            self._idle.remove(shell)
            self._forget(shell)
        for shell in [shell for shell in self._ahead if shell.channel.closed]:
            self._ahead.remove(shell)
            self._forget(shell)

    async def _open(self, deadline: float | None) -> Shell | None:
        """Open one more shell; None: the server allows no more, perhaps only for a moment."""
        generation = self._generation
        self._count += 1
        shell: Shell | None = None
        ghosts: list[Shell] = []
        try:
            channel = await self._link.open_session(_remaining_time(deadline))
            shell = self._create_shell(channel)
            shell.generation = generation
            ready = shell
            ghosts, self._ghosts = self._ghosts, []
            silence = [asyncio.create_task(self._notify_slow()), asyncio.create_task(self._explain_silence(ready))]
            try:
                await self._link.threads.call(lambda: _start(self._link, ready, ghosts))
            finally:
                for task in silence:
                    task.cancel()
            self._slow, self._has_started = None, True
            self._alive.add(shell)
            return shell
        except paramiko.ChannelException as error:
            self._ghosts += ghosts
            self._uncount(generation)
            if shell is not None:
                self._drop(shell)
            if time.monotonic() - self._freed_at < _SESSION_CLOSE_S:  # the closed session may still count on the server
                await asyncio.sleep(_RETRY_INTERVAL_S)
            else:
                self._update_budget(error)
            return None
        except BaseException:
            self._ghosts += ghosts
            self._uncount(generation)
            if shell is not None:
                self._drop(shell)
            raise

    async def _notify_slow(self) -> None:
        await asyncio.sleep(_SLOW_NOTICE_S)
        if self._slow is not None:
            await self._slow()

    async def _explain_silence(self, shell: Shell) -> None:
        """Give up a first shell that does not start because its start-up files read its input."""
        if self._has_started:
            return
        await asyncio.sleep(_SILENCE_S)
        if (cause := await check_input(self._link)) is not None:
            await asyncio.sleep(_SILENCE_S)  # slow start-up files may have ended at that moment
            shell.cause = cause
            await self._link.threads.call(lambda: _close(shell))

    def _update_budget(self, error: paramiko.ChannelException) -> None:
        if self._count == 0:
            raise TransportError(
                f"{self._link.name} allows no session: {printable(error.text or '', 200)}",
                hint=f"Ask the administrators of {self._link.name}: MaxSessions in sshd_config is too low, or your "
                "account may not run commands.",
            ) from error
        log.info("%s allows %d sessions for commands", self._link.name, self._count)
        self._allowance.refused(self._count)

    async def _wait_turn(self, deadline: float | None) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout(_remaining_time(deadline)):
                await waiter
        except TimeoutError:
            raise LinkLost(
                f"{self._link.name} is busy with earlier commands.",
                hint="Try again in a few seconds.",
                host=self._link.name,
            ) from None
        finally:
            self._waiting.remove(waiter)

    def _hand_shell(self, shell: Shell) -> None:
        if shell.generation != self._link.generation or not self._link.is_alive:
            self._drop(shell)  # the next connection ends it
        elif shell.is_abandoned:
            self._dying.add(shell)  # its session counts until it has ended on the server
            self._drop(shell)
        elif not shell.usable:
            self._forget(shell)
            self._ghosts.append(shell)
            self._drop(shell)
        elif shell.waits_for_text:
            self._ahead.add(shell)
        else:
            shell.startup_duration = 0.0
            self._idle.append(shell)
        self._wake()

    def _forget(self, shell: Shell) -> None:
        self.holding.pop(shell, None)
        self._alive.discard(shell)
        self._dying.discard(shell)
        self._freed_at = time.monotonic()
        self._uncount(shell.generation)

    def _uncount(self, generation: int) -> None:
        if generation == self._generation:
            self._count -= 1
        self._wake()

    def _wake(self) -> None:
        # All of them, in order: the first may wait for a specific other shell.
        for waiter in self._waiting:
            if not waiter.done():
                waiter.set_result(None)

    def _drop(self, shell: Shell) -> None:
        shell.usable = False
        self._link.threads.run_later(lambda: _close(shell))


def _remaining_time(deadline: float | None) -> float | None:
    return None if deadline is None else max(0.0, deadline - time.monotonic())


def _start(link: PersistentLink, shell: Shell, ghosts: Sequence[Shell]) -> None:
    """Start a shell. It first ends shells of a broken connection, which may still live and hold files."""
    with link.mapped_errors(shell.channel.get_transport()):
        shell.start()
        if ghosts:
            words = ["js_reap", *(f"{ghost.pid}:{ghost.group}:{ghost.token}" for ghost in ghosts)]
            shell.call(words, timeout=shell.startup_timeout)


def _close(shell: Shell) -> None:
    with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
        shell.close()
