"""Processes that use the login to a cluster, listed for a user who is about to end it."""

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
    """Process that requested a cluster.

    Attributes
    ----------
    kind, name : str
        ``kernel`` and the file of its notebook, or ``terminal`` and a command, as reported by the process itself.
    pid : int or None
        Process ID of the peer, as reported by the system; None if unknown.
    """

    kind: str
    name: str
    pid: int | None = None

    @property
    def key(self) -> Any:
        """Return the identity of the process: its own description may change."""
        return self.pid or (self.kind, self.name)


class ClientRegistry:
    """Clients of each cluster: each process with its last requested cluster, until the process ends.

    Parameters
    ----------
    changed : callable
        Receives the ID of a cluster whose list has changed.
    clock : callable, optional
        Seconds since the epoch.
    """

    def __init__(self, changed: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._changed, self._clock = changed, clock
        self._at: dict[Any, tuple[ClientUse, str, float]] = {}

    def join(self, user: ClientUse, cluster: str) -> None:
        """Record that a process uses a cluster."""
        before = self._at.get(user.key)
        if before is not None and before[:2] == (user, cluster):
            return
        has_moved = before is None or before[1] != cluster
        self._at[user.key] = (user, cluster, self._clock() if before is None or has_moved else before[2])
        if before is not None and has_moved:
            self._changed(before[1])
        self._changed(cluster)

    def leave(self, user: ClientUse) -> None:
        """Record the end of a process."""
        if (before := self._at.pop(user.key, None)) is not None:
            self._changed(before[1])

    def clients_to_api(self, cluster: str) -> list[api.User]:
        """Return the clients of a cluster in the form of the API, first one first."""
        return [
            {"kind": user.kind, "name": user.name, "pid": user.pid, "since": since}
            for user, used, since in self._at.values()
            if used == cluster
        ]
