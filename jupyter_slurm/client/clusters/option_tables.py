"""Option tables of the submitting commands on the current cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster, used_clusters
from jupyter_slurm.domain.cluster_facts import NamedEntity
from jupyter_slurm.domain.options.option_parser import Arity, OptionSpec, OptionTable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["local_option_table", "named_options", "option_table"]

_ARITY = {"yes": Arity.REQUIRED, "optional": Arity.OPTIONAL, "no": Arity.NONE}


def option_table(cluster: Cluster, command: str) -> OptionTable:
    """Return the options of sbatch, salloc or srun on the cluster, with plugin options; built once a process."""
    if command not in cluster.tables:
        cluster.tables[command] = OptionTable(command, [_spec(entry) for entry in cluster.options(command)["options"]])
    return cluster.tables[command]


def local_option_table(command: str) -> OptionTable:
    """Return the known options of a command without a request, else the options of all versions."""
    for cluster in used_clusters():
        if command in cluster.tables:
            return cluster.tables[command]
    return OptionTable.for_command(command)


def named_options(table: OptionTable) -> list[NamedEntity]:
    """Return the long options of a command with their help."""
    return [NamedEntity(f"--{name}", spec.help) for spec in table.specs for name in spec.names]


def _spec(entry: api.Option) -> OptionSpec:
    return OptionSpec(
        tuple(entry["names"]), entry.get("short") or "", _ARITY[entry["takes_value"]], entry.get("help") or ""
    )
