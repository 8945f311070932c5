"""Jump hosts of an OpenSSH connection, by the logins on the route.

``ssh`` starts another ``ssh`` for each jump host (ProxyJump). Those are masters too, as long as they live, so a port of
a jump host needs no further login.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Callable, Sequence
from typing import Final

import paramiko

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.protocols import Connection, Hop
from jupyter_slurm.transport.ssh.via_openssh.control_socket import (
    ControlChannel,
    ControlSocket,
    DialledChannel,
    has_ended,
)
from jupyter_slurm.transport.ssh.via_openssh.login_target import LoginTarget

__all__ = ["Hops", "dial", "hop_paths", "hop_target", "own_socket_path"]

_ANSWER_TIMEOUT_S: Final = 10.0  # seconds


def own_socket_path(target: LoginTarget, route: Sequence[HostConfig], folder: str) -> str:
    """Return the path of the control socket that the own master of a route has."""
    return os.path.join(folder, _stem(target, route))


def _stem(target: LoginTarget, way: Sequence[HostConfig]) -> str:
    """Return a short name for a route: another configuration is another login."""
    hops = [(host.name, host.hostname, host.port, host.user, host.proxy_command) for host in way]
    return "m" + hashlib.sha256(repr((target, hops)).encode()).hexdigest()[:10]


def hop_paths(target: LoginTarget, route: Sequence[HostConfig], folder: str) -> dict[str, str]:
    """Return the control sockets of the jump hosts by name, without hosts for which the user has set a ControlPath."""
    hops = [host for host in route[:-1] if (host.control_path or "none").lower() == "none"]
    return {host.name: os.path.join(folder, f"h{_digest(target, host)}") for host in hops}


def hop_target(target: LoginTarget, route: Sequence[HostConfig], number: int) -> LoginTarget:
    """Return the ssh destination of a jump host, as a user would type it."""
    host, options = route[number], list[str]()
    names = [f"[{hop.name}]" if ":" in hop.name else hop.name for hop in route[:number]]
    before = [f"{hop.user}@{name}:{hop.port}" for hop, name in zip(route, names, strict=False)]
    if before or host.proxy_command is None:
        options = ["-J", ",".join(before) or "none"]
    return LoginTarget(host.name, ("-l", host.user, "-p", str(host.port), *options), target.config_file)


def dial(stream: DialledChannel, host: str, port: int) -> DialledChannel:
    """Connect a stream to a port, and return it; on failure it is closed."""
    try:
        stream.connect(host, port)
    except TimeoutError:
        stream.close()
        raise paramiko.ChannelException(2, "no answer") from None
    except BaseException:
        stream.close()
        raise
    stream.settimeout(None)
    return stream


class _Hop:
    """A running ``ssh`` that another process has started, and that is left alone. It is the wire of its channels."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._watch = ControlSocket(path, _ANSWER_TIMEOUT_S)

    def is_active(self) -> bool:
        """Return whether the process has not been seen to end."""
        return not has_ended(self._watch.socket, 0)

    def join(self, timeout: float | None) -> None:
        """Wait for the command's end."""
        has_ended(self._watch.socket, timeout)

    def open_session(self, timeout: float) -> ControlChannel:
        """Return a session for one command."""
        return ControlChannel(ControlSocket(self._path, timeout), self)

    def dial(self, host: str, port: int, timeout: float) -> DialledChannel:
        """Return a stream to a port of a host, as seen from this host."""
        return dial(DialledChannel(ControlSocket(self._path, timeout), self), host, port)

    def close(self) -> None:
        """Release the host."""
        self._watch.close()


class Hops:
    """The hosts of one connection.

    Parameters
    ----------
    target : LoginTarget
        Target of the connection.
    route : sequence of HostConfig
        Its hosts, the target last.
    folder : str
        Directory of jupyter_slurm's control sockets.
    log_in : callable
        Returns a connection to a jump host, not yet open, if no other route leads to it. Arguments: the destination as
        typed, and the route.
    """

    def __init__(
        self,
        target: LoginTarget,
        route: Sequence[HostConfig],
        folder: str,
        log_in: Callable[[LoginTarget, Sequence[HostConfig]], Connection],
    ) -> None:
        self._target, self._route, self._log_in = target, tuple(route), log_in
        self._paths = hop_paths(target, route, folder)
        self._lock = threading.Lock()
        self._hops: dict[int, _Hop] = {}
        self._connections: dict[int, Connection] = {}
        self._is_closed = False

    def get(self, number: int) -> Hop:
        """Return a host of the route; blocks, perhaps while the user answers."""
        with self._lock:
            found, made = self._hops.get(number), self._connections.get(number)
            if found is not None and found.is_active():
                return found
            if made is not None and made.is_alive:
                return made
            host = self._route[number]
            for path in (host.control_path, self._paths.get(host.name)):
                if path and path.lower() != "none":
                    with contextlib.suppress(OSError, EOFError):
                        self._hops[number] = hop = _Hop(path)
                        return hop
            made = self._log_in(hop_target(self._target, self._route, number), self._route[: number + 1])
            self._connections[number] = made
            if self._is_closed:  # a concurrent close may have missed this connection
                made.close()
            made.open()
            return made

    def close(self, *, keep: bool) -> None:
        """Release all hosts; ``keep``: logins stay."""
        self._is_closed = True
        for found in tuple(self._hops.values()):
            found.close()
        for made in tuple(self._connections.values()):
            made.leave() if keep else made.close()


def _digest(target: LoginTarget, host: HostConfig) -> str:
    return hashlib.sha256(repr((target, host.name, host.hostname, host.port, host.user)).encode()).hexdigest()[:10]
