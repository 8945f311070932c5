"""Command ``jupyter slurm agent status|stop|logs``."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping
from typing import Any

from jupyter_slurm._version import __version__
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import AgentError, AgentUnreachable

__all__ = ["add_parser", "run", "show_status", "stop"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "agent",
        description="Show, stop or debug the agent: the background process on this computer that follows your jobs "
        "and holds the connections to clusters. Commands and notebooks start it when they need it.",
        page="explanation/how-it-works",
    )
    actions = parser.add_subparsers(dest="action", required=True, metavar="status|stop|logs", help="action")
    status = _add_action(actions, "status", "Print the process, its start time and what it holds (exit code 1: none)")
    stop = _add_action(actions, "stop", "Stop the agent. Jobs continue, and the next command starts a new agent")
    stop.add_argument("--only-idle", action="store_true", help="stop it only if it holds nothing")
    logs = _add_action(actions, "logs", "Print the end of the agent's log")
    logs.add_argument("-n", "--lines", type=int, default=50, metavar="N", help="number of lines (default: %(default)s)")
    for action in (status, stop, logs):
        action.add_argument("--json", action="store_true", help="print JSON")


def _add_action(actions: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = actions.add_parser(name, help=text[0].lower() + text[1:], description=f"{text}.")
    return parser


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.config import load_settings

    action = {"status": show_status, "stop": stop, "logs": _logs}[args.action]
    return action(load_settings(), args)


def show_status(settings: Any, args: argparse.Namespace) -> int:
    """Print the agent's process, version and holders; return 1 if there is no agent."""
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.agent.hosting.discovery import is_older
    from jupyter_slurm.domain.slurm_values import counted

    try:
        with AgentClient.connect(settings, start=False) as client:
            info = client.get("/v1/agent")
    except AgentUnreachable as error:
        _print(args, {"running": False, "detail": error.message}, f"{error.message}\n{error.hint}".strip())
        return 1
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(info["started"]))
    holds = ", ".join(counted(number, kind) for kind, number in info["holds"].items() if number) or "nothing"
    text = (
        f"The agent is running since {since} ({info['host']}, process {info['pid']}).\n"
        f"Version {info['version']}, API {info['api']['major']}.{info['api']['minor']}. It holds: {holds}."
    )
    if is_older(info["version"]):
        text += (
            f"\nIt is older than jupyter_slurm {__version__}, which is installed. Run `jupyter slurm agent stop`: the "
            "next command starts the new agent."
        )
    _print(args, {"running": True, **info}, text)
    return 0


def stop(settings: Any, args: argparse.Namespace) -> int:
    """Stop the agent, and wait for its end."""
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
            "The agent did not stop within 20 seconds.", hint="Look for the reason in `jupyter slurm agent logs`."
        )
    _print(args, {"stopped": True}, "Stopped the agent. Jobs continue.")
    return 0


def _logs(settings: Any, args: argparse.Namespace) -> int:
    from jupyter_slurm.agent.hosting import launcher, log_file

    path = log_file.log_path(settings)
    tail = launcher.log_tail(settings, max(1, args.lines))
    if not tail:
        print(f"The log {path} is empty or does not exist.", file=sys.stderr)
    _print(args, {"path": path, "lines": tail.splitlines()}, tail)
    return 0


def _print(args: argparse.Namespace, value: Mapping[str, object], text: str) -> None:
    from jupyter_slurm.client.render.terminal import printable

    print(json.dumps(value, indent=2) if args.json else printable(text))
