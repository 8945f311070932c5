"""Hosts of their own for the daemons of a cluster, in place of this machine: a network, mounts and processes each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Host", "Hosts"]


@dataclass(frozen=True)
class Host:
    """Where a daemon runs.

    Attributes
    ----------
    name, address : str
        Host name, and the IPv4 address at which the other hosts reach it.
    enter : tuple of str
        Beginning of a command line that runs the rest of it there, such as ``("nsenter", "--target", "17", …)``.
    """

    name: str
    address: str
    enter: tuple[str, ...]


@dataclass(frozen=True)
class Hosts:
    """Where the daemons of a cluster run: slurmctld and slurmdbd on one host, each slurmd on the one of its node.

    What only opens Unix sockets (munged, MariaDB) stays on this machine: all hosts see the cluster's directory.
    """

    controller: Host
    nodes: Mapping[str, Host]

    def of(self, role: str) -> Host | None:
        """Return the host of a daemon; None if that is this machine."""
        if role in ("slurmctld", "slurmdbd"):
            return self.controller
        return self.nodes.get(role.removeprefix("slurmd/"))
