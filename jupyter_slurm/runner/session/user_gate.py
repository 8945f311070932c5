"""Gate on the loopback of a node: only processes of its own user reach the Unix socket behind it.

A port of the loopback is open to all users of a node. For each connection, the system names the user at the other end
(proc(5)). Connections of other users are closed before they reach the server. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("session/user_gate.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
else:
    proc = load("proc")

_PIECE_BYTES = 65_536
_BACKLOG = 64
_RETRY_INTERVAL_S = 0.1  # seconds until the next attempt, if no file descriptor is left
_MAX_BINDS = 20
_HOST = "127.0.0.1"


def is_of_user(near: Any, far: Any, user: int) -> bool:
    """Return whether a process of the user holds the other end of a connection of this node.

    Parameters
    ----------
    near, far : (str, int)
        Addresses of this end and of the other end.
    user : int
        Number of the user.
    """
    wanted = [_in_table(far), _in_table(near)]
    with open("/proc/net/tcp", encoding="ascii") as file:
        for line in file:
            row = line.split()
            if row[1:3] == wanted:
                # A closed socket has the inode 0, and the user 0.
                return int(row[7]) == user and row[9] != "0"
    return False


def _in_table(address: Any) -> str:
    host, port = address
    return f"{int.from_bytes(socket.inet_aton(host), sys.byteorder):08X}:{port:04X}"


class UserGate:
    """Listener on a free port of the loopback.

    Parameters
    ----------
    path : str
        Unix socket of the server.

    Raises
    ------
    proc.NoFreePort
        No port is free.
    """

    def __init__(self, path: str) -> None:
        self._path, self._user = path, os.getuid()
        self._listener = self._bound()
        self.port = int(self._listener.getsockname()[1])

    def open(self) -> None:
        """Start to accept connections, in threads."""
        threading.Thread(target=self._accept, name="gate", daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a waiting accept
        self._listener.close()

    @staticmethod
    def _bound() -> Any:
        for _ in range(_MAX_BINDS):
            listener = socket.socket()
            try:
                listener.bind((_HOST, proc.free_port()))  # without SO_REUSEADDR, no other process shares the port
                listener.listen(_BACKLOG)
                return listener
            except OSError:
                listener.close()
        raise proc.NoFreePort

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            outer: Any = None
            try:
                outer, far = self._listener.accept()
                if is_of_user(outer.getsockname(), far, self._user):
                    threading.Thread(target=self._carry, args=(outer,), daemon=True).start()
                else:
                    outer.close()
            except (OSError, RuntimeError):
                if outer is not None:
                    outer.close()
                time.sleep(_RETRY_INTERVAL_S)

    def _carry(self, outer: Any) -> None:
        """Forward bytes in both directions until both sides have finished, or one has closed."""
        with outer, socket.socket(socket.AF_UNIX) as inner:
            try:
                outer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                inner.connect(self._path)
            except OSError:
                return
            back = threading.Thread(target=_copy, args=(inner, outer), daemon=True)
            back.start()
            _copy(outer, inner)
            back.join()


def _copy(source: Any, target: Any) -> None:
    try:
        while True:
            data = source.recv(_PIECE_BYTES)
            if not data:
                target.shutdown(socket.SHUT_WR)
                return
            target.sendall(data)
    except OSError:
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
