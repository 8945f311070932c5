"""Check whether a host takes keys, and whether it would accept one: without a signature, passphrase or code."""

from __future__ import annotations

import contextlib
from typing import Any, Final, NamedTuple

import paramiko

from jupyter_slurm.transport.ssh.auth.userauth import LoginConnectionLost, LoginRefused, SignatureRequested, Userauth
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.hostkeys.host_key_verification import check_host_key, host_key_order
from jupyter_slurm.transport.ssh.keys.public_keys import key_type, read_line
from jupyter_slurm.transport.ssh.via_paramiko.connection import tcp
from jupyter_slurm.transport.ssh.via_paramiko.diagnosis import HopReport

__all__ = ["HostOffer", "accepts_key", "request_offer"]

_PROBE_TIMEOUT_S: Final = 30.0  # seconds
_OFFER_TIMEOUT_S: Final = 10.0  # seconds: the user waits for a question


def accepts_key(hop: HopReport, before: HopReport | None, line: str) -> bool | None:
    """Query a host over a separate connection (RFC 4252, section 7: a request without a signature); blocks.

    Parameters
    ----------
    hop : HopReport
        The host.
    before : HopReport or None
        The host before it on the route; None: reached directly.
    line : str
        The public key, as a line of a file.

    Returns
    -------
    bool or None
        None: unknown.
    """
    blob = read_line(*line.split()[:2])
    known = hop.transport
    if known is None or blob is None or hop.host.proxy_command:
        return None
    try:
        with contextlib.closing(paramiko.Transport(_socket(hop, before))) as transport:
            transport.get_security_options().key_types = (known.host_key_type,)
            transport.start_client(timeout=_PROBE_TIMEOUT_S)
            if transport.get_remote_server_key() != known.get_remote_server_key():
                return None  # another host behind the same name
            auth = Userauth(transport, hop.host.user)
            auth.request_service()
            auth.request("none")
            algorithm = "rsa-sha2-512" if key_type(blob) == "ssh-rsa" else key_type(blob)
            return isinstance(auth.request("publickey", False, algorithm, blob), SignatureRequested)
    except (paramiko.SSHException, OSError, EOFError, LoginConnectionLost):
        return None


def _socket(hop: HopReport, before: HopReport | None) -> Any:
    if before is None or before.transport is None:
        return tcp(hop.host, _PROBE_TIMEOUT_S)
    target = (hop.host.hostname, hop.host.port)
    return before.transport.open_channel("direct-tcpip", target, ("127.0.0.1", 0), timeout=_PROBE_TIMEOUT_S)


class HostOffer(NamedTuple):
    """Answer of a host before a login.

    Attributes
    ----------
    methods : tuple of str
        Methods of a login that it offers at first.
    host_key : str
        What is known of its key: ``known``, ``unknown``, ``changed`` or ``revoked``.
    """

    methods: tuple[str, ...]
    host_key: str


def request_offer(host: HostConfig) -> HostOffer | None:
    """Return the answer of a host to a request for a login without a proof (RFC 4252, section 5.2).

    Blocks. None: the host does not answer, or cannot be reached directly.
    """
    if host.proxy_command:
        return None
    try:
        with contextlib.closing(paramiko.Transport(tcp(host, _OFFER_TIMEOUT_S))) as transport:
            options = transport.get_security_options()
            known = [name for name in host_key_order(host) if name in options.key_types]
            options.key_types = tuple(dict.fromkeys([*known, *options.key_types]))
            transport.start_client(timeout=_OFFER_TIMEOUT_S)
            verdict = check_host_key(host, transport.get_remote_server_key().asbytes())
            auth = Userauth(transport, host.user)
            auth.request_service()
            reply = auth.request("none")
    except (paramiko.SSHException, OSError, EOFError, LoginConnectionLost):
        return None
    return HostOffer(tuple(reply.methods) if isinstance(reply, LoginRefused) else (), verdict.status)
