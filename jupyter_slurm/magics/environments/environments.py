"""Magic ``%slurm env``: Python environments on the cluster, and jobs that make one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from jupyter_slurm.client.environments.environment import (
    USAGE,
    addressed,
    create_environment,
    environments,
    parse_environment_line,
    remove_environment,
)
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render.table import CommandText, Table
from jupyter_slurm.client.submission.submit import Preview
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.errors import OptionError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import check_name
from jupyter_slurm.magics.environments.images import show_job
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.user_namespace import local_variables, lookup_in, variables

__all__ = ["run"]


def run(shell: Any, line: str, local_ns: Mapping[str, object]) -> Job | Preview | Table | CommandText:
    """Run the command after ``%slurm env``."""
    typed, lookup = line, lookup_in(shell, local_ns)
    cluster, line = addressed(typed)
    words = [token.text for token in tokenize(line, lookup, variables(line, cluster))]
    act = words[0] if words else "list"
    if act == "list" and len(words) < 2:
        return environments(cluster)
    if act == "remove" and len(words) == 2:
        return CommandText(remove_environment(words[1], cluster) + "\n")
    if act != "create":
        raise UsageError(f"%slurm env has no subcommand {' '.join(words)!r}.", hint=f"Use `{USAGE}`.")
    prefix = f"%slurm env {typed.removesuffix(line)}"
    with pointing_at(prefix, line):
        asked = parse_environment_line(cluster, line, lookup, variables(line, cluster))
        own = parse_environment_line(cluster, line, lookup, local_variables(line)).parsed.keywords
        if "from" in own:
            asked.parsed.keywords["from"] = own["from"]
        check_name(asked.parsed)
    try:
        made = create_environment(cluster, asked)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, prefix + line[: asked.start], line[asked.start :], asked.parsed, "")
        raise
    if isinstance(made, str):
        return CommandText(made + "\n")
    if isinstance(made, Preview):
        return made
    show_job(shell, made, asked.parsed)
    return made
