"""The link that paramiko carries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jupyter_slurm.transport.ssh.config.ssh_config import Host
from jupyter_slurm.transport.ssh.link.persistent import KeptLink
from jupyter_slurm.transport.ssh.via_paramiko.connection import Chain, Gate

__all__ = ["Link"]


class Link(KeptLink):
    """A connection through the hosts of a way, by paramiko.

    Parameters
    ----------
    way, gate
        As for :class:`~jupyter_slurm.transport.ssh.via_paramiko.connection.Chain`.
    **options
        As for :class:`KeptLink`.
    """

    def __init__(self, way: Sequence[Host], gate: Gate, **options: Any) -> None:
        super().__init__([host.name for host in way], **options)
        self._way, self._gate = tuple(way), gate

    def new_connection(self) -> Chain:
        """Return a chain that is not open yet."""
        return Chain(self._way, self._gate)
