"""Variables of a kernel on their way into another one; runs in both, where nothing of ours is installed.

The Jupyter server sends this file and those that it needs as text, and calls the functions by ``user_expressions``:
what they return is a MIME bundle in the reply, which nobody else sees. Python 3.8+ takes variables in; to take them
along needs 3.9. What lies ready is one snapshot, fetched and given in pieces, each of which may come twice.
"""

from __future__ import annotations

import base64
import io
import json
import platform
import sys
from typing import Any, Mapping

from . import values as file_of

TYPE = "application/vnd.jupyter-slurm.transit+json"
_ready = bytearray()


class Answer:
    """What a front end is told that knows the type, and nobody else."""

    def __init__(self, told: Mapping[str, Any]) -> None:
        self._told = told

    def __repr__(self) -> str:
        return ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {TYPE: json.dumps(self._told)}


def take(names: list[str], namespace: Mapping[str, Any], limit: int) -> Answer:
    """Take a snapshot of variables; tell how large it is, or what cannot travel."""
    drop()
    if sys.version_info < (3, 9):
        why = f"variables can be taken from Python 3.9 and newer, and this is {platform.python_version()}"
        return Answer({"trouble": why})
    from .packing import CannotTravel, TooLarge, packed

    try:
        items = packed(names, namespace, limit)
    except TooLarge as error:
        return Answer({"trouble": f"it is {error}"})
    except CannotTravel as error:
        return Answer({"trouble": str(error)})
    file = io.BytesIO()
    file_of.put_down(file, items)
    _ready[:] = file.getbuffer()
    return Answer({"size": len(_ready)})


def piece(start: int, end: int) -> Answer:
    """Tell a part of the snapshot."""
    return Answer({"data": base64.b64encode(_ready[start:end]).decode("ascii")})


def give(start: int, data: str) -> Answer:
    """Take a part of a snapshot of another kernel."""
    part = base64.b64decode(data)
    _ready[start : start + len(part)] = part
    return Answer({"size": len(_ready)})


def unpack(names: list[str], namespace: dict[str, Any]) -> Answer:
    """Put what was given into the namespace; tell which of the names are there now, and why others are not."""
    content = bytearray(_ready)  # arrays stay in it
    drop()
    header, items = file_of.read(file_of.Content(content))
    troubles = file_of.put(items, header, namespace)
    came = [name for name in names if name in namespace and name not in troubles]
    return Answer({"came": came, "troubles": list(dict.fromkeys(troubles.values()))})


def drop() -> Answer:
    """Let the snapshot go."""
    _ready.clear()
    return Answer({})
