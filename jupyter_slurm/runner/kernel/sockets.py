"""Sockets of a kernel: in a private folder or, for kernels without Unix sockets, on ports of the node.

Other users can reach ports of the loopback. A kernel authenticates requests by its key, but publishes to every client.
So ports are used only on request of the user. Nothing is sent to a port until the system confirms that the kernel of
this keeper listens on it. Python 3.8+, standard library only.
"""

from __future__ import annotations

import os
import runpy
import socket
from typing import TYPE_CHECKING, Any, Callable, Iterable

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/sockets.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.login_node import relay
else:
    proc = load("proc")
    relay = proc.relay

CHANNELS = ("shell", "control", "stdin", "iopub", "hb")
_HOST = "127.0.0.1"
_CONNECT_TIMEOUT_S = 5.0  # seconds, on the loopback


class KernelStartError(Exception):
    """The kernel cannot start; the message and ``hint`` are for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


class Paths:
    """Sockets in a folder.

    Parameters
    ----------
    folder : str
    """

    transport = "ipc"

    def __init__(self, folder: str) -> None:
        self._stem = os.path.join(folder, "k")

    def connection_info(self) -> dict[str, str | int]:
        """Return the entries of the connection file."""
        numbers = {f"{name}_port": number for number, name in enumerate(CHANNELS, 1)}
        return {"transport": self.transport, "ip": self._stem, **numbers}

    def connect(self, channel: str) -> Any:
        """Connect to a socket; OSError: it does not exist yet. Some kernels use a colon in its name."""
        number = CHANNELS.index(channel) + 1
        names = [f"{self._stem}{mark}{number}" for mark in "-:"]
        sock = socket.socket(socket.AF_UNIX)
        try:
            sock.connect(next((name for name in names if os.path.exists(name)), names[0]))
        except OSError:
            sock.close()
            raise
        return sock

    def are_taken(self) -> bool:
        """Return whether another process has one of the sockets: impossible in a private folder."""
        return False


class Ports:
    """Ports of the loopback that were free a moment ago.

    Parameters
    ----------
    family : callable or None
        Returns the processes that may listen. None: any process of this user, as for a container that is not a
        descendant.
    """

    transport = "tcp"

    def __init__(self, family: Callable[[], Iterable[int]] | None) -> None:
        self._family = family
        free: set[int] = set()
        try:
            while len(free) < len(CHANNELS):
                free.add(proc.free_port())
        except proc.NoFreePort as error:
            raise KernelStartError(str(error), error.hint) from None
        self._numbers = dict(zip(CHANNELS, free))

    def connection_info(self) -> dict[str, str | int]:
        """Return the entries of the connection file."""
        numbers = {f"{name}_port": number for name, number in self._numbers.items()}
        return {"transport": self.transport, "ip": _HOST, **numbers}

    def connect(self, channel: str) -> Any:
        """Connect to a port; OSError: the kernel does not listen yet, or another process does.

        KernelStartError: the port is reachable from the network.
        """
        port = self._numbers[channel]
        if not self._is_ours(port):
            raise ConnectionRefusedError(f"the kernel does not listen on port {port} of {_HOST}")
        sock = socket.create_connection((_HOST, port), _CONNECT_TIMEOUT_S)
        try:
            is_still_ours = self._is_ours(port)  # another process may have taken the port in between
        except BaseException:
            sock.close()
            raise
        if not is_still_ours:
            sock.close()
            raise ConnectionRefusedError(f"the kernel no longer listens on port {port} of {_HOST}")
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return sock

    def _is_ours(self, port: int) -> bool:
        listening: dict[str, str] = proc.listeners(port)
        if self._family is None:
            is_ours = bool(relay.reached(port)[0] == _HOST)
        else:
            is_ours = bool(listening) and listening.keys() <= proc.sockets_of(self._family())
        for address in listening.values():
            if is_ours and not proc.is_loopback(address):
                raise KernelStartError(
                    f"The kernel listens on {address}, which other users can reach over the network.",
                    f"Use a kernel that obeys its connection file and listens on {_HOST}.",
                )
        return is_ours

    def are_taken(self) -> bool:
        """Return whether another process has one of the ports, once the kernel has ended."""
        return any(proc.listeners(port) for port in self._numbers.values())
