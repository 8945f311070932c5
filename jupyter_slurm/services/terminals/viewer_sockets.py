"""Sockets of this computer for the viewers of terminals; each one serves a single viewer and is then closed."""

from __future__ import annotations

import os
import secrets
import threading
from typing import Final

from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.local.files import make_private
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_socket

__all__ = ["ViewerSockets"]

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
        make_private(self._folder)
        listener = listen_on_socket(os.path.join(self._folder, secrets.token_hex(4)))

        def close_unused() -> None:
            if not forwarder.connections:
                self._close(forwarder)
                stream.close()

        forwarder = Forwarder(listener, lambda: stream, on_remote_end=close_unused, limit=1)
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
