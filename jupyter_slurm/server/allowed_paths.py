"""Addresses that are forwarded: those of the API document, encoded again. No other path reaches the agent."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import quote, unquote_to_bytes, urlencode

from jupyter_slurm.agent.api.schema import Document, Operation

__all__ = ["ApiPath", "find_address", "fits_sessions"]

_PREFIX = re.compile(r"/(?:[A-Za-z0-9@_~%+-][A-Za-z0-9@._~%+-]*/)*")
_MAX_VALUE_CHARACTERS = 1024


@dataclass(frozen=True)
class ApiPath:
    """An address of the API.

    Attributes
    ----------
    path : str
        Percent-encoded path, built from the document's template and matching values.
    operations : Mapping
        Operations by method.
    """

    path: str
    operations: Mapping[str, Operation]

    def query(self, method: str, given: Mapping[str, Sequence[bytes]]) -> str:
        """Return the query string with the parameters of the document only, never Jupyter's token or ``_xsrf``."""
        operation = self.operations.get(method)
        names = {p["name"] for p in operation.parameters if p["in"] == "query"} if operation else set()
        return urlencode([(name, value) for name, values in given.items() if name in names for value in values])


def find_address(document: Document, path: str) -> ApiPath | None:
    """Return the API path of a request, or None.

    Parameters
    ----------
    document : Document
        The API document.
    path : str
        Path of the request, percent-encoded, beginning with ``/v1``. It is split before it is decoded, and decoded
        once: an encoded slash, ``..`` or another value that is not the name of a cluster or job matches nothing.
    """
    try:
        parts = [unquote_to_bytes(part).decode("ascii") for part in path.split("/")]
    except UnicodeDecodeError:
        return None
    for template, operations in document.operations.items():
        values = _match(template.split("/"), parts)
        if not all(operation.is_passed_on for operation in operations.values()):
            continue
        if values is not None and all(operation.find_invalid(values) is None for operation in operations.values()):
            spelt = template.format_map({name: quote(value, safe="") for name, value in values.items()})
            return ApiPath(spelt, operations)
    return None


def fits_sessions(base_url: str) -> bool:
    """Return whether sessions can have addresses below this server's (``prefix`` of the API's ``Launch``)."""
    return len(base_url) <= _MAX_VALUE_CHARACTERS and _PREFIX.fullmatch(base_url) is not None


def _match(template: Sequence[str], parts: Sequence[str]) -> dict[str, str] | None:
    if len(template) != len(parts):
        return None
    values: dict[str, str] = {}
    for wanted, part in zip(template, parts, strict=True):
        if wanted.startswith("{"):
            values[wanted.strip("{}")] = part
        elif wanted != part:
            return None
    return values
