"""Command ``jupyter slurm usage``: usage of a cluster in a period, from accounting."""

from __future__ import annotations

import argparse
import json
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "usage",
        help="what was used in a period: hours of CPUs and GPUs, of you or of an account",
        description="From accounting, of the last 30 days where no other time is said; with what it cost, where the "
        "profile says it, and what is left of budgets.",
    )
    parser.add_argument("account", nargs="?", help="of a project or lab, with those below it; else your own jobs")
    parser.add_argument("--start", metavar="DATE", help="2026-11-01, or 2026-11-01T12:00")
    parser.add_argument("--end", metavar="DATE", help="as --start; else now")
    parser.add_argument("--by", metavar="WHAT", help="user, account, partition, qos, gpu; or several, with commas")
    parser.add_argument("--jobs", action="store_true", help="each job of the period")
    parser.add_argument("--json", action="store_true", help="for programs; seconds instead of hours")
    parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")


def run(args: argparse.Namespace) -> int:
    """Print the usage."""
    from jupyter_slurm.client.clusters.cluster import current, use
    from jupyter_slurm.client.clusters.usage import request_usage

    used = request_usage(use(args.cluster) if args.cluster else current(), args.account, args.start, args.end)
    if args.json:
        print(json.dumps(used.data, indent=2))
    elif args.jobs:
        print(repr(used.jobs))
    elif args.by:
        print(f"{used.by(*args.by.split(','))!r}")
    else:
        print(repr(used))
    return 0
