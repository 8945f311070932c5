"""Number of shells on a connection: the server's limit, less the sessions of other kinds."""

from __future__ import annotations

import time

__all__ = ["SessionBudget", "SessionClaim"]

_RETRY_INTERVAL_S: float = 600.0  # seconds after which the server may allow more again


class SessionClaim:
    """A session of another kind, for which a shell was closed."""


class SessionBudget:
    """Session counter of one connection.

    A server reveals its limit (MaxSessions) only by refusing a session. The knowledge expires: the refusal may be due
    to sessions that have ended since, or to an earlier connection.

    Parameters
    ----------
    limit : int
        Wanted number of shells.
    """

    def __init__(self, limit: int) -> None:
        self._max_sessions = limit
        self._limit: int | None = None  # shells, and claimed sessions
        self._limit_found_at = 0.0
        self._open_claims: set[SessionClaim] = set()
        self._waiting_claims: list[SessionClaim] = []

    @property
    def limit(self) -> int:
        """Return the largest number of shells, as far as known."""
        if self._limit is None or time.monotonic() - self._limit_found_at > _RETRY_INTERVAL_S:
            return self._max_sessions
        return min(self._max_sessions, self._limit - len(self._open_claims) - len(self._waiting_claims))

    def refused(self, shells: int) -> None:
        """Record that the server allows no session beyond this many shells."""
        self._limit, self._limit_found_at = shells + len(self._open_claims), time.monotonic()

    def forget(self) -> None:
        """Reset the counts for a new connection without sessions."""
        self._limit = None
        self._open_claims.clear()
        self._waiting_claims.clear()

    def claim(self, shells: int) -> SessionClaim | None:
        """Claim the session of a shell if no session is allowed beyond this many shells; None: the last shell stays."""
        self.refused(shells)
        if self.limit < 2:
            return None
        self._waiting_claims.append(claim := SessionClaim())
        return claim

    def is_free(self, claim: SessionClaim, shells: int) -> bool:
        """Return whether the limit leaves room for a claim beside this many shells; if so, the claim counts as used."""
        if claim in self._waiting_claims:
            assert self._limit is not None
            if shells > self._limit - len(self._open_claims) - self._waiting_claims.index(claim) - 1:
                return False
            self._waiting_claims.remove(claim)
            self._open_claims.add(claim)
        return True

    def release(self, claim: SessionClaim) -> None:
        """Record that the session has ended, or that its claim is withdrawn."""
        self._open_claims.discard(claim)
        if claim in self._waiting_claims:
            self._waiting_claims.remove(claim)
