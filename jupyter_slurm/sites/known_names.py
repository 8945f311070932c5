"""What a profile says of partitions, accounts, QOS and types of GPU, checked beyond what the schema can say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain.profile_tables import TomlTable

__all__ = ["TABLES", "known_in"]

#: What a profile tells until the cluster does.
TABLES: Final = ("partitions", "accounts", "qos", "gpus")


def known_in(data: TomlTable, place: Callable[[Sequence[str]], str]) -> Mapping[str, TomlTable]:
    """Return these tables of a profile.

    Parameters
    ----------
    data : mapping
        The profile, as its schema allows it.
    place : callable
        Returns file and line of a key.

    Raises
    ------
    ConfigError
        A time limit is none.
    """
    for name, one in data.get("partitions", {}).items():
        keys = ["partitions", name, "max_time"]
        try:
            parse_time_limit(one.get("max_time", "UNLIMITED"))
        except UsageError as error:
            raise ConfigError(f"{place(keys)}: {'.'.join(keys)}: {error.message}", hint=error.hint) from None
    return {name: data[name] for name in TABLES if name in data}
