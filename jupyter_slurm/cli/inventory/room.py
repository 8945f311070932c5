"""Command ``jupyter slurm room``: free space and quotas of the user's directories on a cluster."""

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
        "room",
        description="Print the free space and the quotas of your directories on the cluster, and the size of the files "
        "of jupyter_slurm. The numbers are at most five minutes old.",
        page="how-to/free-resources-and-usage",
    )
    parser.add_argument("word", nargs="?", choices=["newer"], metavar="newer", help="ask again now; or --newer")
    parser.add_argument("--newer", action="store_const", const="newer", dest="option", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the free space; return 1 if it is no longer known."""
    from jupyter_slurm.client.clusters.room import request_room

    found = request_room(requested_cluster(args), newer=bool(args.word or args.option))
    print(json.dumps(found.data, indent=2) if args.json else repr(found))
    return 0 if found.unknown_since is None else 1
