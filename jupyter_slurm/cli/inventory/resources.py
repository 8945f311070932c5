"""Command ``jupyter slurm resources``: free resources, at most a minute old, without further queries."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import add_command

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "resources",
        description="Print the free GPUs by type, the partitions, and your limits. The numbers are at most a minute "
        "old. The exit code is 1 if they are older because Slurm does not answer.",
        page="how-to/free-resources-and-usage",
    )
    parser.add_argument("--nodes", action="store_true", help="print each node, too")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the free resources; return 1 if they are no longer known."""
    from jupyter_slurm.client.clusters.resources import Resources

    cluster = requested_cluster(args)
    told = cluster.client.get(cluster.path("resources"), params={"nodes": "true" if args.nodes else "false"})
    found = Resources(told)
    if args.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"{found.nodes!r}\n\n{found!r}" if args.nodes else repr(found))
    return 0 if found.unknown_since is None else 1
