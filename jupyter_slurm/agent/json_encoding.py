"""JSON of requests and answers, common to the agent and its clients."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["encode"]

_ENCODER = json.JSONEncoder(separators=(",", ":"), allow_nan=False)


def encode(value: Any) -> bytes:
    """Return JSON in ASCII: file names that are not UTF-8 (PEP 383) become escapes, NaN becomes null."""
    try:
        return _ENCODER.encode(value).encode("ascii")
    except ValueError:  # one job's invalid values must not hide all other jobs from a browser
        return _ENCODER.encode(_told(value)).encode("ascii")


def _told(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {name: _told(each) for name, each in value.items()}
    return [_told(each) for each in value] if isinstance(value, (list, tuple)) else value
