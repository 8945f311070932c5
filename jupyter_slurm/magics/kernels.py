"""Magic ``%slurm kernel``: the move of this notebook to another kernel, with its variables."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from jupyter_slurm.client.allocations.kernel_end import ending_with_kernel
from jupyter_slurm.client.kernels.notebook_moves import Notebook, allocation_note, find_notebook, parse_move_line
from jupyter_slurm.client.render.table import CommandText
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import JobNotFound, UsageError

__all__ = ["ACTIONS", "USAGE", "run"]

ACTIONS = {
    "switch": "move to another kernel, with in=x,y",
    "cancel": "keep this kernel",
}
"""The actions, and their descriptions."""

USAGE = "%slurm kernel switch KERNEL [in=x,y] [release]; %slurm kernel, %slurm kernel cancel"
"""The usage text."""

_STATUS_HINT = "%slurm kernel shows the progress, %slurm kernel cancel cancels the move."


def run(arguments: Sequence[str]) -> CommandText:
    """Run ``%slurm kernel switch KERNEL [in=x,y] [release]`` or ``cancel``, or show the progress of a move."""
    act = arguments[0] if arguments else ""
    if act == "switch":
        to, notebook = parse_move_line(act, arguments[1:]), _notebook()
        notebook.move(to)
        along = f", with {', '.join(to.names)}" if to.names else ""
        said = f"{notebook.path} moves to {to.kernel} when it is ready{along}. Until then, cells run in this kernel."
        lines = [said, allocation_note(ending_with_kernel(), keep=to.keep)]
        return CommandText("".join(f"{printable(line)}\n" for line in lines if line) + f"{_STATUS_HINT}\n")
    if act not in ("", "cancel") or len(arguments) > 1:
        raise UsageError(
            f"%slurm kernel has no subcommand {' '.join(arguments)!r}.",
            hint=f"Use {USAGE}. In a terminal, `jupyter slurm kernel` has add, list, remove and follow.",
        )
    moves = _notebook().moves
    if act == "cancel":
        for move in moves:
            if not move.is_over:
                move.cancel()
                return CommandText(f"{printable(move.text)}\n")
        return CommandText("This notebook is not moving to another kernel.\n")
    told = "".join(f"{move.state}: {printable(move.text)}\n" for move in moves)
    return CommandText(told or f"This notebook is not moving to another kernel.\n{USAGE}\n")


def _notebook() -> Notebook:
    """Return the notebook of this kernel."""
    from ipykernel.connect import get_connection_file

    try:
        name = Path(get_connection_file()).stem
    except RuntimeError:
        name = ""
    if (found := re.fullmatch(r"kernel-(.+)", name)) is None:
        raise JobNotFound(
            "This kernel does not belong to a notebook of a Jupyter server.",
            hint="Run `jupyter slurm kernel switch NOTEBOOK KERNEL` in a terminal to move an open notebook.",
        )
    return find_notebook(found[1])
