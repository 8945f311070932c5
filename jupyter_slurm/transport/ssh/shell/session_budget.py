"""How many shells there may be on a connection: what its server was found to allow, less what others need of that."""

from __future__ import annotations

import time

__all__ = ["SessionBudget", "SessionClaim"]

_AGAIN: float = 600.0  # seconds after which the server may allow more than it did


class SessionClaim:
    """One session of another kind, for which a shell goes."""


class SessionBudget:
    """Count for one connection.

    A server tells how many sessions it allows (MaxSessions) by refusing one more. That is not known for ever: it may
    have been refused for sessions that are over by now, or by a connection that is another one now.

    Parameters
    ----------
    most : int
        How many shells are wanted.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: int | None = None  # shells, and sessions that have a claim
        self._known_at = 0.0
        self._made: set[SessionClaim] = set()
        self._wanted: list[SessionClaim] = []

    @property
    def limit(self) -> int:
        """How many shells there may be, as far as is known."""
        if self._known is None or time.monotonic() - self._known_at > _AGAIN:
            return self._most
        return min(self._most, self._known - len(self._made) - len(self._wanted))

    def refused(self, shells: int) -> None:
        """Note that the server allows no session more beside so many shells."""
        self._known, self._known_at = shells + len(self._made), time.monotonic()

    def forget(self) -> None:
        """Begin anew: another connection, without sessions yet."""
        self._known = None
        self._made.clear()
        self._wanted.clear()

    def claim(self, shells: int) -> SessionClaim | None:
        """Claim the session of a shell, when the server allows no more beside so many; None: the last one stays."""
        self.refused(shells)
        if self.limit < 2:
            return None
        self._wanted.append(claim := SessionClaim())
        return claim

    def is_free(self, claim: SessionClaim, shells: int) -> bool:
        """Tell whether there is room for a claim beside so many shells; from then on a session is taken to have it."""
        if claim in self._wanted:
            assert self._known is not None
            if shells > self._known - len(self._made) - self._wanted.index(claim) - 1:
                return False
            self._wanted.remove(claim)
            self._made.add(claim)
        return True

    def give_back(self, claim: SessionClaim) -> None:
        """Note that the session is over, or that nobody waits for its room any more."""
        self._made.discard(claim)
        if claim in self._wanted:
            self._wanted.remove(claim)
