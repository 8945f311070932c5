"""Choice of free TCP ports."""

from __future__ import annotations

import random
import socket
from contextlib import ExitStack
from pathlib import Path

from jupyter_slurm.errors import EmbeddedError

__all__ = ["free_ports"]

FIRST_PORT, LAST_PORT = 10_240, 32_767


def _range() -> range:
    """Return ports below those of outgoing connections, so that no outgoing connection takes a chosen port (ip(7))."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        lowest = LAST_PORT + 1
    last = min(LAST_PORT, lowest - 1)
    return range(FIRST_PORT, last + 1) if last - FIRST_PORT > 2000 else range(FIRST_PORT, LAST_PORT + 1)


def free_ports(count: int) -> list[int]:
    """Return ``count`` different ports that are free at this moment on every address of this machine.

    A program can still take a port before its daemon does; the caller then tries other ports. The choice is random, so
    that two clusters started at the same moment seldom choose the same ports.
    """
    candidates = list(_range())
    random.shuffle(candidates)
    chosen: list[int] = []
    with ExitStack() as held:
        for port in candidates:
            if len(chosen) == count:
                break
            probe = held.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            # As Slurm's daemons do: lingering connections of an earlier cluster do not block a port.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("", port))
                # If addresses may be reused, only listening makes two probes of a port exclude each other.
                probe.listen(1)
            except OSError:
                continue
            chosen.append(port)
    if len(chosen) < count:
        raise EmbeddedError(
            f"There are no {count} free TCP ports between {FIRST_PORT} and {LAST_PORT} on this machine."
        )
    return chosen
