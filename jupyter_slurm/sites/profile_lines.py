"""Checks of a site profile beyond its schema, and the lines of its keys."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["TABLES", "line_number", "profile_names"]

# Tables of a profile that are used until the cluster has answered.
TABLES: Final = ("partitions", "accounts", "qos", "gpus")


def profile_names(data: TomlTable, place: Callable[[Sequence[str]], str]) -> Mapping[str, TomlTable]:
    """Return these tables of a profile.

    Parameters
    ----------
    data : mapping
        The profile, valid by its schema.
    place : callable
        Returns file and line of a key.

    Raises
    ------
    ConfigError
        A time limit is not valid.
    """
    for name, one in data.get("partitions", {}).items():
        keys = ["partitions", name, "max_time"]
        try:
            parse_time_limit(one.get("max_time", "UNLIMITED"))
        except UsageError as error:
            raise ConfigError(f"{place(keys)}: {'.'.join(keys)}: {error.message}", hint=error.hint) from None
    return {name: data[name] for name in TABLES if name in data}


_MAX_LINES = 2_000  # lines; each is parsed as often as there are lines after it


def line_number(text: str, keys: Sequence[str]) -> int | None:
    """Return the number of the line, from 1, that sets a key; None if unknown.

    Parameters
    ----------
    text : str
        TOML with a valid syntax.
    keys : sequence of str
        Path of the key, its own name last; a value that is not a key (an array index) ends the path.
    """
    lines, whole = text.splitlines(keepends=True), 0  # lines that are valid TOML without the following ones
    if not keys or len(lines) > _MAX_LINES:
        return None
    for count in range(1, len(lines) + 1):
        try:
            data = tomllib.loads("".join(lines[:count]))
        except ValueError:
            continue  # a value of several lines
        if _has(data, keys):
            return whole + 1
        whole = count
    return None


def _has(data: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(data, Mapping):
            return True
        if key not in data:
            return False
        data = data[key]
    return True
