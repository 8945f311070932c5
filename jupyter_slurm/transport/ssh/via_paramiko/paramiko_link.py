"""SSH link over paramiko."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostChain, HostVerifier

__all__ = ["ParamikoLink"]


class ParamikoLink(PersistentLink):
    """A connection through the hosts of a route, by paramiko.

    Parameters
    ----------
    route, gate
        As for :class:`~jupyter_slurm.transport.ssh.via_paramiko.connection.HostChain`.
    **options
        As for :class:`PersistentLink`.
    """

    def __init__(self, route: Sequence[HostConfig], gate: HostVerifier, **options: Any) -> None:
        super().__init__([host.name for host in route], **options)
        self._route, self._gate = tuple(route), gate

    def new_connection(self) -> HostChain:
        """Return a chain that is not yet open."""
        return HostChain(self._route, self._gate)
