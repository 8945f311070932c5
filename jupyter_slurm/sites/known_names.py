"""Partitions, accounts, QOS and GPU types of a profile, checked beyond the schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["TABLES", "profile_names"]

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
