"""Command ``jupyter slurm agent status|stop|logs``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from jupyter_slurm.errors import AgentError, AgentUnreachable

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("agent", help="look at, stop, or read the log of the agent")
    actions = parser.add_subparsers(dest="action", required=True, metavar="status|stop|logs")
    status = actions.add_parser("status", help="who runs, since when, and what it holds; exit code 1 when none runs")
    stop = actions.add_parser("stop", help="end it; jobs go on, and the next command starts another one")
    stop.add_argument("--only-idle", action="store_true", help="leave it when it holds something")
    logs = actions.add_parser("logs", help="the end of its log")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="how many lines (default: %(default)s)")
    for action in (status, stop, logs):
        action.add_argument("--json", action="store_true", help="for programs")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.config import load_settings

    action = {"status": _status, "stop": _stop, "logs": _logs}[args.action]
    return action(load_settings(), args)


def _status(settings: Any, args: argparse.Namespace) -> int:
    from jupyter_slurm.agent.client.agent_client import AgentClient

    try:
        with AgentClient.connect(settings, start=False) as client:
            info = client.get("/v1/agent")
    except AgentUnreachable as error:
        _print(args, {"running": False, "detail": error.message}, f"{error.message}\n{error.hint}".strip())
        return 1
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info["started"]))
    holds = ", ".join(f"{number} {kind}" for kind, number in info["holds"].items() if number) or "nothing"
    text = (
        f"The agent runs ({info['host']}, pid {info['pid']}) since {since}.\n"
        f"version {info['version']}, API {info['api']['major']}.{info['api']['minor']}; it holds {holds}"
    )
    _print(args, {"running": True, **info}, text)
    return 0


def _stop(settings: Any, args: argparse.Namespace) -> int:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.agent.hosting import launcher

    endpoint = launcher.find(settings)
    if endpoint is None:
        _print(args, {"stopped": False}, "No agent is running.")
        return 0
    with AgentClient.connect(settings, start=False) as client:
        client.stop_agent(only_idle=args.only_idle)
    if not launcher.wait_ended(endpoint, 20.0):
        raise AgentError(
            "The agent was asked to end and still answers.", hint="`jupyter slurm agent logs` may say why."
        )
    _print(args, {"stopped": True}, "The agent has left. Jobs go on.")
    return 0


def _logs(settings: Any, args: argparse.Namespace) -> int:
    from jupyter_slurm.agent.hosting import discovery, launcher

    path = discovery.log_path(settings)
    tail = launcher.log_tail(settings, max(1, args.lines))
    if not tail:
        print(f"{path} is empty or not there.", file=sys.stderr)
    _print(args, {"path": path, "lines": tail.splitlines()}, tail)
    return 0


def _print(args: argparse.Namespace, value: Mapping[str, object], text: str) -> None:
    from jupyter_slurm.client.render.terminal import printable

    print(json.dumps(value, indent=2) if args.json else printable(text))
