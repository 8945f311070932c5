"""The hosts on the way to an OpenSSH that is logged in: by the log-ins that it goes through.

``ssh`` starts another one for each host on the way (ProxyJump). Those are masters, too, as long as they live: so a port
of such a host costs no log-in of its own.
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

__all__ = ["Hops", "dial", "hop_paths", "hop_target", "kept_path"]

_ANSWER: Final = 10.0  # seconds


def kept_path(target: LoginTarget, way: Sequence[HostConfig], folder: str) -> str:
    """Return where the control socket of our own master for a way is, while there is one."""
    return os.path.join(folder, _stem(target, way))


def _stem(target: LoginTarget, way: Sequence[HostConfig]) -> str:
    """Return a short name for a way: another configuration is another log-in."""
    hops = [(host.name, host.hostname, host.port, host.user, host.proxy_command) for host in way]
    return "m" + hashlib.sha256(repr((target, hops)).encode()).hexdigest()[:10]


def hop_paths(target: LoginTarget, way: Sequence[HostConfig], folder: str) -> dict[str, str]:
    """Return where the hosts on the way will listen, by name; not those with a ControlPath of the person's own."""
    hops = [host for host in way[:-1] if (host.control_path or "none").lower() == "none"]
    return {host.name: os.path.join(folder, f"h{_digest(target, host)}") for host in hops}


def hop_target(target: LoginTarget, way: Sequence[HostConfig], number: int) -> LoginTarget:
    """Return what a person would type to log in to a host on the way."""
    host, options = way[number], list[str]()
    names = [f"[{hop.name}]" if ":" in hop.name else hop.name for hop in way[:number]]
    before = [f"{hop.user}@{name}:{hop.port}" for hop, name in zip(way, names, strict=False)]
    if before or host.proxy_command is None:
        options = ["-J", ",".join(before) or "none"]
    return LoginTarget(host.name, ("-l", host.user, "-p", str(host.port), *options), target.config_file)


def dial(stream: DialledChannel, host: str, port: int) -> DialledChannel:
    """Let a stream lead to a port, and return it; it is closed if it cannot."""
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
    """A running ``ssh`` that somebody else has started; it is left alone. It is the wire of its channels."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._watch = ControlSocket(path, _ANSWER)

    def is_active(self) -> bool:
        """Whether it was not seen to have ended."""
        return not has_ended(self._watch.socket, 0)

    def join(self, timeout: float | None) -> None:
        """Wait for its end."""
        has_ended(self._watch.socket, timeout)

    def open_session(self, timeout: float) -> ControlChannel:
        """Return a session for one command."""
        return ControlChannel(ControlSocket(self._path, timeout), self)

    def dial(self, host: str, port: int, timeout: float) -> DialledChannel:
        """Return a stream to what listens on a port of a host, as this one sees it."""
        return dial(DialledChannel(ControlSocket(self._path, timeout), self), host, port)

    def close(self) -> None:
        """Let go of it."""
        self._watch.close()


class Hops:
    """The hosts that one connection goes through.

    Parameters
    ----------
    target : LoginTarget
        Where that leads.
    way : sequence of HostConfig
        Its hosts, the one that is meant last.
    folder : str
        Where our own control sockets are.
    log_in : callable
        Returns a connection to a host on the way that is not open yet, for where nothing else leads there; it is given
        what a person would type, and the way.
    """

    def __init__(
        self,
        target: LoginTarget,
        way: Sequence[HostConfig],
        folder: str,
        log_in: Callable[[LoginTarget, Sequence[HostConfig]], Connection],
    ) -> None:
        self._target, self._way, self._log_in = target, tuple(way), log_in
        self._paths = hop_paths(target, way, folder)
        self._lock = threading.Lock()
        self._found: dict[int, _Hop] = {}
        self._made: dict[int, Connection] = {}
        self._is_closed = False

    def get(self, number: int) -> Hop:
        """Return one of them; blocks, perhaps while a person answers."""
        with self._lock:
            found, made = self._found.get(number), self._made.get(number)
            if found is not None and found.is_active():
                return found
            if made is not None and made.is_alive:
                return made
            host = self._way[number]
            for path in (host.control_path, self._paths.get(host.name)):
                if path and path.lower() != "none":
                    with contextlib.suppress(OSError, EOFError):
                        self._found[number] = hop = _Hop(path)
                        return hop
            made = self._log_in(hop_target(self._target, self._way, number), self._way[: number + 1])
            self._made[number] = made
            if self._is_closed:  # whoever has closed it may not have seen that one
                made.close()
            made.open()
            return made

    def close(self, *, keep: bool) -> None:
        """Let go of all of them; ``keep``: log-ins stay."""
        self._is_closed = True
        for found in tuple(self._found.values()):
            found.close()
        for made in tuple(self._made.values()):
            made.leave() if keep else made.close()


def _digest(target: LoginTarget, host: HostConfig) -> str:
    return hashlib.sha256(repr((target, host.name, host.hostname, host.port, host.user)).encode()).hexdigest()[:10]
