"""Clock of a cluster. A laptop may have another time, so times of one clock are never compared with the other."""

from __future__ import annotations

import contextlib
import math
import re
import time
from collections.abc import Callable
from typing import Final

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.transport.base import Transport

__all__ = ["ClockOffset", "cluster_time", "earliest_on_cluster"]

_COMPARE_INTERVAL_S: Final = 600.0
_RETRY_INTERVAL_S: Final = 20.0
_SET_CLOCK_S: Final = 2.0  # seconds between the two clocks of this computer after which one of them was set


class ClockOffset:
    """Seconds by which the clock of a cluster is ahead of the clock of this computer: ``seconds``.

    Parameters
    ----------
    transport : Transport
        Transport to the cluster.
    clock, monotonic : callable
        Seconds since the epoch, and monotonic seconds.
    """

    def __init__(
        self, transport: Transport, clock: Callable[[], float], monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._transport, self._clock, self._monotonic = transport, clock, monotonic
        self._compared: tuple[float, float] | None = None  # by both clocks
        self._retry_at = -math.inf
        self.seconds = 0.0

    async def refresh(self) -> bool:
        """Compare the clocks, if due; return whether the offset has changed."""
        if not self._is_due():
            return False
        before, known, self._retry_at = self._clock(), self.seconds, self._monotonic() + _RETRY_INTERVAL_S
        with contextlib.suppress(SlurmError, ValueError):
            told = await cluster_time(self._transport)
            after = self._clock()
            # The cluster's time is less than a second later than it says, and was read between the two others.
            least, most = told - after, told + 1.0 - before
            if not least <= known <= most:
                self.seconds = 0.0 if least <= 0.0 <= most else round((least + most) / 2, 1)
            self._compared = (after, self._monotonic())
        return self.seconds != known

    def _is_due(self) -> bool:
        if self._monotonic() < self._retry_at:
            return False
        if self._compared is None:
            return True
        wall, monotonic = self._clock() - self._compared[0], self._monotonic() - self._compared[1]
        return monotonic > _COMPARE_INTERVAL_S or abs(wall - monotonic) > _SET_CLOCK_S


async def cluster_time(transport: Transport) -> float:
    """Return the present time by the clock of the host that runs the Slurm commands, in seconds since the epoch.

    Raises
    ------
    TransportError
        There is no connection.
    ValueError
        The host has no usable ``date``.
    """
    told = (await transport.run(["date", "+%s"])).stdout.strip()
    if not re.fullmatch(rb"\d{1,11}", told):
        raise ValueError(f"{told[:40]!r} is not a time")
    return float(told)


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
