"""What somebody who looks a cluster over tells a person."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["Finding", "Status"]


Status = Literal["ok", "warning", "failed"]
"""What a finding is for the person who looks over the way to a cluster."""


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    status : str
        ``ok``; ``warning``: it works, with a drawback; ``failed``: something that is needed does not work.
    about : str
        What was looked at.
    said : str
        What was found, and what it means; may have several lines.
    todo : str
        What the person can do.
    """

    status: Status
    about: str
    said: str
    todo: str = ""
