"""Which processes use the log-in to a cluster: a list for whoever is about to end it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ClientRegistry", "ClientUse"]


@dataclass(frozen=True)
class ClientUse:
    """A process that asked for a cluster.

    Attributes
    ----------
    kind, name : str
        ``kernel`` and the file of its notebook, or ``terminal`` and a command: what the process says of itself.
    pid : int or None
        What the system says of whoever is at the other end; None where it does not.
    """

    kind: str
    name: str
    pid: int | None = None

    @property
    def key(self) -> Any:
        """What tells it from others: a process may call itself otherwise from one time to the next."""
        return self.pid or (self.kind, self.name)


class ClientRegistry:
    """Who uses which cluster: each process the one that it asked for last, until it is gone.

    Parameters
    ----------
    changed : callable
        Is given the id of a cluster whose list has changed.
    clock : callable, optional
        Seconds since the epoch.
    """

    def __init__(self, changed: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._changed, self._clock = changed, clock
        self._at: dict[Any, tuple[ClientUse, str, float]] = {}

    def join(self, user: ClientUse, cluster: str) -> None:
        """Hear that a process uses a cluster from now on."""
        before = self._at.get(user.key)
        if before is not None and before[:2] == (user, cluster):
            return
        has_moved = before is None or before[1] != cluster
        self._at[user.key] = (user, cluster, self._clock() if before is None or has_moved else before[2])
        if before is not None and has_moved:
            self._changed(before[1])
        self._changed(cluster)

    def leave(self, user: ClientUse) -> None:
        """Hear that a process is gone."""
        if (before := self._at.pop(user.key, None)) is not None:
            self._changed(before[1])

    def of(self, cluster: str) -> list[api.User]:
        """Return who uses a cluster, as the API tells it, the first one first."""
        return [
            {"kind": user.kind, "name": user.name, "pid": user.pid, "since": since}
            for user, used, since in self._at.values()
            if used == cluster
        ]
