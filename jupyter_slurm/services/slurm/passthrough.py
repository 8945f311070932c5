"""Passthrough of Slurm's own commands, as typed by the user."""

from __future__ import annotations

import base64
import secrets
from typing import TYPE_CHECKING, Final

from jupyter_slurm.domain.options.commands import COMMANDS, check_ends
from jupyter_slurm.domain.queries import tables
from jupyter_slurm.errors import ParseError, UsageError
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, next_step, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["pass_through"]

_MAX_TABLE_BYTES: Final = 64 << 20  # bytes; more is shown as the command printed it


async def pass_through(
    client: SlurmClient, argv: list[str], *, table: bool, context: api.Context, is_counted: bool = True
) -> api.CommandResult:
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
    done = await client.passthrough(framed or argv, context, parsed=framed is not None, is_counted=is_counted)
    is_table = framed is not None and done.exit_code == 0
    try:
        parsed = await call_off_loop(lambda raw: _read_table(argv[0], raw, mark), done.stdout) if is_table else None
    except ParseError:  # free text of a user broke the table: show the plain output
        return await pass_through(client, argv, table=False, context=context, is_counted=False)
    return {
        "exit_code": done.exit_code,
        "stdout": base64.b64encode(b"" if parsed else done.stdout).decode("ascii"),
        "stderr": base64.b64encode(done.stderr).decode("ascii"),
        "hint": next_step(argv[0], decode_output(done.stderr)) if done.exit_code else "",
        "table": parsed,
    }


def _read_table(command: str, raw: bytes, mark: str) -> api.CommandResultTable:
    if len(raw) > _MAX_TABLE_BYTES:
        raise ParseError(f"The table has {len(raw)} bytes.")
    table = tables.parse_table(command, raw, mark)
    rows = [[printable(cell) for cell in row] for row in table.rows]
    return {"title": printable(table.title), "columns": table.columns, "rows": rows}
