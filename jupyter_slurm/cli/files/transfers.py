"""Commands ``jupyter slurm put``, ``get``, ``copy``, ``stage`` and ``transfers``: files of clusters."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import add_command, for_terminal

__all__ = ["add_parser", "run"]

_ABOUT = {
    "put": """\
Copy files and folders of this computer to a cluster.

  jupyter slurm put data.csv models mycluster:project/
  jupyter slurm put train.py '$SCRATCH/train.py'

The destination is an existing directory, or the new name of the only source. With / at its end it is made. It begins
in your home on the cluster, and may have variables of the cluster.""",
    "get": """\
Copy files and folders of a cluster to this computer.

  jupyter slurm get mycluster:project/results .
  jupyter slurm get results/model.pt results/log.txt downloads/""",
    "copy": """\
Copy files between two clusters, through this computer, or within one cluster, on its login node.

  jupyter slurm copy mycluster:results other:results
  jupyter slurm copy data '$SCRATCH/'""",
    "stage": """\
Send a folder to a cluster as stage= of a job does. A later job with stage= sends only what has changed.

  jupyter slurm stage project""",
    "transfers": "List the running and the recent transfers of files, or stop one: `transfers stop ID`.",
}
_HELP = ("paths, and the keywords overwrite and background", "stop, and the ID of a transfer")
_WORDS = """\
Files that are the same on both sides are not sent. Files that differ are only replaced with the word `overwrite`. With
the word `background` the command does not wait. Ctrl-C stops the transfer; the same command continues it. Links that
lead out of the copied folder are not copied."""


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    for name, about in _ABOUT.items():
        is_list = name == "transfers"
        parser = add_command(
            subparsers, name, description=about if is_list else f"{about}\n\n{_WORDS}", page="how-to/copy-files"
        )
        nargs, metavar = ("*", "stop ID") if is_list else ("+", "PATH")
        parser.add_argument("words", nargs=nargs, metavar=metavar, help=_HELP[is_list])
        add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.transfers.transfer import list_transfers, run_transfer, stop_transfer
    from jupyter_slurm.errors import UsageError

    cluster = requested_cluster(args) if args.cluster else None
    if args.command != "transfers":
        try:
            print(for_terminal(run_transfer(args.command, args.words, cluster)))
        except WaitInterrupted as stopped:
            print(stopped.message, file=sys.stderr)
            return 130
    elif not args.words:
        print(repr(list_transfers(cluster)))
    elif len(args.words) == 2 and args.words[0] == "stop":
        print(stop_transfer(args.words[1], cluster))
    else:
        raise UsageError("The command takes only `stop ID`.", hint="Use `jupyter slurm transfers [stop ID]`.")
    return 0
