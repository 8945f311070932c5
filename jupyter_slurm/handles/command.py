"""Running a command of Slurm as a person typed it."""

from __future__ import annotations

import base64
import sys
from collections.abc import Sequence

from jupyter_slurm.domain.commands import REPEATABLE
from jupyter_slurm.errors import CommandError
from jupyter_slurm.handles.cluster import Cluster, context
from jupyter_slurm.handles.table import CommandText, Table
from jupyter_slurm.handles.terminal import printable

__all__ = ["run_command"]


def run_command(cluster: Cluster, argv: Sequence[str]) -> Table | CommandText | None:
    """Run it and return a table where the command has one, else its text; None when it said nothing.

    Raises
    ------
    CommandError
        It failed; the message is its own.
    """
    asked = {"argv": list(argv), "table": True, "context": context(cluster)}
    answer = cluster.client.post(cluster.path("commands"), json=asked, idempotent=argv[0] in REPEATABLE)
    said = base64.b64decode(answer["stderr"]).decode("utf-8", "surrogateescape")
    text = base64.b64decode(answer["stdout"]).decode("utf-8", "surrogateescape")
    if answer["exit_code"] != 0:
        message = said.strip() or text.strip() or f"{argv[0]} ended with exit code {answer['exit_code']}"
        hint = answer.get("hint") or f"`%{argv[0]} --help` and `%{argv[0]}?` say what it takes."
        raise CommandError(printable(message), hint=hint, argv=list(argv), exit_code=answer["exit_code"], stderr=said)
    if said.strip():
        sys.stderr.write(printable(said))
    if answer["table"] is not None:
        table = answer["table"]
        return Table(table["columns"], table["rows"], title=table.get("title", ""))
    return CommandText(text) if text else None
