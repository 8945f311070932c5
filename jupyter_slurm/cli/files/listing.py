"""Command ``jupyter slurm ls``: the files of a cluster."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "ls",
        description="List a directory of the cluster: `jupyter slurm ls [CLUSTER] [PATH]` or `ls CLUSTER:PATH`. A "
        "single word is a path if it begins with a dot or ~ or has a slash, else a cluster. Over SSH, a relative path "
        "starts in your home directory on the cluster. On this computer, it starts in the working directory. Control "
        "characters in names are shown as escapes.",
        page="how-to/files-of-a-cluster",
    )
    parser.add_argument("words", metavar="CLUSTER PATH", nargs="*", help="the cluster and the path, or one of them")
    parser.add_argument("-a", "--all", action="store_true", help="list hidden files, too")
    parser.add_argument("--json", action="store_true", help="print JSON, with sizes in bytes")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """List a directory."""
    from jupyter_slurm.client.clusters.cluster_names import split_address
    from jupyter_slurm.client.clusters.file_listing import request_listing

    words: list[str] = args.words
    if len(words) > 2 - bool(args.cluster):
        raise UsageError(f"{words[-1]!r} is one word too many.", hint="Use `jupyter slurm ls [CLUSTER] [PATH]`.")
    named, path = split_address(words[0]) if len(words) == 1 and not args.cluster else (None, "")
    if named is not None:
        args.cluster, words = named, [path or "."]
    elif words and not args.cluster and not (len(words) == 1 and (words[0][:1] in (".", "~") or "/" in words[0])):
        args.cluster, words = words[0], words[1:]
    found = request_listing(requested_cluster(args), words[0] if words else ".", has_hidden=args.all)
    print(json.dumps(found.entries, indent=2) if args.json else repr(found))
    return 0
