"""Commands ``jupyter slurm usage`` and ``who``: usage of a cluster in a period, from accounting, and now."""

from __future__ import annotations

import argparse
import json
from typing import Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.client.render.terminal import printable

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    _add_who(subparsers)
    parser = add_command(
        subparsers,
        "usage",
        description="Print the CPU and GPU hours used in a period, from Slurm's accounting: your own, or those of an "
        "account. The default period is the last 30 days. Costs are printed if the site profile has prices, and "
        "the rest of budgets if there are any.",
        page="how-to/free-resources-and-usage",
    )
    parser.add_argument("former", nargs="?", metavar="ACCOUNT", help=argparse.SUPPRESS)  # an earlier spelling
    parser.add_argument("-A", "--account", metavar="NAME", help="usage of an account and the accounts below it")
    parser.add_argument("--start", metavar="DATE", help="start of the period: 2026-11-01, or 2026-11-01T12:00")
    parser.add_argument("--end", metavar="DATE", help="end of the period (default: now)")
    parser.add_argument("--by", metavar="KEYS", help="sum by user, account, partition, qos or gpu; several with commas")
    parser.add_argument("--jobs", action="store_true", help="print each job of the period")
    parser.add_argument("--json", action="store_true", help="print JSON, with seconds instead of hours")
    add_cluster_option(parser)


def _add_who(subparsers: Any) -> None:
    parser = add_command(
        subparsers,
        "who",
        description="Print the CPUs and GPUs of the running jobs of all users. The numbers are at most a minute old.",
        page="how-to/free-resources-and-usage",
    )
    parser.add_argument("--by", metavar="KEYS", default="user", help="sum by user, account or partition, or several")
    parser.add_argument("-A", "--account", metavar="NAME", help="count only jobs of this account")
    parser.add_argument("-p", "--partition", metavar="NAME", help="count only jobs in this partition")
    parser.add_argument("--json", action="store_true", help="print JSON")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Print the usage of a period, or of now."""
    return _print_running_use(args) if args.command == "who" else _print_usage(args)


def _print_running_use(args: argparse.Namespace) -> int:
    from jupyter_slurm.client.clusters.running_use import request_running_use

    found = request_running_use(requested_cluster(args), args.by.split(","), args.account, args.partition)
    print(json.dumps(found.sums, indent=2) if args.json else repr(found))
    return 0


def _print_usage(args: argparse.Namespace) -> int:
    from jupyter_slurm.client.clusters.usage import request_usage

    used = request_usage(requested_cluster(args), args.account or args.former, args.start, args.end)
    if args.json:
        print(json.dumps(used.data, indent=2))
        return 0
    if (args.jobs or args.by) and used.note:
        print(printable(used.note))
    if args.jobs:
        print(repr(used.jobs))
    elif args.by:
        print(f"{used.by(*args.by.split(','))!r}")
    else:
        print(repr(used))
    return 0
