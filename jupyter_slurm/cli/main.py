# PYTHON_ARGCOMPLETE_OK
"""Command ``jupyter slurm …``: choice of the subcommand, and display of errors.

A subcommand's module is imported for its call. It has ``add_parser(subparsers)`` and ``run(args) -> int | None``.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any

from jupyter_slurm._version import __version__
from jupyter_slurm.cli.terminal import PlainHelp, for_terminal
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.documentation import DOCUMENTATION_URL
from jupyter_slurm.errors import SlurmError

__all__ = ["main"]

_COMMANDS = {
    "init": ("setup.init", "set up a connection to a cluster"),
    "connect": ("connect", "log in to a cluster, or list the connections"),
    "disconnect": ("connect", "end the connection to a cluster"),
    "doctor": ("doctor", "check the connection to a cluster"),
    "sh": ("login_commands", "run a command on the login node"),
    "put": ("files.transfers", "copy files of this computer to a cluster"),
    "get": ("files.transfers", "copy files of a cluster to this computer"),
    "copy": ("files.transfers", "copy files between or within clusters"),
    "stage": ("files.transfers", "send a folder as stage= of a job does"),
    "transfers": ("files.transfers", "list the transfers of files, or stop one"),
    "ls": ("files.listing", "list a directory of the cluster"),
    "shell": ("shell", "open a terminal on the login node or in a job"),
    "sites": ("setup.sites", "list, print, add or check site profiles"),
    "config": ("config", "print all settings"),
    "jobs": ("jobs", "list your jobs"),
    "show": ("jobs", "print the details of a job, its script or its record"),
    "report": ("jobs", "print the resources that a job used"),
    "cancel": ("jobs", "cancel a job, or send it a signal"),
    "hold": ("jobs", "keep pending jobs from starting"),
    "release": ("jobs", "allow held jobs to start"),
    "requeue": ("jobs", "put jobs back into the queue"),
    "suspend": ("jobs", "stop the processes of running jobs"),
    "resume": ("jobs", "let suspended jobs continue"),
    "bring": ("jobs", "copy back the results of a job (stage=)"),
    "env": ("environments.environments", "make, list or remove Python environments on a cluster"),
    "image": ("environments.images", "build, pull, list or remove container images"),
    "launch": ("sessions", "run JupyterLab, or another server, in a job"),
    "sessions": ("sessions", "list the sessions"),
    "open": ("sessions", "open a session in a browser"),
    "stop": ("sessions", "stop sessions"),
    "rename": ("sessions", "rename a session"),
    "log": ("sessions", "print the log of a session"),
    "kernel": ("kernels", "add, list, remove or switch to remote kernels"),
    "tunnel": ("tunnel", "forward a port of a job or a login node"),
    "code": ("editors.code", "open VS Code, Cursor or ssh on a node, in a job that starts by itself"),
    "ssh-config": ("setup.ssh_config", "print an ssh entry for the node of a job"),
    "resources": ("inventory.resources", "print free GPUs, partitions and your limits"),
    "usage": ("inventory.usage", "print the CPU and GPU hours used in a period"),
    "who": ("inventory.usage", "print who uses which CPUs and GPUs now"),
    "room": ("inventory.room", "print free space and quotas of your directories"),
    "agent": ("agent", "show, stop or debug the agent"),
    "clean": ("clean", "remove the directories of finished jobs"),
    "embedded": ("embedded", "run a Slurm cluster on this computer"),
    "uninstall": ("setup.uninstall", "stop the agent and remove its files and kernels, before pip"),
}
"""Modules and summaries of the commands."""

_GROUPS = {
    "Set up": "init connect disconnect doctor sh shell sites config",
    "Files": "ls put get copy stage transfers",
    "Jobs": "jobs show report cancel hold release requeue suspend resume bring env image",
    "Jupyter on nodes": "launch sessions open stop rename log kernel code tunnel ssh-config",
    "Look": "resources usage who room",
    "Maintain": "agent clean embedded uninstall",
}

_EPILOG = """\
Commands about a cluster have --cluster NAME, for a site profile of that name. Without it, they use the setting
`cluster`, or the Slurm of this computer. `jupyter slurm COMMAND --help` explains a command.

To complete commands and names with Tab, add this line to ~/.bashrc or ~/.zshrc:
  eval "$(register-python-argcomplete jupyter)\""""


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command and return its exit code: 0, 1 after an error (on standard error), 2 for wrong usage."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure") and stream.errors == "strict":  # a terminal may not show all characters
            stream.reconfigure(errors="backslashreplace")
    if "_ARGCOMPLETE" in os.environ:
        from jupyter_slurm.cli.arguments.completion import complete

        complete(lambda command: _parser(command)[1])
    try:
        try:
            return _run(list(sys.argv[1:] if argv is None else argv))
        finally:
            if sys.stdout:  # also after --help, which raises SystemExit
                sys.stdout.flush()
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `… | head`: the reader has gone, and the interpreter must not report it at its end
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    finally:
        if (used := sys.modules.get("jupyter_slurm.client.clusters.cluster")) is not None:
            used.close_client()


def _run(words: list[str]) -> int:
    command = next((word for word in words if not word.startswith("-")), None)
    module, parser = _parser(command)
    if command is not None and command not in _COMMANDS:
        near = get_close_matches(command, _COMMANDS, n=1)
        more = f" Did you mean {near[0]!r}?" if near else " `jupyter slurm --help` lists all commands."
        parser.error(f"There is no command {command!r}.{more}")
    args, unknown = parser.parse_known_args(words)
    if unknown:  # its own parser shows the usage of the command
        parser.commands.get(args.command, parser).error(f"unrecognized arguments: {' '.join(unknown)}")
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


class _Parser(argparse.ArgumentParser):
    """Parser of the command line; ``commands`` has the parser of each command."""

    commands: Mapping[str, argparse.ArgumentParser] = {}


def _parser(command: str | None) -> tuple[Any, _Parser]:
    """Return the module of the command (None without one) and a parser that has only names for the other commands."""
    groups = [
        f"{title}:\n" + "\n".join(f"  {name:<12} {_COMMANDS[name][1]}" for name in names.split())
        for title, names in _GROUPS.items()
    ]
    parser = _Parser(
        prog="jupyter slurm",
        usage="jupyter slurm COMMAND [options]",
        description="\n\n".join(["Run notebook cells, Jupyter and kernels as Slurm jobs.", *groups]),
        epilog=f"{_EPILOG}\n\nDocumentation: {DOCUMENTATION_URL}",
        formatter_class=PlainHelp,
    )
    parser.add_argument("--version", action="version", version=__version__)
    parser.add_argument("--debug", action="store_true", help="print the traceback of an error")
    subparsers = parser.add_subparsers(
        dest="command",
        metavar="COMMAND",
        help=argparse.SUPPRESS,
        prog="jupyter slurm",
        parser_class=argparse.ArgumentParser,
    )
    parser.commands = subparsers.choices
    chosen = _COMMANDS.get(command or "")
    module = importlib.import_module(f"jupyter_slurm.cli.{chosen[0]}") if chosen else None
    for name, (module_name, _) in _COMMANDS.items():
        if chosen is None or module_name != chosen[0]:
            subparsers.add_parser(name)
    if module is not None:
        module.add_parser(subparsers)
    return module, parser


if __name__ == "__main__":
    sys.exit(main())
