"""Option ``--cluster``, which every command about a cluster has."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster

__all__ = [
    "CLUSTER_HELP",
    "add_cluster",
    "add_cluster_option",
    "first_cluster",
    "requested_cluster",
    "with_cluster_first",
]

CLUSTER_HELP = "name of a site profile, or local for the Slurm of this computer (default: the setting `cluster`)"


def add_cluster_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--cluster``."""
    parser.add_argument("--cluster", metavar="CLUSTER", help=CLUSTER_HELP)


def add_cluster(parser: argparse.ArgumentParser) -> None:
    """Add the name of a cluster as the first argument; ``--cluster`` is accepted, too."""
    parser.add_argument("cluster", metavar="CLUSTER", nargs="?", help="name of a site profile")
    parser.add_argument("--cluster", dest="cluster_option", metavar="CLUSTER", help="the cluster, as in other commands")


def first_cluster(args: argparse.Namespace) -> str | None:
    """Return the cluster of a command line, named as the first argument or by ``--cluster``.

    Raises
    ------
    UsageError
        Both are given, and differ.
    """
    first: str | None = args.cluster
    option: str | None = args.cluster_option
    if first is not None and option not in (None, first):
        raise UsageError(f"Two clusters are named: {first} and {option}.", hint="Name the cluster once.")
    return first if option is None else option


def requested_cluster(args: argparse.Namespace) -> Cluster:
    """Return the cluster of ``--cluster``, logged in; by default that of the settings."""
    from jupyter_slurm.client.clusters.cluster import current, use

    return use(args.cluster) if args.cluster else current()


def with_cluster_first(words: Sequence[str]) -> list[str]:
    """Return the arguments of a command with options of sbatch; a cluster of ``--cluster`` stands first.

    Raises
    ------
    UsageError
        The option has no value.
    """
    rest, cluster = list(words), None
    end = rest.index("--") if "--" in rest else len(rest)
    for number, word in enumerate(rest[:end]):
        name, is_joined, value = word.partition("=")
        if name != "--cluster":
            continue
        if not is_joined:
            value = rest[number + 1] if number + 1 < end else ""
        if not value:
            raise UsageError("--cluster needs the name of a cluster.", hint="List them: `jupyter slurm sites list`.")
        del rest[number : number + (1 if is_joined else 2)]
        cluster = value
        break
    return rest if cluster is None else [cluster, *rest]
