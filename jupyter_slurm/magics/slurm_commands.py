"""Magics for ``%squeue``, ``%sinfo`` and the other Slurm commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_slurm.client.clusters.cluster import current
from jupyter_slurm.client.clusters.slurm_command import run_command
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.render.table import CommandText, Table
from jupyter_slurm.domain.magic_line.parser import command_arguments
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.errors import UsageError
from jupyter_slurm.magics.error_pointer import pointing_at
from jupyter_slurm.magics.user_namespace import lookup_in, variables

__all__ = ["run"]

_NAME = re.compile(r"\{\w+\}")


def run(shell: Any, command: str, line: str, local_ns: Mapping[str, object]) -> Table | CommandText | None:
    """Run a command with the words of the line: quotes as in a shell, ``{name}`` and ``$name`` first from Python.

    ``sattach`` prints what a step prints, as long as the step runs: its output is shown as it arrives.
    """
    cluster = current()
    with pointing_at(f"%{command} ", line):
        table, lookup = OptionTable.for_command(command), lookup_in(shell, local_ns)
        words = command_arguments(line, table, lookup, variables(line, cluster))
        _check_defined(command, words)
    if command == "sattach":
        from jupyter_slurm.magics.login_commands import run_text  # rarely used

        try:
            run_text(shell, shlex.join([command, *words]))
        except WaitInterrupted:
            again = f"%sattach {shlex.join(words)}"
            raise WaitInterrupted(
                f"Interrupted: only sattach is ended. The job continues. `{again}` shows its output again."
            ) from None
        return None
    return run_command(cluster, [command, *words])


def _check_defined(command: str, words: Sequence[str]) -> None:
    """Refuse names without a value before the command does a part of its work, such as the cancellation of one job."""
    if undefined := [word for word in words if _NAME.fullmatch(word)]:
        raise UsageError(
            f"{undefined[0]} has no value, so `{command}` was not run.",
            hint="Define the variable in this notebook, or correct its name.",
        )
