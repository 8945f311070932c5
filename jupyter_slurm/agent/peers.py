"""Who is at the other end of a connection."""

from __future__ import annotations

import os
import socket
import struct
import sys
from typing import Any

__all__ = ["is_ours", "peer_uid"]

# macOS and the BSDs: getsockopt(SOL_LOCAL, LOCAL_PEERCRED) fills struct xucred {u_int version; uid_t uid; …}.
_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE = 0, 1, 76

_TCP_ESTABLISHED = "01"


def peer_uid(sock: Any) -> int | None:
    """Return the user id at the other end of a connected socket.

    Parameters
    ----------
    sock : socket.socket
        A Unix or a loopback IPv4 socket (also asyncio's wrapper of one).

    Returns
    -------
    int or None
        -1 when the peer is gone or cannot be named although this system can name peers; None when this system cannot.
    """
    try:
        if sock.family == socket.AF_UNIX:
            return _unix_peer(sock)
        return _tcp_peer(sock) if sys.platform == "linux" else None
    except (OSError, ValueError):
        return -1


def is_ours(sock: Any) -> bool:
    """Tell whether the peer is the same user; where the system cannot say, the folder's mode and the secret decide."""
    return peer_uid(sock) in (None, os.geteuid())


def _unix_peer(sock: Any) -> int | None:
    if hasattr(socket, "SO_PEERCRED"):
        credentials = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
        return int(struct.unpack("3i", credentials)[1])
    if sys.platform == "darwin" or "bsd" in sys.platform:
        return int(struct.unpack("2I", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE)[:8])[1])
    return None


def _tcp_peer(sock: Any) -> int:
    """Look the other end up in /proc/net/tcp (proc(5)): the row whose local address is our remote one."""
    wanted = (_address(sock.getpeername()), _address(sock.getsockname()), _TCP_ESTABLISHED)
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if tuple(fields[1:4]) == wanted:
                return int(fields[7])
    return -1


def _address(name: tuple[str, int]) -> str:
    number = struct.unpack("=I", socket.inet_aton(name[0]))[0]
    return f"{number:08X}:{name[1]:04X}"
