"""Times as texts for the user, in one form: ISO 8601 and 24 hours, in the time zone of this computer."""

from __future__ import annotations

import datetime

__all__ = ["clock_text"]


def clock_text(at: float, now: float, *, has_seconds: bool = False) -> str:
    """Return a time of today as ``16:04``, and any other with its date: ``2026-11-25 16:04``.

    Parameters
    ----------
    at : float
        The time, in seconds since the epoch.
    now : float
        The present time, in seconds since the epoch.
    has_seconds : bool
        Whether to add the seconds.
    """
    then, today = (datetime.datetime.fromtimestamp(moment, datetime.UTC).astimezone() for moment in (at, now))
    day = "" if then.date() == today.date() else "%Y-%m-%d "
    return then.strftime(f"{day}%H:%M{':%S' if has_seconds else ''}")
