"""Listener of a keeper for its proxy (``keeper.py``): on the loopback of the node, protected by a secret.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import random
import runpy
import selectors
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, Callable, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/listener.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc, refusals
    from jupyter_slurm.runner.link import handshake
    from jupyter_slurm.runner.link import resumable_link as link
else:
    proc = load("proc")
    refusals = load("refusals")
    handshake = load("link.handshake")
    link = load("link.resumable_link")

MAX_BUFFER_AWAY_BYTES = 64 << 20  # bytes of output kept without a proxy
_MAX_BUFFER_LIVE_BYTES = 512 << 20  # bytes of output kept for a connected proxy that is slow
_MAX_GUESTS = 16  # connections with an incomplete greeting
_READ_SIZE = 1 << 20
_MAX_WRITES = 16  # writes before other connections get their turn
_MAX_PORT_TRIES = 200  # attempts to find a free port
_DIAG, _BY_FAMILY, _OWNER = 4, 20, 80  # of sock_diag(7): number, request, and offset of user and inode


def is_foreign(sock: Any) -> bool:
    """Return whether another user has opened a connection, if the system reports users.

    The system reports no user for a connection that its opener has closed: such a one is foreign, too.
    """
    near, far = sock.getsockname(), sock.getpeername()
    try:
        owner: tuple[int, int] | None = _query_kernel(near, far)
    except (OSError, struct.error):
        owner = _search_table(near, far)
    if owner is None:
        return False
    uid, inode = owner
    return not inode or uid not in (0, os.getuid())


def _query_kernel(near: tuple[str, int], far: tuple[str, int]) -> tuple[int, int]:
    """Return user and inode of the peer's end of a connection (sock_diag(7)). May raise OSError or struct.error."""
    ends = struct.pack(">HH4s12x4s12x", far[1], near[1], socket.inet_aton(far[0]), socket.inet_aton(near[0]))
    asked = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + ends + bytes(4) + b"\xff" * 8
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, 1, 1, 0) + asked)
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] != _BY_FAMILY:
        raise OSError("no answer")
    uid, inode = struct.unpack_from("=II", answer, _OWNER)
    return uid, inode


def _search_table(near: tuple[str, int], far: tuple[str, int]) -> tuple[int, int] | None:
    """Return the same from /proc/net/tcp (proc(5)); zeros if it is not listed, None if the table cannot be read."""
    wanted = [f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (far, near)]
    try:
        with open("/proc/net/tcp", encoding="ascii") as table:
            for row in map(str.split, table):
                if row[1:3] == wanted:
                    return int(row[7]), int(row[9])
    except OSError:
        return None
    return 0, 0


def listen() -> Any:
    """Return a listening socket on the loopback. If no automatic port is free, use a port outside that range."""
    for port in (0, *(random.randrange(proc.FIRST_PORT, proc.LAST_PORT) for _ in range(_MAX_PORT_TRIES))):  # noqa: S311 - any will do
        with contextlib.suppress(OSError):
            return _listening(port)
    return _listening(0)


def _listening(port: int) -> Any:
    listener = socket.socket()
    try:
        listener.bind(("127.0.0.1", port))
        listener.listen(_MAX_GUESTS)
    except OSError:
        listener.close()
        raise
    return listener


class PendingConnection:
    """Connection of a client that has not proven the secret yet."""

    def __init__(self, sock: Any, words: Any) -> None:
        self.sock, self.handshake = sock, words
        self.deadline = time.monotonic() + handshake.GREETING_TIMEOUT_S


