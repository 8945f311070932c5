"""The connection that everything shares, whoever carries it: watched, and made again when it breaks."""

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
from tenacity import AsyncRetrying, retry_if_exception, wait_random_exponential

from jupyter_slurm.errors import LoginFailed, SlurmError
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool
from jupyter_slurm.transport.ssh.protocols import Connection, Hop, LinkLost, Session, Wire

__all__ = ["LinkObserver", "PersistentLink"]

log = logging.getLogger(__name__)

_CHANNEL = 30.0  # seconds
_GROWS = 60  # times the first pause: the longest one between two attempts to connect
_LOG_INS = 3  # that a server may hang up on, before it is taken for a refusal


class PersistentLink(ABC):
    """One connection to a host; what carries it says :meth:`new_connection`.

    It belongs to one event loop. It is made when it is first needed, and made again by itself when it broke; what a
    person has to answer for, or a refusal, is asked once: until :meth:`connect` is called, everybody gets that error.

    Parameters
    ----------
    hosts : sequence of str
        What the hosts on the way are called, the one that is meant last.
    told : callable
        Is given one line when the connection is lost, and one when it is back; in the event loop.
    ping, deadline : float
        Seconds between two questions whether the far side is there, and how long an answer may take. A link that
        drops everything is found out within their sum.
    pause : float
        Seconds at most before the second attempt to connect again; it doubles up to half a minute (60 times as much).
    """

    refuses_late = False  # whether one session too many is refused only when its command starts

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        told: Callable[[str], None] = log.info,
        ping: float = 5.0,
        deadline: float = 12.0,
        pause: float = 0.5,
    ) -> None:
        self.hosts, self.name, self._told = tuple(hosts), hosts[-1], told
        self._ping, self._deadline, self._pause = ping, deadline, pause
        self._connection: Connection | None = None
        self._building: Connection | None = None
        self._connecting: asyncio.Task[Connection] | None = None
        self._refused: BaseException | None = None
        self._closed = False
        self._opening = threading.Lock()
        self._listeners: list[Callable[[], None]] = []
        self._watch: LinkObserver | None = None
        self.generation = 0  # how many connections there have been
        self.loop: asyncio.AbstractEventLoop | None = None  # whose it is; None before the first attempt
        self.threads = DaemonThreadPool()

    @abstractmethod
    def new_connection(self) -> Connection:
        """Return a connection that is not open yet."""

    @property
    def is_alive(self) -> bool:
        """Whether there is a connection, as far as that is known."""
        return self._connection is not None and self._connection.is_alive

    @property
    def silent_for(self) -> float:
        """Seconds for which the far side has owed an answer to the question whether it is there."""
        asked = self._watch.asked_at if self._watch is not None and self.is_alive else None
        return 0.0 if asked is None else time.monotonic() - asked

    def when_settled(self, act: Callable[[], None]) -> None:
        """Do a thing whenever there is a new connection, or it is known that there will be none."""
        self._listeners.append(act)

    @property
    def is_kept(self) -> bool:
        """Whether a connection that broke is made again."""
        return self.generation > 0 and not self._closed

    async def connect(self) -> None:
        """Connect now, also after a refusal; a first failure is told and not tried again."""
        self._refused = None
        await self.ready(None)

    async def ready(self, patience: float | None) -> None:
        """Wait for a live connection.

        Raises
        ------
        LinkLost
            There is none within ``patience`` seconds.
        TransportError
            It was refused.
        """
        await self._connected(patience)

    async def _connected(self, patience: float | None) -> Connection:
        if self._connection is not None and not self._closed:
            if self._connection.is_alive:
                return self._connection
            self._lost(self._connection)  # seen before the watch has seen it
        self._check()
        if self._connecting is None:
            self._start(again=self.generation > 0)
        assert self._connecting is not None
        try:
            async with asyncio.timeout(patience):
                connection = await asyncio.shield(self._connecting)
        except TimeoutError:
            raise LinkLost(
                f"no connection to {self.name} yet",
                hint="It is tried again by itself, for as long as it takes. Is the network up here (VPN)? "
                "`jupyter slurm connect` shows how it stands.",
                host=self.name,
            ) from None
        except asyncio.CancelledError:
            self._check()  # the link was closed; else it is whoever waits that was cancelled
            raise
        return connection

    async def open_session(self, patience: float | None) -> Session:
        """Return a fresh channel for one command or subsystem.

        Raises
        ------
        LinkLost
            There is no connection.
        paramiko.ChannelException
            The server does not allow one more (MaxSessions).
        """
        connection = await self._connected(patience)

        def work() -> Session:
            # One after the other: paramiko keeps one reason of a refusal for all who ask.
            with self._opening, self.told_apart(connection.last):
                return connection.open_session(_CHANNEL)

        return await self.threads.call(work)

    def dial(self, host: str, port: int, timeout: float) -> Stream:
        """Return a stream to what listens on a port of a host, as the host at the end sees it; blocks, in any thread.

        Raises
        ------
        LinkLost
            There is no connection; it is not waited for.
        paramiko.ChannelException
            The far side forbids it (code 1), or nobody listens there (code 2).
        """
        connection = self._connection
        if connection is None or not connection.is_alive:
            raise LinkLost(f"no connection to {self.name} just now", host=self.name)
        with self.told_apart(connection.last):
            return connection.dial(host, port, timeout)

    def hop(self, number: int) -> Hop:
        """Return an earlier host of the way; blocks, in any thread, perhaps while a person answers.

        Raises
        ------
        LinkLost
            There is no connection; it is not waited for.
        """
        connection = self._connection
        if connection is None or not connection.is_alive:
            raise LinkLost(f"no connection to {self.name} just now", host=self.name)
        return connection.hop(number)

    async def ask(self) -> None:
        """Wait for an answer of the far side, which has then taken in all that it was told before.

        Raises
        ------
        LinkLost
            There is no connection.
        """
        connection = await self._connected(_CHANNEL)

        def work() -> None:
            with self.told_apart(connection.last):
                connection.ask()

        await self.threads.call(work)

    @contextlib.contextmanager
    def told_apart(self, wire: Wire | None = None) -> Iterator[None]:
        """Map what paramiko and the system raise when a connection breaks, and give ``wire`` up."""
        try:
            yield
        except paramiko.ChannelException:
            raise
        except (paramiko.SSHException, OSError, EOFError) as error:
            if (connection := self._connection) is not None and connection.last is wire:
                connection.close()
            raise LinkLost(f"the connection to {self.name} broke", host=self.name) from error

    def drop(self) -> None:
        """Give this connection up: it is made again."""
        if (connection := self._connection) is not None:
            self.threads.later(connection.close)

    @property
    def since(self) -> float | None:
        """When the person logged in, in seconds since the epoch; None while there is no connection."""
        return None if self._connection is None else self._connection.since

    def close(self, *, keep: bool = False) -> None:
        """End the connection for good; ``keep``: a log-in that does not live in this process is left for later."""
        self._closed = True
        if self._connecting is not None:
            with contextlib.suppress(RuntimeError):  # the loop is gone, and the task with it
                self._connecting.cancel()
            if self._building is not None:
                self.threads.later(self._building.close)  # or its thread waits on, for a person perhaps
        if (connection := self._connection) is not None:
            self.threads.later(connection.leave if keep else connection.close)
        self.threads.close()

    # Making it --------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self._closed:
            raise LinkLost(f"the connection to {self.name} was closed", host=self.name)
        if self._refused is not None:
            raise self._refused

    def _start(self, *, again: bool) -> None:
        self.loop = asyncio.get_running_loop()
        self._connecting = asyncio.create_task(self._make(again), name=f"connect {self.name}")
        self._connecting.add_done_callback(self._made)

    async def _make(self, again: bool) -> Connection:
        if not again:  # whoever asks is told at once what is wrong
            return await self._open()
        hung_up = itertools.count(1)

        def may_be_better(error: BaseException) -> bool:
            # Log-ins end with a connection that breaks meanwhile, or since the server has had enough of them.
            cut = isinstance(error, LoginFailed) and "reason" in error.details and next(hung_up) < _LOG_INS
            return cut or isinstance(error, LinkLost)

        pause = wait_random_exponential(self._pause, max=_GROWS * self._pause)
        async for attempt in AsyncRetrying(wait=pause, retry=retry_if_exception(may_be_better)):
            with attempt:
                connection = await self._open()
        return connection

    async def _open(self) -> Connection:
        connection = self._building = self.new_connection()

        def work() -> Connection:
            connection.open()
            if self._closed:
                connection.close()
            return connection

        return await self.threads.call(work)

    def _made(self, task: asyncio.Task[Connection]) -> None:
        self._connecting = None
        if task.cancelled():
            return
        error = task.exception()
        if error is not None:
            if self.generation:
                self._refused = error
                self._told(f"{self.name}: {error.message if isinstance(error, SlurmError) else type(error).__name__}")
            self._settled()
            return
        self.generation += 1  # first: threads that use the new connection see that it is another one
        self._connection = connection = task.result()
        if self.generation > 1:
            self._told(f"{self.name}: connected again")
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
        self._told(f"{self.name}: connection lost, connecting again")
        if self._connecting is None:
            self._start(again=True)


