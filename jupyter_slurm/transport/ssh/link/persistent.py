"""The shared connection to a host, over paramiko or OpenSSH: monitored, and re-established after a break."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence

import paramiko

from jupyter_slurm.errors import LoginFailed, SlurmError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool
from jupyter_slurm.transport.ssh.protocols import ClosedEarly, Connection, Hop, LinkLost, Session, Wire

__all__ = ["LinkObserver", "PersistentLink"]

log = logging.getLogger(__name__)

_CHANNEL_TIMEOUT_S = 30.0  # seconds
_MAX_PAUSE_FACTOR = 60  # times the first pause: the longest pause between two attempts to connect
_MAX_BUSY_ATTEMPTS = 5  # first connections that a host may close before its greeting
_MAX_LOGIN_HANGUPS = 3  # logins that a server may cut off before this counts as a refusal


class PersistentLink(ABC):
    """A persistent connection to a host; :meth:`new_connection` chooses what carries it.

    The link belongs to one event loop. It connects when first needed, and again after a break. A login that needs the
    user, or is refused, is tried once: until :meth:`connect` is called, every caller gets that error.

    Parameters
    ----------
    hosts : sequence of str
        Names of the hosts of the route, the target last.
    notify : callable
        Called in the event loop with a message when the connection is lost, and when it is back.
    ping, deadline : float
        Seconds between two checks of the remote host, and for its answer. A link that drops all packets is detected
        within their sum.
    pause : float
        Longest seconds before the second attempt to reconnect; doubles up to half a minute (60 times as much).
    """

    has_late_refusal = False  # whether a session over the limit is refused only when its command starts

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        notify: Callable[[str], None] = log.info,
        ping: float = 5.0,
        deadline: float = 12.0,
        pause: float = 0.5,
    ) -> None:
        self.hosts, self.name, self._on_state = tuple(hosts), hosts[-1], notify
        self._ping, self._deadline, self._pause = ping, deadline, pause
        self._connection: Connection | None = None
        self._building: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._refused: BaseException | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._watch: LinkObserver | None = None
        self.generation = 0  # number of connections so far
        self.loop: asyncio.AbstractEventLoop | None = None  # loop of the link; None before the first attempt
        self.threads = DaemonThreadPool()

    @abstractmethod
    def new_connection(self) -> Connection:
        """Return a new connection, not yet open."""

    @property
    def is_alive(self) -> bool:
        """Return whether the link is connected, as far as known."""
        return self._connection is not None and self._connection.is_alive

    @property
    def silent_for(self) -> float:
        """Return the seconds since the oldest unanswered check of the remote host."""
        asked = self._watch.probed_at if self._watch is not None and self.is_alive else None
        return 0.0 if asked is None else time.monotonic() - asked

    def add_callback(self, act: Callable[[], None]) -> None:
        """Call a function after each new connection, and when no connection can be made."""
        self._listeners.append(act)

    @property
    def is_reconnecting(self) -> bool:
        """Return whether the link reconnects after a break."""
        return self.generation > 0 and not self._closed

    async def connect(self) -> None:
        """Connect now, also after a refusal; a first failure is raised and not tried again."""
        self._refused = None
        await self.wait_ready(None)

    async def wait_ready(self, timeout: float | None) -> None:
        """Wait for a live connection.

        Raises
        ------
        LinkLost
            No connection within ``patience`` seconds.
        TransportError
            The connection was refused.
        """
        await self._connected(timeout)

    async def _connected(self, timeout: float | None) -> Connection:
        if self._connection is not None and not self._closed:
            if self._connection.is_alive:
                return self._connection
            self._lost(self._connection)  # noticed before the observer
        self._check()
        if self._connecting is None:
            self._start(is_reconnect=self.generation > 0)
        assert self._connecting is not None
        try:
            async with asyncio.timeout(timeout):
                connection = await asyncio.shield(self._connecting)
        except TimeoutError:
            raise LinkLost(
                f"There is no connection to {self.name} yet.",
                hint="jupyter_slurm reconnects automatically. Check the network and the VPN of this computer. "
                f"`jupyter slurm connect {self.name}` shows the state of the connection.",
                host=self.name,
            ) from None
        except asyncio.CancelledError:
            self._check()  # the link was closed; otherwise the waiting caller was cancelled
            raise
        return connection

    async def open_session(self, timeout: float | None) -> Session:
        """Return a fresh channel for one command or subsystem.

        Raises
        ------
        LinkLost
            There is no connection.
        paramiko.ChannelException
            The server allows no further session (MaxSessions).
        """
        connection = await self._connected(timeout)

        def work() -> Session:
            # One at a time: paramiko keeps only one reason of a refusal for all callers.
            with self._opening, self.mapped_errors(connection.last):
                return connection.open_session(_CHANNEL_TIMEOUT_S)

        return await self.threads.call(work, lambda session: session.close())

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Return a stream to a port of a host, as seen from the target. Blocks; may run in any thread.

        Raises
        ------
        LinkLost
            There is no connection. The call does not wait for one.
        paramiko.ChannelException
            The remote host forbids it (code 1), or nothing listens on the port (code 2).
        """
        connection = self._connection
        if connection is None or not connection.is_alive:
            raise LinkLost(f"There is no connection to {self.name} at the moment.", host=self.name)
        with self.mapped_errors(connection.last):
            return connection.dial(host, port, timeout)

    def hop(self, number: int) -> Hop:
        """Return an earlier host of the route. Blocks, perhaps while the user answers; may run in any thread.

        Raises
        ------
        LinkLost
            There is no connection. The call does not wait for one.
        """
        connection = self._connection
        if connection is None or not connection.is_alive:
            raise LinkLost(f"There is no connection to {self.name} at the moment.", host=self.name)
        return connection.hop(number)

    async def probe(self) -> None:
        """Wait for an answer of the remote host, which has then processed all earlier messages.

        Raises
        ------
        LinkLost
            There is no connection.
        """
        connection = await self._connected(_CHANNEL_TIMEOUT_S)

        def work() -> None:
            with self.mapped_errors(connection.last):
                connection.probe()

        await self.threads.call(work)

    @contextlib.contextmanager
    def mapped_errors(self, wire: Wire | None = None) -> Iterator[None]:
        """Map the exceptions of paramiko and the system after a break to LinkLost, and drop ``wire``."""
        try:
            yield
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            if (connection := self._connection) is not None and connection.last is wire:
                connection.close()
            raise LinkLost(f"The connection to {self.name} broke.", host=self.name) from error

    def drop(self) -> None:
        """Give up this connection; the link reconnects."""
        if (connection := self._connection) is not None:
            self.threads.run_later(connection.close)

    @property
    def since(self) -> float | None:
        """Return the time of the login, in seconds since the epoch; None without a connection."""
        return None if self._connection is None else self._connection.since

    def close(self, *, keep: bool = False) -> None:
        """Close the link for good; ``keep``: leave a login outside this process for later."""
        self._closed = True
        if self._connecting is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed, and its task with it
                self._connecting.cancel()
        # Or its thread waits on, perhaps for the user. It may be open, for a task that ended with its loop.
        if self._building is not None and self._building is not self._connection:
            self.threads.run_later(self._building.close)
        if (connection := self._connection) is not None:
            self.threads.run_later(connection.leave if keep else connection.close)
        self.threads.close()

    # Connecting --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise LinkLost(f"The connection to {self.name} was closed.", host=self.name)
        if self._refused is not None:
            raise self._refused

    def _start(self, *, is_reconnect: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self._connecting = asyncio.create_task(self._connect(is_reconnect), name=f"connect {self.name}")
        self._connecting.add_done_callback(self._on_connected)

    async def _connect(self, is_reconnect: bool) -> Connection:
        delays, failures = RetryDelays(self._pause, _MAX_PAUSE_FACTOR * self._pause), itertools.count(1)

        def may_be_better(error: SlurmError) -> bool:
            if not is_reconnect:  # the caller gets a first error at once, or soon from a host that is busy
                return self._is_busy(error) and next(failures) < _MAX_BUSY_ATTEMPTS
            # A login may fail because the connection breaks meanwhile, or because the server limits login attempts.
            cut = isinstance(error, LoginFailed) and "reason" in error.details and next(failures) < _MAX_LOGIN_HANGUPS
            return cut or isinstance(error, LinkLost)

        while True:
            try:
                return await self._open()
            except SlurmError as error:
                if not may_be_better(error):
                    raise
            await asyncio.sleep(delays.next_random())

    def _is_busy(self, error: BaseException) -> bool:
        """Return whether the first host closed the connection at once: nobody was asked, and it may accept the next."""
        return isinstance(error, ClosedEarly) and error.details["host"] == self.hosts[0] and not self._closed

    async def _open(self) -> Connection:
        connection = self._building = self.new_connection()

        def work() -> Connection:
            connection.open()
            if self._closed:
                connection.close()
            return connection

        return await self.threads.call(work)

    def _on_connected(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            if self.generation:
                self._refused = error
                self._on_state(
                    f"{self.name}: {error.message if isinstance(error, SlurmError) else type(error).__name__}"
                )
            self._settled()
            return
        self.generation += 1  # first, so that threads with the new connection see the new number
        self._connection = connection = task.result()
        if self.generation > 1:
            self._on_state(f"{self.name}: connected again")
        self._settled()
        loop = asyncio.get_running_loop()

        def lost() -> None:
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._lost, connection)

        self._watch = watch = LinkObserver(connection, self._ping, self._deadline, lost)
        threading.Thread(target=watch.run, name=f"jupyter-slurm-watch-{self.name}", daemon=True).start()

    def _settled(self) -> None:
        for act in self._listeners:
            act()

    def _lost(self, connection: Connection) -> None:
        if self._closed or connection is not self._connection:
            return
        self._connection = None
        self._on_state(f"{self.name}: connection lost, connecting again")
        if self._connecting is None:
            self._start(is_reconnect=True)


class LinkObserver:
    """Detection of a dead connection, which is then closed and reported.

    Parameters
    ----------
    connection : Connection
        An open connection.
    ping, deadline : float
        See :class:`PersistentLink`.
    lost : callable
        Called after the connection has died, in the thread of :meth:`run`.

    Attributes
    ----------
    asked_at : float or None
        Time of the unanswered check, in monotonic seconds; None if answered.
    """

    def __init__(self, connection: Connection, ping: float, deadline: float, lost: Callable[[], None]) -> None:
        self._connection, self._ping, self._deadline, self._lost = connection, ping, deadline, lost
        self.probed_at: float | None = None

    def run(self) -> None:
        """Watch the connection until it is dead; runs in its own thread."""
        last = self._connection.last
        clocks = _clocks()
        while True:
            last.join(self._ping)  # returns at once when the connection ends
            if not self._connection.is_alive:
                break
            before, clocks = clocks, _clocks()
            # While a laptop sleeps, its wall clock advances and its monotonic clock does not.
            slept = (clocks[0] - before[0]) - (clocks[1] - before[1]) > self._ping
            self._probe(min(4.0, self._deadline) if slept else self._deadline)
        self._connection.close()
        self._lost()

    def _probe(self, deadline: float) -> None:
        alarm = threading.Timer(deadline, self._connection.close)
        alarm.daemon = True
        alarm.start()
        self.probed_at = time.monotonic()
        try:
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                self._connection.probe()
        finally:
            alarm.cancel()
            self.probed_at = None


def _clocks() -> tuple[float, float]:
    return time.time(), time.monotonic()
