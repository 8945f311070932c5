"""Owners of the listening TCP ports of this computer."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Iterable, Iterator

__all__ = ["first_free", "is_listening", "listeners"]

_LISTEN = "0A"  # net/tcp_states.h
_TABLES = ("/proc/net/tcp", "/proc/net/tcp6")
_EVERYWHERE = "0" * 32


def listeners() -> dict[int, int]:
    """Return the ports that accept connections to 127.0.0.1, each with the user ID of its owner (proc(5)).

    Without such a table (macOS), the result is empty.
    """
    found: dict[int, int] = {}
    for path in _TABLES:
        with contextlib.suppress(OSError), open(path, encoding="ascii") as table:
            found |= dict(_rows(table))
    return found


def is_listening(port: int) -> bool:
    """Return whether a program of any user accepts connections to a port of 127.0.0.1."""
    if os.path.exists(_TABLES[0]):
        return port in listeners()
    with contextlib.suppress(OSError, OverflowError), socket.create_connection(("127.0.0.1", port), 1.0):
        return True
    return False


def _rows(table: Iterable[str]) -> Iterator[tuple[int, int]]:
    for line in table:
        words = line.split()
        if len(words) > 7 and words[3] == _LISTEN:
            address, _, port = words[1].partition(":")
            if _is_loopback(address):
                yield int(port, 16), int(words[7])


def _is_loopback(address: str) -> bool:
    """Return whether an address receives connections to 127.0.0.1: this address (also in IPv6 form) or the wildcard."""
    if address in (_EVERYWHERE, _EVERYWHERE[:8]):
        return True
    four = address[-8:]
    mapped = len(address) == 8 or address[:24] == "0000000000000000FFFF0000"
    return mapped and int(four, 16).to_bytes(4, sys.byteorder)[0] == 127


def first_free(first: int, last: int) -> int | None:
    """Return the first free port of 127.0.0.1; None if no port is free."""
    for port in range(first, last + 1):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            if os.name == "posix":  # as a real listener does: connections in TIME_WAIT do not matter
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
                probe.listen(1)
            except OSError as error:
                if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                    raise
            else:
                return port
    return None
