"""Election of one leader per user and machine: the holder of the lock listens, and leaves a record for the others."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import fcntl
import functools
import json
import os
import secrets
import socket
import stat
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Literal

from jupyter_slurm.agent.hosting.discovery import AgentLocation, open_private, place_to_start, write_private
from jupyter_slurm.agent.hosting.endpoint import endpoint_at
from jupyter_slurm.errors import AgentError

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["LeaderElsewhere", "Leadership"]

_BACKLOG = 128


class LeaderElsewhere(AgentError):
    """Another agent of this user is the leader on this machine; become its client."""

    status = 409


class Leadership:
    """The lock, the listening socket and the files of a leading agent.

    Attributes
    ----------
    place : AgentLocation
        Location of the files.
    secret : str
        Secret that a client on 127.0.0.1 must send; empty on a Unix socket.
    port : int or None
        The TCP port; None on a Unix socket.
    """

    def __init__(self, place: AgentLocation, lock_fd: int) -> None:
        self.place = place
        self.secret = ""
        self.port: int | None = None
        self._lock_fd = lock_fd
        self._listener: socket.socket | None = None
        self._socket_inode = -1
        _leaderships.add(self)

    @classmethod
    async def acquire(cls, settings: Settings, *, timeout: float = 10.0) -> Leadership:
        """Take the lock; wait up to ``patience`` seconds for a predecessor that is about to end.

        Raises
        ------
        LeaderElsewhere
            Another agent answers, or holds the lock for longer.
        """
        _close_in_forks()
        place = place_to_start(settings)
        deadline = asyncio.get_running_loop().time() + timeout
        while True:
            fd = _acquire_lock(place.lock)
            if fd is not None:
                return cls(place, fd)
            if endpoint_at(place) is not None or asyncio.get_running_loop().time() > deadline:
                raise LeaderElsewhere("Another agent of yours leads on this computer.", folder=place.folder)
            await asyncio.sleep(0.05)

    def listen(self, kind: Literal["unix", "tcp"]) -> socket.socket:
        """Open the listening socket; a dead leader's socket file is replaced."""
        if kind == "unix":
            listener = _listen_on_unix_socket(self.place.socket)
            self._socket_inode = os.stat(self.place.socket).st_ino
        else:
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listener.bind(("127.0.0.1", 0))  # without SO_REUSEADDR: no other process can use that port
            listener.setblocking(False)
            listener.listen(_BACKLOG)
            self.secret = secrets.token_urlsafe(32)
            self.port = listener.getsockname()[1]
            write_private(self.place.secret, self.secret.encode())
        self._listener = listener
        return listener

    def write_record(self, record: Mapping[str, object]) -> None:
        """Publish the leader's record."""
        write_private(self.place.record, json.dumps({**record, "port": self.port}).encode())

    def is_intact(self) -> bool:
        """Return whether the files still exist: a logout removes /run/user/UID, a cleaner old files in /tmp."""
        try:
            lock_is_ours = os.stat(self.place.lock).st_ino == os.fstat(self._lock_fd).st_ino
            return lock_is_ours and (self.port is not None or os.stat(self.place.socket).st_ino == self._socket_inode)
        except OSError:
            return False

    def release(self) -> None:
        """Remove the leader's files and release the lock, last."""
        if self.is_intact():
            for path in (self.place.socket, self.place.record, self.place.secret):
                with contextlib.suppress(OSError):
                    os.unlink(path)
        self.close()

    def close(self) -> None:
        """Close the descriptors and leave the files."""
        if self._listener is not None:
            self._listener.close()
        if self._lock_fd >= 0:
            os.close(self._lock_fd)
        self._listener, self._lock_fd = None, -1


def _listen_on_unix_socket(path: str) -> socket.socket:
    """Listen on a Unix socket with mode 0600, in a directory that no other user can enter."""
    # As tornado.netutil.bind_unix_socket does; its import would take as long as a tenth of the agent's other modules.
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(os.lstat(path).st_mode):
            raise FileExistsError(errno.EEXIST, "not a socket", path)
        os.unlink(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.setblocking(False)
    listener.bind(path)
    os.chmod(path, 0o600)
    listener.listen(_BACKLOG)
    return listener


def _acquire_lock(path: str) -> int | None:
    fd = open_private(path, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Between open and flock the directory may have been removed and created again: then this lock protects nothing.
        if os.fstat(fd).st_ino == os.stat(path).st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    except OSError:
        os.close(fd)
        raise
    os.close(fd)
    return None


_leaderships: weakref.WeakSet[Leadership] = weakref.WeakSet()


def _close_in_child() -> None:
    # A fork of a kernel (multiprocessing) would keep lock and socket open after the kernel's death: no agent could
    # lead.
    for leadership in list(_leaderships):
        leadership.close()


@functools.cache
def _close_in_forks() -> None:
    os.register_at_fork(after_in_child=_close_in_child)