class ProxyListener:
    """Listener for proxies; one of them at a time is connected.

    Parameters
    ----------
    secret : bytes
    ready : selectors.BaseSelector
    take : callable
        Takes the messages of the proxy.
    greet : callable
        Called when another proxy than before connects.
    """

    def __init__(self, secret: bytes, ready: Any, take: Callable[[list[Any]], None], greet: Callable[[], None]) -> None:
        self._secret, self._ready, self._take, self._greet = secret, ready, take, greet
        self.link = link.Link(MAX_BUFFER_AWAY_BYTES)
        self._listener = listen()
        self._listener.setblocking(False)
        ready.register(self._listener, selectors.EVENT_READ, self._accept)
        self.port = int(self._listener.getsockname()[1])
        self._guests: list[PendingConnection] = []
        self._sock: Any = None
        self._who = b""
        self._gone: set[bytes] = set()  # proxies that were replaced
        self._refused = refusals.RefusalCount()
        self._lost_at = time.monotonic()

    @property
    def alone(self) -> float:
        """Seconds without a proxy."""
        return 0.0 if self._sock is not None else time.monotonic() - self._lost_at

    @property
    def has_front(self) -> bool:
        """Return whether a proxy is connected."""
        return self._sock is not None

    def _accept(self, _: int) -> None:
        with contextlib.suppress(OSError):
            sock, _ = self._listener.accept()
            try:
                foreign = is_foreign(sock)
            except OSError:  # the connection has ended
                foreign = True
            if foreign:  # it does not have the secret, but might block other connections, or fill the log
                sock.close()
                self._report_refusal("it belongs to another user, or has ended")
                return
            sock.setblocking(False)
            guest = PendingConnection(sock, handshake.KeeperHandshake(self._secret, self._received_of))
            self._guests.append(guest)
            self._ready.register(sock, selectors.EVENT_READ, lambda _: self._receive(guest))
            if len(self._guests) > _MAX_GUESTS:
                self._dismiss(self._guests[0])

    def _received_of(self, who: bytes) -> int | None:
        return None if who in self._gone else self.link.received if who == self._who else 0

    def _report_refusal(self, why: str) -> None:
        if told := self._refused.add():
            sys.stderr.write(f"A connection was refused: {why}{told}\n")

    def _dismiss(self, guest: PendingConnection) -> None:
        self._guests.remove(guest)
        self._ready.unregister(guest.sock)
        guest.sock.close()

    def _receive(self, guest: PendingConnection) -> None:
        try:
            data = guest.sock.recv(512)
            answer = guest.handshake.feed(data)
            if answer:
                guest.sock.sendall(answer)  # fits into the send buffer of a new connection
        except BlockingIOError:
            return
        except (OSError, handshake.PeerRejected) as error:
            self._report_refusal(str(error))
            self._dismiss(guest)
            return
        if guest.handshake.is_done:
            self._guests.remove(guest)
            self._ready.unregister(guest.sock)
            self._attach(guest)
        elif not data:
            self._dismiss(guest)

    def _attach(self, guest: PendingConnection) -> None:
        """Attach an authenticated proxy, in place of the previous one."""
        is_new = guest.handshake.who != self._who
        if self._sock is not None:
            if is_new:
                with contextlib.suppress(OSError):
                    self._sock.send(self.link.replace())
            self.drop()
        if is_new:
            self._gone.add(self._who)
            self._who = guest.handshake.who
            self.link.forget()
        self._sock = guest.sock
        self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._ready.register(self._sock, selectors.EVENT_READ, self._serve)
        with self._breaking():
            messages = self.link.attach(guest.handshake.received, guest.handshake.rest)
            self.link.outbox.limit = _MAX_BUFFER_LIVE_BYTES
            if is_new:
                self._greet()
            self._pass_on(messages)

    @contextlib.contextmanager
    def _breaking(self) -> Iterator[None]:
        """Drop the proxy if its connection turns out to be broken."""
        try:
            yield
        except BlockingIOError:
            pass
        except (OSError, link.LinkBroken) as error:
            sys.stderr.write(f"The front end has disconnected: {error}\n")
            self.drop()

    def drop(self) -> None:
        """Drop the connection of the proxy."""
        if self._sock is not None:
            self._ready.unregister(self._sock)
            self._sock.close()
            self._sock, self._lost_at = None, time.monotonic()
            self.link.detach()
            self.link.outbox.limit = MAX_BUFFER_AWAY_BYTES

    def _serve(self, mask: int) -> None:
        with self._breaking():
            if mask & selectors.EVENT_READ:
                data = self._sock.recv(_READ_SIZE)
                if not data:
                    raise ConnectionAbortedError("it has closed the connection")
                self._pass_on(self.link.feed(data))
            if mask & selectors.EVENT_WRITE:
                self._write()

    def _pass_on(self, messages: list[Any]) -> None:
        self._take(messages)
        self.link.confirm()

    def _write(self) -> None:
        for _ in range(_MAX_WRITES):
            pending = self.link.pending()
            if not pending:
                return
            self.link.written(self._sock.send(pending))

    def flush(self) -> None:
        """Write pending data, and register the rest until the proxy can receive it."""
        if self._sock is not None:
            with self._breaking():
                self._write()
        if self._sock is not None:
            wanted = selectors.EVENT_WRITE if self.link.pending() else 0
            self._ready.modify(self._sock, selectors.EVENT_READ | wanted, self._serve)

    def tick(self) -> None:
        """Drop connections that are silent for too long."""
        for guest in list(self._guests):
            if time.monotonic() > guest.deadline:
                self._dismiss(guest)
        with self._breaking():
            self.link.tick()

    def close(self) -> None:
        """Close all connections."""
        self.drop()
        for guest in list(self._guests):
            self._dismiss(guest)
        self._ready.unregister(self._listener)
        self._listener.close()
