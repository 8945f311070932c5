"""Commands ``jupyter slurm put``, ``get``, ``copy``, ``stage`` and ``transfers``: files of clusters."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import (
    CLUSTER_HELP,
    add_cluster_option,
    requested_cluster,
    with_cluster_first,
)
from jupyter_slurm.cli.terminal import add_command, add_verbatim, for_terminal, is_help
from jupyter_slurm.documentation import page_url

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster

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
Copy files between two clusters, through this computer, or within one cluster, on its login node or in a job.

  jupyter slurm copy mycluster:results other:results
  jupyter slurm copy data '$SCRATCH/'
  jupyter slurm copy data '$SCRATCH/' -p normal --time 1:00:00

With options of sbatch or the word where=job, a job copies within the cluster. The command waits until it has ended.""",
    "stage": """\
Send a folder to a cluster as stage= of a job does. A later job with stage= sends only what has changed.
A folder of the cluster itself is copied to a directory that the nodes see. The result shows --chdir for a job.
sync=delete deletes files of the copy that were copied before and no longer exist.

  jupyter slurm stage project
  jupyter slurm stage mycluster:project
  jupyter slurm stage mycluster:project '$SCRATCH/project' sync=delete""",
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
        if name == "copy":
            usage = (
                "jupyter slurm copy [CLUSTER:]SOURCE… [CLUSTER:]DEST [options of sbatch] [keywords] [--cluster NAME]"
            )
            more = f"  --cluster NAME  {CLUSTER_HELP}\n\n{page_url('how-to/copy-files')}"
            add_verbatim(subparsers, name, usage=usage, description=f"{about}\n\n{_WORDS}\n\n{more}")
            continue
        is_list = name == "transfers"
        parser = add_command(
            subparsers, name, description=about if is_list else f"{about}\n\n{_WORDS}", page="how-to/copy-files"
        )
        nargs, metavar = ("*", "stop ID") if is_list else ("+", "PATH")
        parser.add_argument("words", nargs=nargs, metavar=metavar, help=_HELP[is_list])
        add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.transfers.transfer import list_transfers, stop_transfer
    from jupyter_slurm.errors import UsageError

    if args.command == "copy":
        return _copy(args)
    cluster = requested_cluster(args) if args.cluster else None
    if args.command != "transfers":
        return _run(args.command, args.words, cluster)
    if not args.words:
        print(repr(list_transfers(cluster)))
    elif len(args.words) == 2 and args.words[0] == "stop":
        print(stop_transfer(args.words[1], cluster))
    else:
        raise UsageError("The command takes only `stop ID`.", hint="Use `jupyter slurm transfers [stop ID]`.")
    return 0


def _copy(args: argparse.Namespace) -> int:
    """Copy between or within clusters; the words have options of sbatch."""
    if not args.words or is_help(args.words):
        args.explain()
        return 0 if args.words else 2
    from jupyter_slurm.client.clusters.cluster import use

    words = with_cluster_first(args.words)
    is_named = len(words) < len(args.words) or words != list(args.words)
    return _run("copy", words[is_named:], use(words[0]) if is_named else None)


def _run(command: str, words: list[str], cluster: Cluster | None) -> int:
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.transfers.transfer import run_transfer

    try:
        print(for_terminal(run_transfer(command, words, cluster)))
    except WaitInterrupted as stopped:
        print(stopped.message, file=sys.stderr)
        return 130
    return 0
