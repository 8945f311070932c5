"""Transfer of variables from one kernel to another. Runs in both, without an installed jupyter_slurm.

The Jupyter server sends this file and the files that it needs as text, and calls the functions by ``user_expressions``.
Their results are MIME bundles in the reply, which no other front end sees. Receiving needs Python 3.8+, sending 3.9+.
The data is a single snapshot, sent and received in pieces, each of which may arrive twice.
"""

from __future__ import annotations

import base64
import io
import json
import os
import platform
import sys
import time
from typing import Any, Mapping

from . import values_file as file_of

TYPE = "application/vnd.jupyter-slurm.transit+json"
_MAX_SURVEYED = 200
_SURVEY_S = 3.0
_ALLOCATIONS = "jupyter_slurm.client.allocations.kernel_end"
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
    _ready[:] = file.getvalue()
    return Answer({"size": len(_ready)})


def survey(namespace: Mapping[str, object], limit: int, safe: bool = False) -> Answer:
    """Describe the variables of the user: type and size, or why they cannot be sent; and the held allocations.

    A value is measured as it would be sent. After a few seconds the rest stays without a size: the kernel is busy
    meanwhile.
    """
    client = sys.modules.get(_ALLOCATIONS)
    ending = list(client.ending_with_kernel()) if hasattr(client, "ending_with_kernel") else []  # type: ignore[union-attr]
    if sys.version_info < (3, 9):
        why = f"Variables can be sent from Python 3.9 or newer, and this is {platform.python_version()}."
        return Answer({"variables": [], "left": 0, "trouble": why, "allocations": ending})
    shell: Any = namespace.get("get_ipython")
    hidden = getattr(shell(), "user_ns_hidden", {}) if callable(shell) else {}
    names = [
        name
        for name, value in list(namespace.items())
        if name.isidentifier() and not name.startswith("_") and name not in hidden and type(value) is not type(sys)
    ]
    names.sort(key=str.lower)
    end, found = time.monotonic() + _SURVEY_S, []
    for name in names[:_MAX_SURVEYED]:
        size, why = _measure(name, namespace, limit, safe) if time.monotonic() < end else (None, "")
        found.append({"name": name, "type": type(namespace[name]).__name__, "size": size, "why": why})
    return Answer({"variables": found, "left": len(names) - len(found), "trouble": "", "allocations": ending})


def keep_allocations(notebook: str) -> Answer:
    """Keep the held allocations for the next kernel of the notebook. Return their names, or why they are not kept."""
    client = sys.modules.get(_ALLOCATIONS)
    if not hasattr(client, "keep_open"):
        return Answer({"kept": [], "trouble": ""})
    try:
        return Answer({"kept": list(client.keep_open(notebook)), "trouble": ""})  # type: ignore[union-attr]
    except Exception as error:  # noqa: BLE001 - the user reads it
        return Answer({"kept": [], "trouble": str(error).splitlines()[0] if str(error) else type(error).__name__})


def name_notebook(notebook: str) -> Answer:
    """Tell a kernel its notebook where its server did not, as on a node: it finds what was kept for the notebook."""
    os.environ.setdefault("JPY_SESSION_NAME", notebook)
    return Answer({})


def _measure(name: str, namespace: Mapping[str, object], limit: int, safe: bool) -> tuple[int | None, str]:
    """Return the size of a variable as it would be sent, and why it cannot be sent."""
    from .packing import CannotTravel, packed

    try:
        items = packed([name], namespace, limit, safe=safe)
    except CannotTravel as error:
        head, _, why = str(error).partition(" cannot be sent: ")
        return None, why if why and head.startswith(f"{name} (") else str(error)
    except Exception as error:  # noqa: BLE001 - pickling runs code of the value
        return None, f"{type(error).__name__}: {error}"
    is_code = safe and not all(file_of.is_safe(item) for item, _ in items)
    return sum(
        file_of.size_of(item) for item, _ in items
    ), "it could run code, and its cluster is not trusted" if is_code else ""


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
