"""SSH connection through all hosts of a route, made with blocking calls.

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

from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.config.algorithms import DEFAULTS
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.protocols import ClosedEarly, LinkLost
from jupyter_slurm.transport.ssh.via_paramiko.channels import ChannelStream, use_piecewise_buffer
from jupyter_slurm.transport.ssh.via_paramiko.packetizer import OrderlyTransport, packetizer_class
from jupyter_slurm.transport.ssh.via_paramiko.proxy_command import ProxyCommand

__all__ = ["PACKET_BYTES", "WINDOW_BYTES", "HostChain", "HostVerifier", "tcp"]

WINDOW_BYTES = 4 << 20  # bytes: fills long links; more costs the remote sshd processor time
_JUMP_WINDOW_BYTES = 6 << 20  # through other hosts: must exceed one connection's send buffer (4 MiB)
PACKET_BYTES = 32 << 10  # bytes
_PING = "keepalive@openssh.com"  # every server answers the request, if only with a failure
_CONNECT_TIMEOUT_S = 30.0  # seconds for each step without the user
_USER_TIMEOUT_MS = 15_000  # ms that sent data may stay unacknowledged
_NO_ANSWER, _NO_SESSION = 2, 4  # SSH_OPEN_CONNECT_FAILED, SSH_OPEN_RESOURCE_SHORTAGE
_CIPHERS = (
    "aes128-gcm@openssh.com",  # twice as fast as the others on this list; paramiko lists it last
    "aes256-gcm@openssh.com",
    "aes128-ctr",
    "aes256-ctr",
    "aes192-ctr",
)

# Words of paramiko's error: the keyword of ssh_config(5), and paramiko's table of these algorithms.
_KEYWORDS = {
    "kex algorithm": ("KexAlgorithms", "_kex_info"),
    "host key": ("HostKeyAlgorithms", "_key_info"),
    "ciphers": ("Ciphers", "_cipher_info"),
    "macs": ("MACs", "_mac_info"),
}

# jupyter_slurm reports the end of a connection itself; paramiko logs a traceback, and the server's text unfiltered.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
logging.getLogger("paramiko").propagate = False


@dataclass(frozen=True)
class HostVerifier:
    """Decisions about a connection: two checks for each host, called in a thread, which may wait for the user.

    Attributes
    ----------
    verify : callable
        Called with the host and its key before anything is sent; raises if the key is not the host's.
    login : callable
        Authenticates on a verified transport; raises on failure.
    key_types : callable
        Returns the types of a host's known keys, so that the host offers one of them (``HostKeyAlgorithms``).
    """

    verify: Callable[[HostConfig, paramiko.PKey], None]
    login: Callable[[HostConfig, paramiko.Transport], None]
    key_types: Callable[[HostConfig], Sequence[str]] = lambda host: ()


class _Hop:
    """A host with a completed login."""

    def __init__(self, transport: paramiko.Transport, window: int) -> None:
        self._transport, self._window = transport, window

    def open_session(self, timeout: float) -> paramiko.Channel:
        """Return a session for one command."""
        try:
            session = self._transport.open_session(
                window_size=self._window, max_packet_size=PACKET_BYTES, timeout=timeout
            )
        except paramiko.SSHException as error:
            raise self._no(error, _NO_SESSION) from None
        return use_piecewise_buffer(session)

    def dial(self, host: str, port: int, timeout: float) -> ChannelStream:
        """Return a stream to a port of a host, as seen from this host."""
        here = ("127.0.0.1", 0)
        try:
            channel = self._transport.open_channel(
                "direct-tcpip", (host, port), here, self._window, PACKET_BYTES, timeout
            )
        except paramiko.SSHException as error:
            raise self._no(error, _NO_ANSWER) from None
        return ChannelStream(use_piecewise_buffer(channel))

    def _no(self, error: paramiko.SSHException, code: int) -> paramiko.SSHException:
        """Return the error of a channel that was not opened.

        paramiko keeps one reason for all concurrent requests, so the second caller learns less. If a target does not
        answer to the server, the server itself may still be alive.
        """
        lost = isinstance(error, paramiko.ChannelException) or not self._transport.is_active()
        if lost or (code == _NO_SESSION and "Timeout" in str(error)):
            return error
        return paramiko.ChannelException(code, "no answer" if "Timeout" in str(error) else str(error))


class _LateAnswer(LinkLost):
    """The host hung up while the user was asked about its key."""


class HostChain:
    """The transports of a route, the nearest first; the last is that of the target.

    Parameters
    ----------
    route : sequence of HostConfig
        The hosts of the route, the target last.
    gate : HostVerifier
        Checks host keys and logs in.
    reach : callable, optional
        Returns a socket (or similar object) to the first host; by default a direct TCP connection.
    """

    def __init__(
        self, route: Sequence[HostConfig], gate: HostVerifier, reach: Callable[[HostConfig, float], Any] | None = None
    ) -> None:
        self._route, self._gate, self._reach = tuple(route), gate, reach or tcp
        self._hops: list[paramiko.Transport] = []
        self._proxy: ProxyCommand | None = None  # only to the first host
        self._is_closed = False
        self.since = time.time()

    @property
    def last(self) -> paramiko.Transport:
        """Return the transport of the target."""
        return self._hops[-1]

    @property
    def is_alive(self) -> bool:
        """Return whether no break was detected. A link that drops all packets still looks alive."""
        return bool(self._hops) and all(hop.is_active() for hop in self._hops)

    def open(self) -> None:
        """Connect through all hosts, in this thread; :meth:`close` in another thread ends the attempt.

        Raises
        ------
        SlurmError
            An error of the checks, unchanged.
        LinkLost
            A host cannot be reached; a new attempt may succeed.
        """
        for host in self._route:
            try:
                self._extend_in_time(host)
            except BaseException as error:
                told = self._connection_error(host, error)
                self.close()
                if told is not None:
                    raise told from error
                raise
        if self._is_closed:  # before the last transport could be closed
            self.close()
        self.since = time.time()

    def probe(self) -> None:
        """Check the remote host, and wait for its answer; closing ends the wait."""
        self.last.global_request(_PING, wait=True)

    def hop(self, number: int) -> _Hop:
        """Return a host of the route."""
        transport = self._hops[number]
        return _Hop(transport, WINDOW_BYTES if transport is self._hops[0] else _JUMP_WINDOW_BYTES)

    def open_session(self, timeout: float) -> paramiko.Channel:
        """Return a session for one command."""
        return self.hop(-1).open_session(timeout)

    def dial(self, host: str, port: int, timeout: float) -> ChannelStream:
        """Return a stream to a port of a host, as seen from the target."""
        return self.hop(-1).dial(host, port, timeout)

    def leave(self) -> None:
        """Close the connection, because its login lives in this process."""
        self.close()

    def close(self) -> None:
        """Close the connection without sending a farewell; may be called from any thread, any number of times.

        Data that was sent and has not arrived is discarded: a command must not begin after all callers have given it
        up.
        """
        self._is_closed = True
        if self._hops and isinstance(self._hops[0].sock, socket.socket):
            with contextlib.suppress(OSError):
                self._hops[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        for hop in self._hops:
            with contextlib.suppress(Exception):  # paramiko may be shutting down
                hop.close()
        if self._proxy is not None:
            self._proxy.close()

    def _extend_in_time(self, host: HostConfig) -> None:
        """Connect to the next host; once more if the user accepted its key after it had hung up."""
        try:
            self._extend(host)
        except _LateAnswer:
            if self._is_closed:
                raise
            self._hops.pop().close()
            if self._proxy is not None and not self._hops:
                self._proxy.close()
            self._extend(host)

    def _extend(self, host: HostConfig) -> None:
        sock = self._socket(host)
        try:
            transport = OrderlyTransport(
                sock,
                default_window_size=WINDOW_BYTES,
                default_max_packet_size=PACKET_BYTES,
                packetizer_class=packetizer_class(),
            )
            _tune(transport, host, self._gate.key_types(host))
        except BaseException:
            sock.close()
            raise
        self._hops.append(transport)
        transport.start_client(timeout=host.connect_timeout or _CONNECT_TIMEOUT_S)
        if self._is_closed:  # before that transport could be closed
            raise LinkLost(f"The connection to {host.label} was closed.", host=host.name)
        self._gate.verify(host, transport.get_remote_server_key())
        if not transport.is_active():  # LoginGraceTime: the key is known now, so the user is not asked again
            raise _LateAnswer(f"{host.label} hung up before its key was accepted.", host=host.name)
        self._gate.login(host, transport)
        if not transport.is_authenticated():
            raise TransportError(
                f"Login to {host.label} failed.",
                hint=f"Run `ssh {host.name}` in a terminal to see the cause. See {page_url('how-to/log-in')}",
                host=host.name,
            )

    def _connection_error(self, host: HostConfig, error: BaseException) -> TransportError | None:
        """Return the error for an unreachable host, before the existing part of the route is closed."""
        # Another version of SSH may be any program that listens on the port.
        if isinstance(error, paramiko.ssh_exception.IncompatiblePeer) and "no acceptable" in str(error):
            return _incompatible(host, self._hops[-1], str(error))
        if isinstance(error, paramiko.AuthenticationException) and self.is_alive:
            return TransportError(
                f"Login to {host.label} failed: {printable(str(error), 500)}",
                hint=f"Run `ssh {host.name}` in a terminal to see the cause. See {page_url('how-to/log-in')}",
                host=host.name,
            )
        if isinstance(error, OSError | paramiko.SSHException | EOFError):
            return self._lost(host, error)
        return None

    def _lost(self, host: HostConfig, error: Exception) -> LinkLost:
        if self._proxy is not None and host is self._route[0] and not self._is_closed:
            return self._proxy.failure(_error_text(error))
        return _unreachable(host, error)

    def _socket(self, host: HostConfig) -> Any:
        timeout = host.connect_timeout or _CONNECT_TIMEOUT_S
        if host.proxy_command:
            self._proxy = ProxyCommand(host)
            return self._proxy.sock
        if self._hops:
            target = (host.hostname, host.port)
            return use_piecewise_buffer(
                self.last.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=timeout)
            )
        return self._reach(host, timeout)


def tcp(host: HostConfig, timeout: float) -> socket.socket:
    """Return a direct connection to a host, with the settings of its entry in ``~/.ssh/config``."""
    wanted = {"inet": socket.AF_INET, "inet6": socket.AF_INET6}.get(host.address_family, socket.AF_UNSPEC)
    reason: OSError | None = None
    for family, kind, protocol, _, address in socket.getaddrinfo(host.hostname, host.port, wanted, socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # without it, 45 ms for each small answer
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _USER_TIMEOUT_MS)
            if host.bind_address:
                sock.bind((host.bind_address, 0))
            sock.connect(address)
        except OSError as error:
            sock.close()
            reason = error
        else:
            return sock
    raise reason or OSError(f"{host.hostname} has no address")


def _tune(transport: paramiko.Transport, host: HostConfig, known_types: Sequence[str]) -> None:
    """Choose algorithms among those that the configuration or OpenSSH allows and paramiko has, fast ciphers first."""
    options = transport.get_security_options()
    quick = [*(name for name in _CIPHERS if name in options.ciphers), *options.ciphers]
    options.ciphers = _allowed(quick, host.ciphers, host, "Ciphers")
    options.digests = _allowed(options.digests, host.macs, host, "MACs")
    options.kex = _allowed(options.kex, host.kex, host, "KexAlgorithms")
    # The known key is requested first, as in OpenSSH: a host has several.
    certified = (name for name in known_types if name in options.key_types or name.endswith("-cert-v01@openssh.com"))
    keys = [*certified, *options.key_types]
    options.key_types = _allowed(keys, host.host_key_algorithms, host, "HostKeyAlgorithms")


def _allowed(
    own_algorithms: Sequence[str], remote_algorithms: Sequence[str], host: HostConfig, text: str
) -> tuple[str, ...]:
    """Return the supported names that the configuration allows, each once; if it sets none, those of OpenSSH."""
    wanted = remote_algorithms or DEFAULTS[text.lower()]
    allowed = tuple(dict.fromkeys(name for name in own_algorithms if name in wanted))
    if not allowed:
        raise _no_common(host, f"it supports none of the {text} in ~/.ssh/config")
    return allowed


def _incompatible(host: HostConfig, transport: paramiko.Transport, reason: str) -> TransportError:
    """Return the error for a server that has none of the offered algorithms; weak ones of the server are named."""
    keyword = next((name for part, (name, _) in _KEYWORDS.items() if part in reason), "")
    offered = getattr(transport.packetizer, "server_algorithms", {}).get(keyword, ())
    if not offered or any(name in DEFAULTS[keyword.lower()] for name in offered):
        return _no_common(host, printable(reason, 500))
    own = getattr(transport, next(table for name, table in _KEYWORDS.values() if name == keyword), {})
    usable = [name for name in offered if name in own]
    carrier = "" if usable else ' and set carrier = "openssh" under [login] in the profile'
    return TransportError(
        f"{host.label} was not used, because its SSH server offers no {keyword} that OpenSSH uses by default, only "
        f"{printable(', '.join(offered), 300)}.",
        hint="Ask the administrators to update the SSH server. To connect nevertheless, add "
        f"`{keyword} +{printable((usable or list(offered))[0], 60)}` under `Host {host.name}` in "
        f"~/.ssh/config{carrier}.",
        host=host.name,
    )


def _no_common(host: HostConfig, reason: str) -> TransportError:
    """Return the error for missing common algorithms: a second attempt would fail too."""
    return TransportError(
        f"The library paramiko cannot connect to {host.label}: {reason}.",
        hint='Set carrier = "openssh" under [login] in the profile, because OpenSSH has more algorithms. '
        "If that fails too, the server is old or ~/.ssh/config restricts the algorithms: ask the "
        "administrators.",
        host=host.name,
    )


def _error_text(error: Exception) -> str:
    text = error.text if isinstance(error, paramiko.ChannelException) else str(error)
    return printable(text or "", 500) or (
        "it closed the connection" if isinstance(error, EOFError) else type(error).__name__
    )


def _unreachable(host: HostConfig, error: Exception) -> LinkLost:
    hint = "Check the network of this computer, and the VPN if the site needs one."
    reason = _error_text(error)
    if isinstance(error, socket.gaierror):
        reason = f"the name {host.hostname} is unknown"
    elif isinstance(error, TimeoutError):
        reason = "no answer"
    elif isinstance(error, ConnectionRefusedError):
        reason, hint = "connection refused", f"Check the name of the host and its port, {host.port}."
    elif isinstance(error, paramiko.ChannelException):
        before = host.through[-1] if host.through else "the host before it"
        hint = f"Check the name of the host, and whether {before} may forward connections (AllowTcpForwarding)."
    elif isinstance(error.__context__, EOFError | ConnectionError) and "protocol banner" in reason:
        return ClosedEarly(host.label, host.name)
    return LinkLost(f"{host.label} cannot be reached: {reason}.", hint=hint, host=host.name)
