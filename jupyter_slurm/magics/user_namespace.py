"""Names of the user in a magic line."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.domain.environment_variables import submission_environment
from jupyter_slurm.domain.magic_line.expand import MISSING, Lookup
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.staging_rules import with_local_sources
from jupyter_slurm.errors import UsageError

__all__ = ["local_variables", "lookup_in", "parse_for_cluster", "variables"]


def lookup_in(shell: Any, local_ns: Mapping[str, object]) -> Lookup:
    """Return a function that looks up a name; names unknown to Python are left for the cluster."""

    def lookup(name: str) -> Any:
        for namespace in (local_ns, shell.user_ns):
            if name in namespace:
                return _usable(name, namespace[name])
        return MISSING

    return lookup


def variables(line: str, cluster: Cluster) -> dict[str, str]:
    """Return the variables that a line may name: those sent with a submission, without secrets of Jupyter.

    For a remote cluster, HOME, USER and LOGNAME of that cluster; any other name stays as typed, because variables of
    this computer have no meaning there.
    """
    if not ("$" in line or "~" in line):
        return {}
    return cluster.login_variables() if cluster.is_remote else local_variables(line)


def local_variables(line: str) -> dict[str, str]:
    """Return the variables for words that name a file of this computer: its own, also for a remote cluster."""
    return submission_environment(os.environ) if "$" in line or "~" in line else {}


def parse_for_cluster(
    parse: Callable[[str, OptionTable, Mapping[str, bool | None], Lookup, Mapping[str, str]], MagicLine],
    cluster: Cluster,
    line: str,
    table: OptionTable,
    keywords: Mapping[str, bool | None],
    lookup: Lookup,
) -> MagicLine:
    """Parse a line with the variables of its cluster; the folders of ``stage=`` have those of this computer."""
    parsed = parse(line, table, keywords, lookup, variables(line, cluster))
    if staged := parsed.keywords.get("stage"):
        local = parse(line, table, keywords, lookup, local_variables(line)).keywords["stage"]
        parsed.keywords["stage"] = with_local_sources(staged, local or "")
    return parsed


def _usable(name: str, value: Any) -> Any:
    """Refuse a value whose text is not meaningful in a line."""
    from jupyter_slurm.client.jobs.job import Job

    if value is None:
        raise UsageError(f"{name} is None and cannot be inserted into the line.", hint="Assign a value first.")
    for item in value if isinstance(value, list | tuple) else (value,):
        if isinstance(item, Job) and item.id is None:
            raise UsageError(
                f"{name} has no job ID yet: sbatch has not answered.", hint="Use job.refresh() to ask again."
            )
    return value
