"""JSON of requests and answers, the same for the agent and its clients."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["encode"]

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(value: Any) -> bytes:
    """Return JSON in ASCII: file names that are no UTF-8 (PEP 383) travel as escapes, what is not a number as null."""
    try:
        return _ENCODER.encode(value).encode("ascii")
    except ValueError:  # what one job has left must not keep a browser from reading of all others
        return _ENCODER.encode(_told(value)).encode("ascii")


def _told(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, (list, tuple)) else value
