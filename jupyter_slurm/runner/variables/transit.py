"""Transfer of variables from one kernel to another. Runs in both, without an installed jupyter_slurm.

The Jupyter server sends this file and the files that it needs as text, and calls the functions by ``user_expressions``.
Their results are MIME bundles in the reply, which no other front end sees. Receiving needs Python 3.8+, sending 3.9+.
The data is a single snapshot, sent and received in pieces, each of which may arrive twice.
"""

from __future__ import annotations

import base64
import io
import json
import platform
import sys
from typing import Any, Mapping

from . import values_file as file_of

TYPE = "application/vnd.jupyter-slurm.transit+json"
_ready = bytearray()


class Answer:
    """Answer to a front end, in a MIME type that only this front end knows."""

    def __init__(self, told: Mapping[str, object]) -> None:
        self._told = told

    def __repr__(self) -> str:
        return ""

    def _repr_mimebundle_(self, **_: Any) -> dict[str, str]:
        return {TYPE: json.dumps(self._told)}


def take(names: list[str], namespace: Mapping[str, object], limit: int, safe: bool = False) -> Answer:
    """Take a snapshot of variables, in a safe form if asked. Return its size, or the variables that cannot be sent."""
    drop()
    if sys.version_info < (3, 9):
        why = f"Variables can be sent from Python 3.9 or newer, and this is {platform.python_version()}."
        return Answer({"trouble": why})
    from .packing import CannotTravel, TooLarge, packed

    try:
        items = packed(names, namespace, limit, safe=safe)
    except TooLarge as error:
        return Answer({"trouble": f"it is {error}"})
    except CannotTravel as error:
        return Answer({"trouble": str(error)})
    file = io.BytesIO()
    file_of.put_down(file, items)
    _ready[:] = file.getbuffer()
    return Answer({"size": len(_ready)})


def piece(start: int, end: int) -> Answer:
    """Return a piece of the snapshot."""
    return Answer({"data": base64.b64encode(_ready[start:end]).decode("ascii")})


def store_part(start: int, data: str) -> Answer:
    """Receive a piece of the snapshot of another kernel."""
    part = base64.b64decode(data)
    _ready[start : start + len(part)] = part
    return Answer({"size": len(_ready)})


def unpack(names: list[str], namespace: dict[str, object]) -> Answer:
    """Put the received variables into the namespace. Return the names that were set, and the reasons for the others."""
    content = bytearray(_ready)  # arrays keep references to it
    drop()
    header, items = file_of.read(file_of.Content(content))
    troubles = file_of.put(items, header, namespace)
    came = [name for name in names if name in namespace and name not in troubles]
    return Answer({"came": came, "troubles": list(dict.fromkeys(troubles.values()))})


def drop() -> Answer:
    """Discard the snapshot."""
    _ready.clear()
    return Answer({})
