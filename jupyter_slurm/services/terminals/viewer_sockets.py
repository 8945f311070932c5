"""Sockets of this computer for the viewers of terminals; each one serves a single viewer and is then closed.

The bytes of a viewer pass through this process, unless the connection to the terminal has file descriptors that another
process can use, and the viewer asks for them by a frame ``f`` as its first one. The answer is the same frame with the
descriptors to read and to write (SCM_RIGHTS). Of such a viewer, the socket only ends.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import threading
from collections.abc import Callable
from typing import Final

from jupyter_slurm.runner.terminal.keeper import HEAD
from jupyter_slurm.transport.base import Stream, has_files
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_socket
from jupyter_slurm.transport.tunnel.splice import splice

__all__ = ["FILES_FRAME", "ViewerSockets"]

FILES_FRAME: Final = HEAD.pack(b"f", 0)
_FIRST_FRAME_TIMEOUT_S: Final = 1.0  # seconds for a viewer to ask; until then, it gets no output

_CONNECTION_TIMEOUT_S: Final = 60.0  # seconds in which the viewer has to connect


class ViewerSockets:
    """Sockets in a private folder.

    Parameters
    ----------
    folder : str
        Folder of the sockets, readable only by the user, on a local disk.
    timeout : float
        Seconds in which a viewer has to connect.
    """

    def __init__(self, folder: str, timeout: float = _CONNECTION_TIMEOUT_S) -> None:
        self._folder, self._timeout = folder, timeout
        self._forwarders: dict[Forwarder, threading.Timer] = {}

    @property
    def viewers(self) -> int:
        """Return the number of connected viewers."""
        return sum(forwarder.connections for forwarder in tuple(self._forwarders))

    @property
    def count(self) -> int:
        """Return the number of open sockets."""
        return len(self._forwarders)

    def open(self, stream: Stream) -> str:
        """Return the path of a new socket; its only connection leads to the stream, which ends with the socket."""
        listener = listen_on_socket(os.path.join(self._folder, secrets.token_hex(4)))

        def close_unused() -> None:
            if not forwarder.connections:
                self._close(forwarder)
                stream.close()

        carry = _hand_over if has_files(stream) else splice
        forwarder = Forwarder(listener, lambda: stream, on_remote_end=close_unused, limit=1, carry=carry)
        timer = self._forwarders[forwarder] = threading.Timer(self._timeout, close_unused)
        timer.daemon = True
        timer.start()
        return str(forwarder.address)

    def close(self) -> None:
        """Close all sockets."""
        for forwarder in tuple(self._forwarders):
            self._close(forwarder)

    def _close(self, forwarder: Forwarder) -> None:
        if (timer := self._forwarders.pop(forwarder, None)) is not None:
            timer.cancel()
        forwarder.close()


def _hand_over(
    sock: socket.socket,
    stream: Stream,
    run: Callable[[Callable[[], None]], None],
    on_remote_end: Callable[[], None],
) -> None:
    """Hand the files of a stream to a viewer that asks for them, and wait for its end; else carry the bytes."""
    if not has_files(stream) or not _asks_for_files(sock):
        splice(sock, stream, run, on_remote_end)
        return
    with sock:
        try:
            output, entry = stream.duplicates()
            with output, entry:
                socket.send_fds(sock, [FILES_FRAME], [output.fileno(), entry.fileno()])
            while sock.recv(len(FILES_FRAME)):
                pass
        finally:
            stream.close()


def _asks_for_files(sock: socket.socket) -> bool:
    """Return whether the first frame of a viewer asks for files; it is then read."""
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    if not poll.poll(_FIRST_FRAME_TIMEOUT_S * 1000) or sock.recv(len(FILES_FRAME), socket.MSG_PEEK) != FILES_FRAME:
        return False
    sock.recv(len(FILES_FRAME))
    return True
