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
_JOB: Final = re.compile(r"(?:[0-9][0-9_+]{0,31})?")  # empty: the login node
_MAX_NAME: Final = 200
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_NODE: Final = re.compile(rf"(?:{_HOST.pattern})?")


def terminal_to_api(told: object) -> api.Terminal:
    """Return a terminal that a host has described, if the description is valid."""
    if not isinstance(told, Mapping):
        raise unreadable()
    started = told.get("started")
    if not isinstance(started, int | float) or not 0 <= started < _MAX_TIME_S:
        raise unreadable()
    shown = "".join(c for c in _text(told, "name", default="")[:_MAX_NAME] if c.isprintable())
    return {
        "id": _matching(_ID, _text(told, "id")),
        "job": _matching(_JOB, _text(told, "title")) or None,
        "name": shown or None,
        "node": _matching(_NODE, _text(told, "node", default="")) or None,
        "host": _matching(_HOST, _text(told, "host")),
        "started": float(started),
    }


def _text(told: Mapping[str, object], field: str, default: str | None = None) -> str:
    if not isinstance(text := told.get(field, default), str):
        raise unreadable()
    return text


def _matching(pattern: re.Pattern[str], text: str) -> str:
    if not pattern.fullmatch(text):
        raise unreadable()
    return text


def unreadable() -> TransportError:
    """Return the error of an answer that is not valid."""
    return TransportError(
        "The host describes its terminals in an unknown form.",
        hint="Check that start-up files of your shell print nothing: `jupyter slurm doctor`.",
    )
