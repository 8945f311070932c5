"""The local end of a tunnel: accepts connections of this user, and carries each to the far end."""

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
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.local.detached import DetachedProcesses
from jupyter_slurm.transport.peer_credentials import is_ours, peer_uid
from jupyter_slurm.transport.tunnel.splice import reset, splice

__all__ = ["Forwarder"]

log = logging.getLogger(__name__)

_BREATH = 0.1  # seconds until a process without free file descriptors tries again


class Forwarder:
    """Carries the connections of one listener.

    Parameters
    ----------
    listener : socket
        It is ours from now on.
    dial : callable
        Returns a new stream to the far end, or raises SlurmError; called in a thread for each connection, and it must
        end within a bounded time.
    told : callable
        Is given the error of a connection that could not be made, and None after one that could; in those threads.
    left : callable
        Is called when the far side ends a connection first, and when none is left: its program may have gone, or may go
        unseen from now on; in those threads.
    most : int
        Connections at once; one more is turned away.

    Attributes
    ----------
    address : int or str
        Where it listens: the port on 127.0.0.1, or the path of the Unix socket.
    """

    def __init__(
        self,
        listener: socket.socket,
        dial: Callable[[], Stream],
        *,
        told: Callable[[SlurmError | None], None] = lambda error: None,
        left: Callable[[], None] = lambda: None,
        most: int = 1000,
    ) -> None:
        self._listener, self._dial, self._told, self._left, self._most = listener, dial, told, left, most
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._is_closed = False
        self._workers = DetachedProcesses()  # a thread that is used again costs a connection less than a new one
        self._waker, self._wakes = socket.socketpair()
        name = listener.getsockname()
        self.address: str | int = str(name) if listener.family == socket.AF_UNIX else int(name[1])
        listener.setblocking(False)
        self._ready = selectors.DefaultSelector()
        self._ready.register(listener, selectors.EVENT_READ)
        self._ready.register(self._wakes, selectors.EVENT_READ)
        threading.Thread(target=self._accept, name="jupyter-slurm-tunnel", daemon=True).start()

    @property
    def connections(self) -> int:
        """How many there are now."""
        return len(self._open)

    def close(self) -> None:
        """Stop listening and break off the connections; may be called again."""
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
        self._listener.close()  # at once: the port is free when this returns
        for sock in opened:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)

    # In threads -------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        with self._wakes, self._ready:
            while not self._is_closed:
                self._ready.select()
                self._take()

    def _take(self) -> None:
        """Accept what has come; strangers are turned away before anything else happens."""
        while not self._is_closed:
            try:
                sock, _ = self._listener.accept()
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM) and not self._is_closed:
                    log.warning("a connection to a tunnel waits: %s", error.strerror)
                    time.sleep(_BREATH)
                return
            sock.setblocking(True)
            if not is_ours(sock):
                uid = peer_uid(sock)
                # Of a connection that has broken already nobody can say whose it was.
                log.log(logging.DEBUG if uid == -1 else logging.WARNING, "refused a connection of user %s", uid)
                reset(sock)
            elif not self._keep(sock):
                reset(sock)

    def _keep(self, sock: socket.socket) -> bool:
        with self._lock:
            if self._is_closed or len(self._open) >= self._most:
                return False
            self._open.add(sock)
        try:
            self._workers.run(lambda: self._carry(sock))
        except RuntimeError:  # no more threads
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
                told = error if isinstance(error, SlurmError) else SlurmError(f"a connection broke: {error}")
                self._told(told)
            else:
                self._told(None)
                splice(sock, stream, self._workers.run, self._left)
        except (OSError, RuntimeError):
            reset(sock)
        finally:
            with self._lock:
                self._open.discard(sock)
                is_last = not self._open
            if is_last:
                self._left()
