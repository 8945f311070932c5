"""Findings of a diagnosis, shown to the user."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]


Status = Literal["ok", "warning", "failed"]
"""Result of a check in the diagnosis of a connection."""


@dataclass(frozen=True)
class Finding:
    """Result of one check.

    Attributes
    ----------
    status : str
        ``ok``; ``warning``: works, with a drawback; ``failed``: something necessary does not work.
    about : str
        Subject of the check.
    said : str
        The result and its meaning; may have several lines.
    todo : str
        What the user can do.
    """

    status: Status
    about: str
    said: str
    todo: str = ""
