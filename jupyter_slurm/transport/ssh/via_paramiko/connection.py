"""One SSH connection through all hosts of a way, made with blocking calls.

Tuning: see the measurements beside :func:`_tune`. Sources: RFC 4253, RFC 4254, ssh_config(5), tcp(7).
"""

from __future__ import annotations

import contextlib
import logging
import socket
import struct
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import paramiko

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import LinkLost
from jupyter_slurm.transport.ssh.via_paramiko.channel_stream import ChannelStream
from jupyter_slurm.transport.ssh.via_paramiko.packetizer import packetizer_class
from jupyter_slurm.transport.ssh.via_paramiko.proxy_command import ProxyCommand
from jupyter_slurm.transport.ssh.via_paramiko.receive_buffer import keep_in_pieces

__all__ = ["PACKET", "WINDOW", "HostChain", "HostVerifier", "tcp"]

WINDOW = 4 << 20  # bytes: long links are filled; more makes the far sshd burn its processor
_WINDOW_BEHIND = 6 << 20  # through other hosts: one connection's send buffer (4 MiB) must not swallow all of it
PACKET = 32 << 10  # bytes
_PING = "keepalive@openssh.com"  # every server answers a request, if only to say that it does not know it
_CONNECT = 30.0  # seconds for each step that needs no person
_USER_TIMEOUT = 15_000  # ms that sent data may stay without an acknowledgement
_NO_ANSWER, _NO_SESSION = 2, 4  # SSH_OPEN_CONNECT_FAILED, SSH_OPEN_RESOURCE_SHORTAGE
_CIPHERS = (
    "aes128-gcm@openssh.com",  # twice as fast as the others here; paramiko lists it last
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
    "aes192-ctr",
)

# What ends a connection is told in our words; paramiko logs it with a traceback, and what the server said as it is.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


@dataclass(frozen=True)
class HostVerifier:
    """Who is let through: two checks for each host, called in a thread, which may wait for a person.

    Attributes
    ----------
    verify : callable
        Is given the host and its key before anything is told to it; raises when that key is not the host's.
    login : callable
        Authenticates on a transport that has been verified; raises when it cannot.
    key_types : callable
        The types of the keys that are known of a host, for it to show one of those (``HostKeyAlgorithms``).
    """

    verify: Callable[[HostConfig, paramiko.PKey], None]
    login: Callable[[HostConfig, paramiko.Transport], None]
    key_types: Callable[[HostConfig], Sequence[str]] = lambda host: ()


class _Hop:
    """A host that is logged in to."""

    def __init__(self, transport: paramiko.Transport, window: int) -> None:
        self._transport, self._window = transport, window

    def open_session(self, timeout: float) -> paramiko.Channel:
        """Return a session for one command."""
        try:
            session = self._transport.open_session(window_size=self._window, max_packet_size=PACKET, timeout=timeout)
        except paramiko.SSHException as error:
            raise self._no(error, _NO_SESSION) from None
        return keep_in_pieces(session)

    def dial(self, host: str, port: int, timeout: float) -> ChannelStream:
        """Return a stream to what listens on a port of a host, as this one sees it."""
        here = ("127.0.0.1", 0)
        try:
            channel = self._transport.open_channel("direct-tcpip", (host, port), here, self._window, PACKET, timeout)
        except paramiko.SSHException as error:
            raise self._no(error, _NO_ANSWER) from None
        return ChannelStream(keep_in_pieces(channel))

    def _no(self, error: paramiko.SSHException, code: int) -> paramiko.SSHException:
        """Return what became of a channel that was not opened.

        paramiko keeps one reason for all who ask at the same time: who comes second is told less. A host that does not
        answer to its server is no sign that the server itself is gone.
        """
        lost = isinstance(error, paramiko.ChannelException) or not self._transport.is_active()
        if lost or (code == _NO_SESSION and "Timeout" in str(error)):
            return error
        return paramiko.ChannelException(code, "no answer" if "Timeout" in str(error) else str(error))


