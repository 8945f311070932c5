"""Magics ``%slurm put``, ``get``, ``copy``, ``stage`` and ``transfers``: files of clusters."""

from __future__ import annotations

from jupyter_slurm.client.render.table import CommandText, Table
from jupyter_slurm.client.transfers.transfer import list_transfers, run_transfer, stop_transfer
from jupyter_slurm.errors import UsageError

__all__ = ["run", "run_list"]


def run(kind: str, words: list[str]) -> CommandText:
    """Copy files."""
    return CommandText(run_transfer(kind, words) + "\n")


def run_list(words: list[str]) -> Table | CommandText:
    """List the transfers, or stop one."""
    if not words:
        return list_transfers()
    if len(words) != 2 or words[0] != "stop":
        raise UsageError("%slurm transfers takes only `stop ID`.", hint="Use `%slurm transfers [stop ID]`.")
    return CommandText(stop_transfer(words[1]) + "\n")
