"""Separate hosts for the daemons of a cluster, each with its own network, mounts and processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Host", "Hosts"]


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
