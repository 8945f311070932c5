"""Descriptions of terminals that a host has sent, checked."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from jupyter_slurm.errors import TransportError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["terminal_to_api", "unreadable"]

_MAX_TIME_S: Final = 1e12
_ID: Final = re.compile(r"[0-9a-f]{8}")
_JOB: Final = re.compile(r"[0-9][0-9_+]{0,31}")
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")


def terminal_to_api(told: object) -> api.Terminal:
    """Return a terminal that a host has described, if the description is valid."""
    if not isinstance(told, Mapping):
        raise unreadable()
    name, job, host, started = (told.get(key) for key in ("id", "title", "host", "started"))
    is_text = isinstance(name, str) and isinstance(job, str) and isinstance(host, str)
    if not is_text or not isinstance(started, int | float) or not 0 <= started < _MAX_TIME_S:
        raise unreadable()
    assert isinstance(name, str)
    if not (_ID.fullmatch(name) and _HOST.fullmatch(str(host)) and (not job or _JOB.fullmatch(str(job)))):
        raise unreadable()
    return {"id": name, "job": str(job) or None, "host": str(host), "started": float(started)}


def unreadable() -> TransportError:
    """Return the error of an answer that is not valid."""
    return TransportError(
        "The host describes its terminals in an unknown form.",
        hint="Check that start-up files of your shell print nothing: `jupyter slurm doctor`.",
    )
