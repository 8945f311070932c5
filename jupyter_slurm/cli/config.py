"""Command ``jupyter slurm config``: all settings, with their help, default, current value and file."""

from __future__ import annotations

import argparse
import json
import textwrap
from dataclasses import asdict
from typing import Any

from jupyter_slurm.cli.terminal import add_command

__all__ = ["add_parser", "run"]

_WIDTH = 100


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "config",
        description="Print all settings with their help, default and current value, and the file that sets the value. "
        "Set a value with a line such as `c.JupyterSlurm.poll_shortest = 30` in jupyter_slurm_config.py in one of "
        "Jupyter's configuration directories (`jupyter --paths`). A running agent keeps the settings of its start: run "
        "`jupyter slurm agent stop` after a change.",
        page="reference/settings",
    )
    parser.add_argument("names", nargs="*", metavar="SETTING", help="print only these settings")
    parser.add_argument("--changed", action="store_true", help="print only settings that a file sets")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    """Print the settings."""
    from difflib import get_close_matches

    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.config import describe_settings
    from jupyter_slurm.errors import UsageError

    settings = describe_settings()
    known = [one.name for one in settings]
    for name in args.names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"Did you mean {near[0]}?" if near else "`jupyter slurm config` lists the settings."
            raise UsageError(f"There is no setting {name}.", hint=hint)
    chosen = [one for one in settings if not args.names or one.name in args.names]
    if args.changed:
        chosen = [one for one in chosen if one.source]
    if args.json:
        print(json.dumps([asdict(one) for one in chosen], indent=2))
        return 0
    for one in chosen:
        print(printable(f"c.JupyterSlurm.{one.name} = {one.value!r}"))
        print(textwrap.fill(one.help, _WIDTH, initial_indent="    ", subsequent_indent="    ", break_on_hyphens=False))
        print(f"    Allowed: {one.kind}. Default: {one.default!r}.")
        print(printable(f"    Set in {one.source}." if one.source else "    Not set: the default is used."))
        if one.name == "sites":
            _print_profiles()
        print()
    if not chosen:
        print("No file sets a setting.")
    return 0


def _print_profiles() -> None:
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.config import load_settings
    from jupyter_slurm.sites.profile import find_profile, list_profiles

    folders = load_settings().sites
    for name in list_profiles(folders):
        print(printable(f"    Profile {name}: {find_profile(name, folders)}"))
