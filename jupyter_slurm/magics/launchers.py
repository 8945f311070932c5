"""Keyword ``launcher=``: a Python cell that runs once for each task of its job."""

from __future__ import annotations

import difflib
import functools
import sys

from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.options.option_parser import HET, OptionTable
from jupyter_slurm.domain.ranks import LAUNCHERS, several_tasks
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.errors import UsageError

__all__ = ["find_launcher", "hint_at_launchers"]


def find_launcher(parsed: MagicLine) -> str | None:
    """Return the launcher of the ranks of the cell; None if the cell runs once.

    Raises
    ------
    UsageError
        The launcher is unknown.
    """
    name = parsed.keywords.get("launcher")
    if name is None or name in LAUNCHERS:
        return name
    near = difflib.get_close_matches(name, LAUNCHERS, n=1)
    hint = f"Did you mean launcher={near[0]}?" if near else f"There are: {', '.join(LAUNCHERS)}."
    raise UsageError(f"launcher={name}: there is no such launcher.", hint=hint)


def hint_at_launchers(parsed: MagicLine, cell: str, table: OptionTable) -> None:
    """Print, once in a kernel, that a cell with several tasks runs once, and which launcher runs it in each task."""
    options = [*table.split(header_options(cell)).options, *parsed.parsed.options]
    if any(option.name == HET for option in options):
        return  # no launcher supports components
    if several_tasks({option.name: option.value for option in options}):
        _show_hint()


@functools.cache
def _show_hint() -> None:
    sys.stderr.write("This cell runs once, on the first node; launcher=srun runs it in each task (see %%sbatch?).\n")
