"""Command ``jupyter slurm clean``."""

from __future__ import annotations

import argparse
import contextlib
import shutil
from typing import Any

from jupyter_slurm.errors import ConfigError

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
    from jupyter_slurm.client.render.terminal import printable

    body = {"older_than_days": args.older_than, "dry_run": args.dry_run}
    answer = _agent().post("/v1/housekeeping", json=body, timeout=None, idempotent=True)
    for path in answer["removed"]:
        print(printable(path))
    done = "would be removed" if args.dry_run else "removed"
    print(f"{len(answer['removed'])} {done}, {answer['kept']} kept.")
    return 0


def _agent() -> Any:
    """Return the client of the agent, which knows the Slurm of this computer, if there is one.

    Raises
    ------
    ConfigError
        This computer has no Slurm, and no cluster is connected.
    """
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.client.clusters.cluster import chosen, current

    if chosen() != "local" or shutil.which("squeue"):
        return current(log_in=False).client
    client = AgentClient.connect()
    states = [one["connection"]["state"] for one in client.get("/v1/clusters") if one.get("connection")]
    if "connected" not in states:
        raise ConfigError(
            "No cluster is connected: only connected clusters are cleaned.",
            hint="Run `jupyter slurm connect NAME` first.",
        )
    return client


def _days(text: str) -> float:
    with contextlib.suppress(ValueError):
        if 0 <= (value := float(text)) <= 36500:
            return value
    raise argparse.ArgumentTypeError(f"{text!r} is not a number of days from 0 to 36500")
