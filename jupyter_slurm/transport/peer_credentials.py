"""User and process IDs of the peer of a connection."""

from __future__ import annotations

import os
import shutil
import socket
import struct
import subprocess
import sys
from typing import Any, NamedTuple

__all__ = ["is_same_user", "peer_pid", "peer_uid"]

# macOS and the BSDs: getsockopt(SOL_LOCAL, LOCAL_PEERCRED) fills struct xucred {u_int version; uid_t uid; …}.
# LOCAL_PEERPID (macOS only) fills a pid_t.
_SOL_LOCAL, _LOCAL_PEERCRED, _LOCAL_PEERPID, _XUCRED_SIZE = 0, 1, 2, 76

# linux/netlink.h, linux/sock_diag.h, net/tcp_states.h
_NETLINK_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST = 4, 20, 1
_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT, _LISTEN = 1, 4, 5, 8, 10
_CONNECTED = (_ESTABLISHED, _FIN_WAIT1, _FIN_WAIT2, _CLOSE_WAIT)  # also after one end has closed its outgoing direction

_LSOF_TIMEOUT_S = 10.0


def peer_uid(sock: Any) -> int | None:
    """Return the user ID of the peer of a connected socket.

    Parameters
    ----------
    sock : socket.socket
        A Unix or a loopback IPv4 socket (also asyncio's wrapper of one).

    Returns
    -------
    int or None
        -1 if the peer is gone, unknown, or the system names only own processes and the peer is none of these; None if
        the system cannot identify the peers of Unix sockets.
    """
    try:
        if sock.family == socket.AF_UNIX:
            return _unix_peer(sock)
        return _tcp_peer(sock) if sys.platform == "linux" else _listed_peer(sock)
    except (OSError, ValueError):
        return -1


def is_same_user(sock: Any) -> bool:
    """Return whether the peer is the same user; if unknown, the mode of a Unix socket's directory must protect."""
    return peer_uid(sock) in (None, os.geteuid())


def peer_pid(sock: Any) -> int | None:
    """Return the ID of the process that made a connection; None if unknown."""
    try:
        if sock.family == socket.AF_UNIX and hasattr(socket, "SO_PEERCRED"):
            return _credentials(sock)[0] or None  # 0: a process namespace that is not below this one
        if sock.family == socket.AF_UNIX and sys.platform == "darwin":
            return int(sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERPID))
    except (OSError, ValueError):
        pass
    return None


def _credentials(sock: Any) -> tuple[int, int]:
    """Return the process and user IDs of the peer (unix(7), SO_PEERCRED)."""
    pid, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return int(pid), int(uid)


def _unix_peer(sock: Any) -> int | None:
    if hasattr(socket, "SO_PEERCRED"):
        return _credentials(sock)[1]
    if sys.platform == "darwin" or "bsd" in sys.platform:
        return int(struct.unpack("2I", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_SIZE)[:8])[1])
    return None


def _tcp_peer(sock: Any) -> int | None:
    """Query the kernel for the peer: the socket whose local address is this socket's remote address."""
    near, far = sock.getsockname(), sock.getpeername()
    try:
        found = _query_socket(far, near)
        if found is not None and found.state == _ESTABLISHED and found.inode == 0:
            # A connection that is not yet accepted has no owner. It will belong to the owner of the listening socket.
            found = _query_socket(far, ("0.0.0.0", 0))  # noqa: S104 - a wildcard in a question
    except PermissionError:
        found = _read_table(far, near)
    # A socket without an inode is no longer open in any process, and the kernel reports root as its owner.
    return -1 if found is None or not found.inode or found.state not in (*_CONNECTED, _LISTEN) else found.uid


def _listed_peer(sock: Any) -> int:
    """Search the sockets of own processes for the peer, without sock_diag: lsof(8) names these on macOS and the BSDs.

    A connection that is not yet accepted belongs to nobody. It will belong to who listens on exactly this address.
    """
    near, far = (f"{host}:{port}" for host, port in (sock.getsockname(), sock.getpeername()))
    program = shutil.which("lsof") or shutil.which("lsof", path="/usr/sbin:/sbin:/usr/local/sbin")
    if program is None:
        return -1
    argv = [program, "-nP", "-a", "-u", str(os.geteuid()), f"-iTCP@{far}", "-Fn"]
    try:
        told = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LSOF_TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return -1
    names = told.stdout.decode("ascii", "replace").splitlines()
    return os.geteuid() if f"n{far}->{near}" in names or f"n{far}" in names else -1


class _SocketEntry(NamedTuple):
    state: int
    uid: int
    inode: int


def _query_socket(local: tuple[str, int], remote: tuple[str, int]) -> _SocketEntry | None:
    """Look up a TCP socket (sock_diag(7)); None if not found."""
    addresses = (local[1], remote[1], socket.inet_aton(local[0]), socket.inet_aton(remote[0]))
    identity = (
        struct.pack("!HH4s12x4s12x", *addresses) + struct.pack("=I", 0) + b"\xff" * 8
    )  # any interface, any cookie
    request = struct.pack("=BBBxI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0xFFFFFFFF) + identity
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, _NLM_F_REQUEST, 1, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as kernel:
        kernel.settimeout(1.0)
        kernel.send(header + request)
        answer = kernel.recv(8192)
    if struct.unpack_from("=H", answer, 4)[0] != _SOCK_DIAG_BY_FAMILY:
        return None
    state = answer[17]
    uid, inode = struct.unpack_from("=II", answer, 16 + 4 + 48 + 12)
    return _SocketEntry(state, uid, inode)


def _read_table(local: tuple[str, int], remote: tuple[str, int]) -> _SocketEntry | None:
    """Look up a socket in /proc/net/tcp if netlink is forbidden. A changing long table may miss a row."""
    ends = [f"{struct.unpack('=I', socket.inet_aton(host))[0]:08X}:{port:04X}" for host, port in (local, remote)]
    listening = None
    with open("/proc/net/tcp", encoding="ascii") as table:
        for line in table:
            row = line.split()
            if row[1:3] == ends:
                found = _SocketEntry(int(row[3], 16), int(row[7]), int(row[9]))
                if found.inode:
                    return found
            elif row[1] == ends[0] and row[3] == f"{_LISTEN:02X}":
                listening = _SocketEntry(_LISTEN, int(row[7]), int(row[9]))
    return listening