class HostChain:
    """The transports of a way, the nearest first; the last one is what the way is for.

    Parameters
    ----------
    way : sequence of HostConfig
        The hosts to go through, the one that is meant last.
    gate : HostVerifier
        Checks host keys and logs in.
    reach : callable, optional
        Returns a socket to the first host, or what is like one; by default a TCP connection from here.
    """

    def __init__(
        self, way: Sequence[HostConfig], gate: HostVerifier, reach: Callable[[HostConfig, float], Any] | None = None
    ) -> None:
        self._way, self._gate, self._reach = tuple(way), gate, reach or tcp
        self._hops: list[paramiko.Transport] = []
        self._proxy: ProxyCommand | None = None  # to the first host only
        self._is_closed = False
        self.since = time.time()

    @property
    def last(self) -> paramiko.Transport:
        """The transport of the host at the end."""
        return self._hops[-1]

    @property
    def is_alive(self) -> bool:
        """Whether nothing was seen to be broken; a link that drops everything still looks alive."""
        return bool(self._hops) and all(hop.is_active() for hop in self._hops)

    def open(self) -> None:
        """Connect through all hosts, in this thread; :meth:`close` from another one ends this.

        Raises
        ------
        SlurmError
            What the checks raise, as it is.
        LinkLost
            A host cannot be reached: in a moment it may be.
        """
        for host in self._way:
            try:
                self._extend(host)
            except BaseException as error:
                told = self._told(host, error)
                self.close()
                if told is not None:
                    raise told from error
                raise
        if self._is_closed:  # while the last one could not be closed yet
            self.close()
        self.since = time.time()

    def ask(self) -> None:
        """Ask the far side whether it is there, and wait for its answer; closing ends the wait."""
        self.last.global_request(_PING, wait=True)

    def hop(self, number: int) -> _Hop:
        """Return a host of the way."""
        transport = self._hops[number]
        return _Hop(transport, WINDOW if transport is self._hops[0] else _WINDOW_BEHIND)

    def open_session(self, timeout: float) -> paramiko.Channel:
        """Return a session for one command."""
        return self.hop(-1).open_session(timeout)

    def dial(self, host: str, port: int, timeout: float) -> ChannelStream:
        """Return a stream to what listens on a port of a host, as the host at the end sees it."""
        return self.hop(-1).dial(host, port, timeout)

    def leave(self) -> None:
        """End it: it lives in this process."""
        self.close()

    def close(self) -> None:
        """End it from the near end, so that no goodbye has to travel; may be called from any thread, and again.

        What was sent and has not arrived is taken back: a command must not begin when everybody has given it up.
        """
        self._is_closed = True
        if self._hops and isinstance(self._hops[0].sock, socket.socket):
            with contextlib.suppress(OSError):
                self._hops[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for hop in self._hops:
            with contextlib.suppress(Exception):  # paramiko may be in the middle of dying
                hop.close()
        if self._proxy is not None:
            self._proxy.close()

    def _extend(self, host: HostConfig) -> None:
        sock = self._socket(host)
        try:
            transport = paramiko.Transport(
                sock,
                default_window_size=WINDOW,
                default_max_packet_size=PACKET,
                packetizer_class=packetizer_class(),
            )
            _tune(transport, host, self._gate.key_types(host))
        except BaseException:
            sock.close()
            raise
        self._hops.append(transport)
        transport.start_client(timeout=host.connect_timeout or _CONNECT)
        if self._is_closed:  # while that one could not be closed yet
            raise LinkLost(f"the connection to {host.label} was closed", host=host.name)
        self._gate.verify(host, transport.get_remote_server_key())
        self._gate.login(host, transport)
        if not transport.is_authenticated():
            raise TransportError(f"{host.label} did not let us in", host=host.name)

    def _told(self, host: HostConfig, error: BaseException) -> TransportError | None:
        """Return in our words why a host is not reached, before what there is of the way is taken down."""
        # That it speaks another version of SSH may be anything that listens there.
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer) and "no acceptable" in str(error):
            return _no_common(host, printable(str(error), 500))
        if isinstance(error, paramiko.AuthenticationException) and self.is_alive:
            return TransportError(f"{host.label} did not let us in: {printable(str(error), 500)}", host=host.name)
        if isinstance(error, OSError | paramiko.SSHException | EOFError):
            return self._lost(host, error)
        return None

    def _lost(self, host: HostConfig, error: Exception) -> LinkLost:
        if self._proxy is not None and host is self._way[0] and not self._is_closed:
            return self._proxy.failure(_said(error))
        return _unreachable(host, error)

    def _socket(self, host: HostConfig) -> Any:
        timeout = host.connect_timeout or _CONNECT
        if host.proxy_command:
            self._proxy = ProxyCommand(host)
            return self._proxy.sock
        if self._hops:
            target = (host.hostname, host.port)
            return keep_in_pieces(self.last.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=timeout))
        return self._reach(host, timeout)


