"""Local end of a tunnel: accepts this user's connections, and carries each to the remote end."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import selectors
import socket
import threading
import time
from collections.abc import Callable

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.runner.refusals import RefusalCount
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.local.detached import DetachedProcesses
from jupyter_slurm.transport.peer_credentials import is_same_user, peer_uid
from jupyter_slurm.transport.tunnel.splice import reset, splice

__all__ = ["Forwarder"]

log = logging.getLogger(__name__)

Carry = Callable[[socket.socket, Stream, Callable[[Callable[[], None]], None], Callable[[], None]], None]

_RETRY_INTERVAL_S = 0.1  # seconds until a process without free file descriptors tries again


class Forwarder:
    """Forwarder of the connections of one listener.

    Parameters
    ----------
    listener : socket
        Listening socket, owned by the forwarder from now on.
    dial : callable
        Returns a new stream to the remote end, or raises SlurmError. Called in a thread for each connection; must end
        within a bounded time.
    on_error : callable
        Called in those threads with the error of a failed connection, or None after a successful one.
    on_remote_end : callable
        Called in those threads when the remote end closes a connection first, and when no connection remains. The
        remote program may have ended, or may end unnoticed from then on.
    limit : int
        Most connections at once; a further connection is refused.
    carry : callable
        Carries the bytes of a connection: :func:`jupyter_slurm.transport.tunnel.splice.splice`, or one like it.

    Attributes
    ----------
    address : int or str
        Listening address: the port on 127.0.0.1, or the path of the Unix socket.
    """

    def __init__(
        self,
        listener: socket.socket,
        dial: Callable[[], Stream],
        *,
        on_error: Callable[[SlurmError | None], None] = lambda error: None,
        on_remote_end: Callable[[], None] = lambda: None,
        limit: int = 1000,
        carry: Carry = splice,
    ) -> None:
        self._listener, self._dial, self._on_error, self._on_program_end, self._max_connections = (
            listener,
            dial,
            on_error,
            on_remote_end,
            limit,
        )
        self._carry_bytes = carry
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self._refused, self._delays = RefusalCount(), RefusalCount()
        self._workers = DetachedProcesses()  # a reused thread costs a connection less than a new one
        self._waker, self._wakes = socket.socketpair()
        name = listener.getsockname()
        self.address: str | int = str(name) if listener.family == socket.AF_UNIX else int(name[1])
        listener.setblocking(False)
        self._selector = selectors.DefaultSelector()
        self._selector.register(listener, selectors.EVENT_READ)
        self._selector.register(self._wakes, selectors.EVENT_READ)
        threading.Thread(target=self._accept, name="jupyter-slurm-tunnel", daemon=True).start()

    @property
    def connections(self) -> int:
        """Return the number of current connections."""
        return len(self._open)

    def close(self) -> None:
        """Stop listening and break the connections; may be called again."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
            opened = tuple(self._open)
        if isinstance(self.address, str):
            with contextlib.suppress(OSError):
                os.unlink(self.address)
        self._waker.close()
        self._workers.close()
        self._listener.close()  # at once: the port is free on return
        for sock in opened:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # In threads -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with self._wakes, self._selector:
            while not self._is_closed:
                self._selector.select()
                self._accept_pending()

    def _accept_pending(self) -> None:
        """Accept pending connections. Those of other users are refused before anything else happens."""
        while not self._is_closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM) and not self._is_closed:
                    if told := self._delays.add():
                        log.warning("a connection to a tunnel waits: %s%s", error.strerror, told)
                    time.sleep(_RETRY_INTERVAL_S)
                return
            sock.setblocking(True)
            if not is_same_user(sock):
                uid = peer_uid(sock)
                # The user of a connection that has already broken is unknown.
                if uid != -1 and (told := self._refused.add()):
                    log.warning("refused a connection of user %s%s", uid, told)
                reset(sock)
            elif not self._add_connection(sock):
                reset(sock)

    def _add_connection(self, sock: socket.socket) -> bool:
        with self._lock:
            if self._is_closed or len(self._open) >= self._max_connections:
                return False
            self._open.add(sock)
        try:
            self._workers.run(lambda: self._carry(sock))
        except RuntimeError:  # no thread is left
            self._open.discard(sock)
            return False
        return True

    def _carry(self, sock: socket.socket) -> None:
        try:
            if sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            try:
                stream = self._dial()
            except (SlurmError, OSError) as error:
                reset(sock)
                told = (
                    error
                    if isinstance(error, SlurmError)
                    else SlurmError(f"A connection broke: {error}", hint="Try again.")
                )
                self._on_error(told)
            else:
                self._on_error(None)
                self._carry_bytes(sock, stream, self._workers.run, self._on_program_end)
        except (OSError, RuntimeError):
            reset(sock)
        finally:
            with self._lock:
                self._open.discard(sock)
                is_last = not self._open
            if is_last:
                self._on_program_end()
