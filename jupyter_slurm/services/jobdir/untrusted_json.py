"""JSON that a job or a cluster has written: large documents are parsed beside the event loop, and within bounds.

The parser in C holds the interpreter's lock from the first byte to the last: for 24 MB of small lists, 6 s. A large
document is parsed by the same module's parser in Python, in a thread, which lets the event loop run in between.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json.decoder import JSONArray, JSONObject  # type: ignore[attr-defined]  # they are documented in the module only
from json.scanner import py_make_scanner  # type: ignore[attr-defined]
from typing import Any

from jupyter_slurm.services.large_answers import MAX_BYTES_AT_ONCE

__all__ = ["parse_json"]

_MAX_CONTAINERS = 1_000_000  # lists and objects of a document; the garbage collector examines each of them


class _Decoder(json.JSONDecoder):
    """Decoder in Python with a limit of lists and objects."""

    def __init__(self, **hooks: Any) -> None:
        super().__init__(**hooks)
        self._left = _MAX_CONTAINERS
        self.parse_object, self.parse_array = self._counted(JSONObject), self._counted(JSONArray)
        self.scan_once = py_make_scanner(self)

    def _counted(self, parse: Callable[..., Any]) -> Callable[..., Any]:
        def parse_one(*arguments: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"it has more than {_MAX_CONTAINERS} lists and objects")
            return parse(*arguments)

        return parse_one


def parse_json(raw: bytes, *, errors: str = "strict", **hooks: Any) -> Any:
    """Parse a document; a large one must be parsed in a thread (``large_answers.call_off_loop``).

    Parameters
    ----------
    raw : bytes
        The document, in UTF-8.
    errors : str, optional
        Handling of other bytes, as of ``bytes.decode``.
    **hooks : callable
        Hooks for numbers and constants, as of ``json.loads``.

    Raises
    ------
    ValueError
        The document is not JSON, or it has too many lists and objects.
    """
    text = raw.decode("utf-8", errors)
    try:
        if len(raw) <= MAX_BYTES_AT_ONCE:
            return json.loads(text, **hooks)
        return _Decoder(**hooks).decode(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