class LinkObserver:
    """Finds out that a connection is dead, ends it, and tells.

    Parameters
    ----------
    connection : Connection
        It is open.
    ping, deadline : float
        See :class:`PersistentLink`.
    lost : callable
        Is called when it is dead, in the thread of :meth:`run`.

    Attributes
    ----------
    asked_at : float or None
        When it was asked what it has not answered yet, in monotonic seconds.
    """

    def __init__(self, connection: Connection, ping: float, deadline: float, lost: Callable[[], None]) -> None:
        self._connection, self._ping, self._deadline, self._lost = connection, ping, deadline, lost
        self.asked_at: float | None = None

    def run(self) -> None:
        """Watch until it is dead; in a thread of its own."""
        last = self._connection.last
        clocks = _clocks()
        while True:
            last.join(self._ping)  # this returns at once when it ends
            if not self._connection.is_alive:
                break
            before, clocks = clocks, _clocks()
            # While a laptop sleeps its wall clock goes on and the other one does not.
            slept = (clocks[0] - before[0]) - (clocks[1] - before[1]) > self._ping
            self._ask(min(4.0, self._deadline) if slept else self._deadline)
        self._connection.close()
        self._lost()

    def _ask(self, deadline: float) -> None:
        alarm = threading.Timer(deadline, self._connection.close)
        alarm.daemon = True
        alarm.start()
        self.asked_at = time.monotonic()
        try:
            with contextlib.suppress(paramiko.SSHException, OSError, EOFError):
                self._connection.ask()
        finally:
            alarm.cancel()
            self.asked_at = None


def _clocks() -> tuple[float, float]:
    return time.time(), time.monotonic()
