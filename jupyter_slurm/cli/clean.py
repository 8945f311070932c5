"""Command ``jupyter slurm clean``."""

from __future__ import annotations

import argparse
import contextlib
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "clean",
        description="Remove the directories of finished jobs (script, output, record), and copies of directories "
        "(stage=) that no job uses. Jobs with results that were not copied back are kept.",
    )
    parser.add_argument(
        "--older-than",
        type=_days,
        metavar="DAYS",
        help="remove jobs that finished this many days ago (default: the setting retention_days)",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the directories without removing them")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.clusters.cluster import current
    from jupyter_slurm.client.render.terminal import printable

    body = {"older_than_days": args.older_than, "dry_run": args.dry_run}
    answer = current().client.post("/v1/housekeeping", json=body, timeout=None, idempotent=True)
    for path in answer["removed"]:
        print(printable(path))
    done = "would be removed" if args.dry_run else "removed"
    print(f"{len(answer['removed'])} {done}, {answer['kept']} kept.")
    return 0


def _days(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) <= 36500:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 0 to 36500")
