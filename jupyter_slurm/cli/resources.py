"""Command ``jupyter slurm resources``: free resources, at most a minute old, without further queries."""

from __future__ import annotations

import argparse
import json
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("resources", help="what is free: GPUs by type, partitions, your limits")
    parser.add_argument("--nodes", action="store_true", help="each node, too")
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")


def run(args: argparse.Namespace) -> int:
    """Print the free resources; return 1 if they are no longer known."""
    from jupyter_slurm.client.clusters.cluster import current, use
    from jupyter_slurm.client.clusters.resources import Resources

    cluster = use(args.cluster) if args.cluster else current()
    told = cluster.client.get(cluster.path("resources"), params={"nodes": "true" if args.nodes else "false"})
    found = Resources(told)
    if args.json:
        print(json.dumps(told, indent=2))
    else:
        print(f"{found.nodes!r}\n\n{found!r}" if args.nodes else repr(found))
    return 0 if found.unknown_since is None else 1