def tcp(host: HostConfig, timeout: float) -> socket.socket:
    """Return a connection from here to a host, as its entry in ``~/.ssh/config`` wants it."""
    wanted = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(host.address_family, socket.AF_UNSPEC)
    reason: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host.hostname, host.port, wanted, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # 45 ms for each small answer without it
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT)
            if host.bind_address:
                sock.bind((host.bind_address, 0))
            sock.connect(address)
        except OSError as error:
            sock.close()
            reason = error
        else:
            return sock
    raise reason or OSError(f"{host.hostname} has no address")


def _tune(transport: paramiko.Transport, host: HostConfig, known: Sequence[str]) -> None:
    """Choose algorithms: of those that the configuration allows and paramiko has, the fastest cipher first."""
    options = transport.get_security_options()
    quick = [*(name for name in _CIPHERS if name in options.ciphers), *options.ciphers]
    options.ciphers = _allowed(quick, host.ciphers, host, "Ciphers")
    options.digests = _allowed(options.digests, host.macs, host, "MACs")
    options.kex = _allowed(options.kex, host.kex, host, "KexAlgorithms")
    # The key that is known is asked for first, as OpenSSH does: a host has several.
    certified = (name for name in known if name in options.key_types or name.endswith("-cert-v01@openssh.com"))
    keys = [*certified, *options.key_types]
    options.key_types = _allowed(keys, host.host_key_algorithms, host, "HostKeyAlgorithms")


def _allowed(ours: Sequence[str], theirs: Sequence[str], host: HostConfig, word: str) -> tuple[str, ...]:
    """Return those of ours that the configuration allows, each once; all of them when it says nothing."""
    allowed = tuple(dict.fromkeys(name for name in ours if not theirs or name in theirs))
    if not allowed:
        raise _no_common(host, f"of {word} in ~/.ssh/config it has none")
    return allowed


def _no_common(host: HostConfig, reason: str) -> TransportError:
    """Return the error for algorithms that one side lacks: to try again would be the same again."""
    return TransportError(
        f"{host.label} cannot be spoken to by paramiko: {reason}",
        hint='OpenSSH has more algorithms: set carrier = "openssh" under [login] in the profile. Should that fail, '
        "too, the server is old, or ~/.ssh/config restricts them: ask the site.",
        host=host.name,
    )


def _said(error: Exception) -> str:
    text = error.text if isinstance(error, paramiko.ChannelException) else str(error)
    return printable(text or "", 500) or (
        "it closed the connection" if isinstance(error, EOFError) else type(error).__name__
    )


def _unreachable(host: HostConfig, error: Exception) -> LinkLost:
    hint = "Is this machine on line, and in the VPN where the site wants that?"
    reason = _said(error)
    if isinstance(error, socket.gaierror):
        reason = f"the name {host.hostname} is not known"
    elif isinstance(error, TimeoutError):
        reason = "no answer"
    elif isinstance(error, ConnectionRefusedError):
        reason, hint = "connection refused", f"Does an SSH server listen there on port {host.port}?"
    elif isinstance(error, paramiko.ChannelException):
        before = host.through[-1] if host.through else "the host before it"
        hint = f"Is the name right, and may {before} forward connections (AllowTcpForwarding)?"
    return LinkLost(f"{host.label} cannot be reached: {reason}", hint=hint, host=host.name)
