"""Passthrough of Slurm's own commands, as typed by the user."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING

from jupyter_slurm.domain.options.commands import COMMANDS, check_ends
from jupyter_slurm.domain.queries import tables
from jupyter_slurm.errors import ParseError, UsageError
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, next_step, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["pass_through"]


async def pass_through(client: SlurmClient, argv: list[str], *, table: bool, context: api.Context) -> api.CommandResult:
    """Run a command; with ``table``, as a table if the command has one. Return the answer in the form of the API.

    Raises
    ------
    UsageError
        The command is not one of those passed through.
    """
    if not argv or argv[0] not in COMMANDS:
        raise UsageError(
            f"{(argv[0] if argv else '')!r} is not a Slurm command that jupyter_slurm runs.",
            hint="Use a magic of a Slurm command, for example %squeue.",
        )
    if any("\0" in word for word in argv):
        raise UsageError("The command line holds a NUL byte, which no command can take.", hint="Remove the NUL byte.")
    check_ends(argv)
    mark = secrets.token_hex(8)
    env = context.get("env") or {}
    table = table and not any(env.get(name) for name in tables.FORMAT_VARIABLES.get(argv[0], ()))
    framed = tables.tabular_argv(argv[0], argv[1:], mark) if table else None
    done = await client.passthrough(framed or argv, context, parsed=framed is not None)
    try:
        parsed = tables.parse_table(argv[0], done.stdout, mark) if framed and done.exit_code == 0 else None
    except ParseError:  # free text of a user broke the table: show the plain output
        return await pass_through(client, argv, table=False, context=context)
    return {
        "exit_code": done.exit_code,
        "stdout": base64.b64encode(b"" if parsed else done.stdout).decode("ascii"),
        "stderr": base64.b64encode(done.stderr).decode("ascii"),
        "hint": next_step(argv[0], decode_output(done.stderr)) if done.exit_code else "",
        "table": {
            "title": printable(parsed.title),
            "columns": parsed.columns,
            "rows": [[printable(cell) for cell in row] for row in parsed.rows],
        }
        if parsed
        else None,
    }
