"""Writer of TOML (version 1.0), for texts that `tomllib` reads as the same values."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

__all__ = ["toml_text", "toml_value"]

_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_ESCAPED = re.compile(r'[\x00-\x08\x0a-\x1f\x7f"\\\ud800-\udfff]')  # surrogates, too: the reader refuses them
_ESCAPES = {"\b": "\\b", "\n": "\\n", "\f": "\\f", "\r": "\\r", '"': '\\"', "\\": "\\\\"}
_MAX_LINE_WIDTH = 100  # characters; a longer array gets a line for each element


def toml_text(table: Mapping[str, object]) -> str:
    """Return a document.

    Parameters
    ----------
    table : mapping
        Texts, numbers, truth values, and lists and mappings of them.

    Raises
    ------
    TypeError
        A value has another type.
    """
    return "\n".join(_lines(table, "")).removeprefix("\n") + "\n" if table else ""


def toml_value(value: object) -> str:
    """Return a value as it stands after ``key =``; raises like :func:`toml_text`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)  # inf and nan have the names of TOML
        case str():
            return f'"{_ESCAPED.sub(_escape, value)}"'
        case Mapping():
            pairs = [f"{_key(key)} = {toml_value(each)}" for key, each in value.items()]
            return f"{{ {', '.join(pairs)} }}" if pairs else "{}"
        case list() | tuple():
            parts = [toml_value(each) for each in value]
            line = f"[{', '.join(parts)}]"
            return (
                line if len(line) <= _MAX_LINE_WIDTH else "".join(["[\n", *(f"    {each},\n" for each in parts), "]"])
            )
    raise TypeError(f"TOML has no value for {type(value).__name__}")


def _lines(table: Mapping[str, object], path: str) -> Iterator[str]:
    """Return the lines of a table: its values, and then the tables below it, each after an empty line."""
    inner = {key: value for key, value in table.items() if isinstance(value, Mapping)}
    yield from (f"{_key(key)} = {toml_value(value)}" for key, value in table.items() if key not in inner)
    for key, value in inner.items():
        place = f"{path}{_key(key)}"
        if not value or not all(isinstance(each, Mapping) for each in value.values()):
            yield from ("", f"[{place}]")
        yield from _lines(value, f"{place}.")


def _key(key: str) -> str:
    return key if _BARE_KEY.fullmatch(key) else toml_value(key)


def _escape(match: re.Match[str]) -> str:
    return _ESCAPES.get(match[0]) or f"\\u{ord(match[0]):04x}"
