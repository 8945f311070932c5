"""Host names and free ports of this machine."""

from __future__ import annotations

import random
import socket
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from jupyter_slurm.errors import EmbeddedError

__all__ = ["FIRST_PORT", "LAST_PORT", "Host", "Hosts", "check_address", "free_ports", "is_named_localhost"]


@dataclass(frozen=True)
class Host:
    """Host of a daemon.

    Attributes
    ----------
    name, address : str
        Host name, and its IPv4 address for the other hosts.
    enter : tuple of str
        Beginning of a command line that runs its rest on the host, such as ``("nsenter", "--target", "17", …)``.
    """

    name: str
    address: str
    enter: tuple[str, ...]


@dataclass(frozen=True)
class Hosts:
    """Hosts of a cluster's daemons: slurmctld and slurmdbd on one host, each slurmd on the host of its node.

    Daemons that only open Unix sockets (munged, MariaDB) stay on this machine: all hosts see the cluster's directory.
    """

    controller: Host
    nodes: Mapping[str, Host]

    def find_host(self, role: str) -> Host | None:
        """Return the host of a daemon; None for this machine."""
        if role in ("slurmctld", "slurmdbd"):
            return self.controller
        return self.nodes.get(role.removeprefix("slurmd/"))


FIRST_PORT, LAST_PORT = 10_240, 32_767


def _range() -> range:
    """Return ports below those of outgoing connections, so that no outgoing connection takes a chosen port (ip(7))."""
    try:
        lowest = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii").split()[0])
    except (OSError, ValueError):
        lowest = LAST_PORT + 1
    last = min(LAST_PORT, lowest - 1)
    return range(FIRST_PORT, last + 1) if last - FIRST_PORT > 2000 else range(FIRST_PORT, LAST_PORT + 1)


def check_address() -> None:
    """Check that Slurm can resolve 127.0.0.1: a computer without any other address cannot (getaddrinfo(3)).

    Raises
    ------
    EmbeddedError
        This computer has only that address.
    """
    try:
        socket.getaddrinfo("127.0.0.1", None, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    except OSError:
        raise EmbeddedError(
            "This computer has no address but 127.0.0.1, which Slurm cannot resolve then.",
            hint="Connect to a network, or add an address as root: `ip addr add 127.0.0.2/8 dev lo`.",
        ) from None


def is_named_localhost() -> bool:
    """Return whether the name of this computer resolves to 127.0.0.1.

    Slurm's daemons and ``srun`` listen on the address of that name, if they do not listen on all addresses
    (``NoInAddrAny`` in slurm.conf(5)). Connections to another address, such as Debian's 127.0.1.1, come from 127.0.0.1,
    and Slurm answers there.
    """
    name = socket.gethostname()
    try:
        found = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM, 0, socket.AI_ADDRCONFIG)
    except OSError:
        return False
    return found[0][4][0] == "127.0.0.1"


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
            f"This computer has no {count} free TCP ports between {FIRST_PORT} and {LAST_PORT}.",
            hint="Stop other clusters or programs that use these ports.",
        )
    return chosen
