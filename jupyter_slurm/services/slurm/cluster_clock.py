"""Clock of a cluster. A laptop may have another time, so times of one clock are never compared with the other."""

from __future__ import annotations

import contextlib

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.transport.base import Transport

__all__ = ["cluster_time", "earliest_on_cluster"]


async def cluster_time(transport: Transport) -> float:
    """Return the present time by the clock of the host that runs the Slurm commands, in seconds since the epoch.

    Raises
    ------
    TransportError
        There is no connection.
    ValueError
        The host has no usable ``date``.
    """
    return float((await transport.run(["date", "+%s"])).stdout)


async def earliest_on_cluster(transport: Transport, moment: float, now: float) -> float:
    """Return a moment of this computer's clock by the clock of the cluster, or unchanged if that is earlier.

    Parameters
    ----------
    transport : Transport
        Transport to the cluster.
    moment, now : float
        The moment and the present time by the clock of this computer, in seconds since the epoch.
    """
    with contextlib.suppress(SlurmError, ValueError):
        return min(moment, await cluster_time(transport) - max(0.0, now - moment))
    return moment
