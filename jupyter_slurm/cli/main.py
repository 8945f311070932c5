"""Command ``jupyter slurm …``: choice of the subcommand, and display of errors.

A subcommand's module is imported for its call. It has ``add_parser(subparsers)`` and ``run(args) -> int | None``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from jupyter_slurm._version import __version__
from jupyter_slurm.cli.terminal import for_terminal
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import SlurmError

__all__ = ["main"]

_COMMANDS = {
    "jobs": ("jobs", "list your jobs"),
    "show": ("jobs", "show what is known of a job, or its script"),
    "report": ("jobs", "what a job used of what it had"),
    "cancel": ("jobs", "cancel a job, or send it a signal"),
    "bring": ("jobs", "bring back what a job has left in the folders of stage="),
    "hold": ("jobs", "keep jobs that wait from starting"),
    "release": ("jobs", "let held jobs start"),
    "requeue": ("jobs", "put jobs back into the queue: they begin anew"),
    "usage": ("usage", "what was used in a period: hours of CPUs and GPUs, of you or of an account"),
    "resources": ("resources", "what is free: GPUs by type, partitions, your limits"),
    "connect": ("connect", "log in to a cluster of a site profile, for every notebook"),
    "disconnect": ("connect", "end the log-in to a cluster"),
    "launch": ("sessions", "run a Jupyter in a job and bring it here"),
    "sessions": ("sessions", "list the sessions: a Jupyter in a job each"),
    "kernel": ("kernels", "kernels on nodes, for the launcher of a Jupyter here: add, list, remove, switch, follow"),
    "image": ("images", "images of containers: build, pull, list, remove"),
    "open": ("sessions", "open a session in a browser, logged in"),
    "stop": ("sessions", "end a session, with all that runs in it"),
    "rename": ("sessions", "give a session another name"),
    "log": ("sessions", "the last lines of what the Jupyter of a session says"),
    "tunnel": ("tunnel", "bring a port of a running job here"),
    "init": ("setup.init", "set up the way to a cluster: a profile, and a key"),
    "doctor": ("doctor", "look over the way to a cluster and say what is wrong"),
    "sites": ("setup.sites", "list, show, add or check site profiles: yours, and those that ship"),
    "ssh-config": ("setup.ssh_config", "an entry of ~/.ssh/config for the node of a running job"),
    "config": ("config", "print all settings"),
    "clean": ("clean", "remove the directories of jobs that ended long ago"),
    "agent": ("agent", "look at, stop, or read the log of the agent"),
    "embedded": ("embedded", "a real Slurm on this machine, for trying things out"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 after an error (on standard error), 2 for wrong usage."""
    words = list(sys.argv[1:] if argv is None else argv)
    module, parser = _parser(next((word for word in words if not word.startswith("-")), None))
    args = parser.parse_args(words)
    if module is None:
        parser.print_help()
        return 2
    try:
        return module.run(args) or 0
    except SlurmError as error:
        if args.debug:
            raise
        print(f"jupyter slurm {args.command}: {printable(for_terminal(error.message))}", file=sys.stderr)
        if error.hint:
            print(printable(for_terminal(error.hint)), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `… | head`: the reader has gone, and the interpreter must not report it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1


def _parser(command: str | None) -> tuple[Any, argparse.ArgumentParser]:
    """Return the module of the command (None without one) and a parser that has only names for the other commands."""
    parser = argparse.ArgumentParser(
        prog="jupyter slurm",
        description="Slurm in Jupyter: jobs, the agent behind the notebooks, and a cluster to try.",
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="show the traceback of an error")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND")
    chosen = _COMMANDS.get(command or "")
    module = importlib.import_module(f"jupyter_slurm.cli.{chosen[0]}") if chosen else None
    for name, (module_name, summary) in _COMMANDS.items():
        if chosen is None or module_name != chosen[0]:
            subparsers.add_parser(name, help=summary)
    if module is not None:
        module.add_parser(subparsers)
    return module, parser


if __name__ == "__main__":
    sys.exit(main())
