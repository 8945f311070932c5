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
        help="remove the directories of jobs that ended long ago",
        description="Removes job directories (script, output, record) of jobs that are over, never of others, and "
        "copies of folders (stage=) that no job has any more. Jobs whose results have not come back stay.",
    )
    parser.add_argument(
        "--older-than",
        type=_days,
        metavar="DAYS",
        help="those that ended so long ago (default: the setting retention_days)",
    )
    parser.add_argument("--dry-run", action="store_true", help="only say what would be removed")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.clusters.cluster import current
    from jupyter_slurm.client.render.terminal import printable

    body = {"older_than_days": args.older_than, "dry_run": args.dry_run}
    answer = current().client.post("/v1/housekeeping", json=body, timeout=None, idempotent=True)
    for path in answer["removed"]:
        print(printable(path))
    done = "would be removed" if args.dry_run else "removed"
    print(f"{len(answer['removed'])} {done}, {answer['kept']} kept")
    return 0


def _days(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) <= 36500:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is no number of days, 0 to 36500")
