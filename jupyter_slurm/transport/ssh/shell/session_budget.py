"""Number of shells on a connection: the server's limit, less the sessions of other kinds."""

from __future__ import annotations

import time

__all__ = ["SessionBudget", "SessionClaim"]

_AGAIN: float = 600.0  # seconds after which the server may allow more again


class SessionClaim:
    """A session of another kind, for which a shell was closed."""


class SessionBudget:
    """Session counter of one connection.

    A server reveals its limit (MaxSessions) only by refusing a session. The knowledge expires: the refusal may be due
    to sessions that have ended since, or to an earlier connection.

    Parameters
    ----------
    most : int
        Wanted number of shells.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: int | None = None  # shells, and claimed sessions
        self._known_at = 0.0
        self._made: set[SessionClaim] = set()
        self._wanted: list[SessionClaim] = []

    @property
    def limit(self) -> int:
        """Return the largest number of shells, as far as known."""
        if self._known is None or time.monotonic() - self._known_at > _AGAIN:
            return self._most
        return min(self._most, self._known - len(self._made) - len(self._wanted))

    def refused(self, shells: int) -> None:
        """Record that the server allows no session beyond this many shells."""
        self._known, self._known_at = shells + len(self._made), time.monotonic()

    def forget(self) -> None:
        """Reset the counts for a new connection without sessions."""
        self._known = None
        self._made.clear()
        self._wanted.clear()

    def claim(self, shells: int) -> SessionClaim | None:
        """Claim the session of a shell if no session is allowed beyond this many shells; None: the last shell stays."""
        self.refused(shells)
        if self.limit < 2:
            return None
        self._wanted.append(claim := SessionClaim())
        return claim

    def is_free(self, claim: SessionClaim, shells: int) -> bool:
        """Return whether the limit leaves room for a claim beside this many shells; if so, the claim counts as used."""
        if claim in self._wanted:
            assert self._known is not None
            if shells > self._known - len(self._made) - self._wanted.index(claim) - 1:
                return False
            self._wanted.remove(claim)
            self._made.add(claim)
        return True

    def give_back(self, claim: SessionClaim) -> None:
        """Record that the session has ended, or that its claim is withdrawn."""
        self._made.discard(claim)
        if claim in self._wanted:
            self._wanted.remove(claim)
