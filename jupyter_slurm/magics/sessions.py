"""Magic ``%slurm launch``."""

from __future__ import annotations

import keyword
from collections.abc import Mapping
from typing import Any

from jupyter_slurm.client.allocations.choice import place_named
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.sessions.launch import WORDS, launch, named_in, resolve_cluster
from jupyter_slurm.client.sessions.session import Session
from jupyter_slurm.domain.magic_line.expand import MISSING
from jupyter_slurm.domain.magic_line.parser import parse_cell_line
from jupyter_slurm.domain.scripts.environments import AUTOMATIC_ENVIRONMENT
from jupyter_slurm.errors import OptionError, SubmitRefused
from jupyter_slurm.magics.cell_options import mention
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.user_namespace import lookup_in, parse_for_cluster

__all__ = ["run"]

_NODE_PLACEHOLDERS = (
    "port",
    "host",
    "base_url",
    "socket",
)  # replaced in a command by the node, not variables of the notebook


def run(shell: Any, line: str, local_ns: Mapping[str, object]) -> Session:
    """Launch a session; with ``open``, wait until it is ready and open it in a browser."""
    name, rest = named_in(line)
    cluster, prefix = resolve_cluster(name), "%slurm launch" + line.removesuffix(rest)
    with pointing_at(prefix, rest):
        table, lookup = option_table(cluster, "sbatch"), lookup_in(shell, local_ns)
        parsed = parse_for_cluster(
            parse_cell_line,
            cluster,
            rest,
            table,
            WORDS,
            lambda name: MISSING if name in _NODE_PLACEHOLDERS else lookup(name),
        )
    if parsed.keywords.get("env") == AUTOMATIC_ENVIRONMENT:
        from jupyter_slurm.client.environments.automatic import automatic_environment

        parsed.keywords["env"] = automatic_environment(cluster, parsed, ["jupyterlab"])
    try:
        on = parsed.keywords.get("on")
        session = launch(cluster, parsed, on=place_named(cluster, on, {**shell.user_ns, **local_ns}) if on else None)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, prefix, rest, parsed, "")
        raise
    variable = parsed.keywords.get("name") or ""
    if variable.isidentifier() and not keyword.iskeyword(variable):
        shell.push({variable: session})
    if "open" in parsed.keywords:
        if (notebook := live_view.notebook()) is not None:
            session._show(notebook)
        session.wait_ready().open()
    else:
        mention(shell, session)
    return session
