"""Command ``jupyter slurm sites list|show|add|check``: built-in profiles and profiles of the user."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from jupyter_slurm.cli.setup.login_options import LoginOptions, add_login_options
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import ConfigError, SlurmError, UsageError
from jupyter_slurm.sites.profile import list_profiles, parse_profile, profile_items, read_profile
from jupyter_slurm.sites.shipped import shipped_names, shipped_text

__all__ = ["add_parser", "run"]

_MAX_PROFILE_BYTES = 1_000_000


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    sites = add_command(
        subparsers,
        "sites",
        description="List, print, add or check site profiles: TOML files that describe a cluster each. These commands "
        "do not connect to a cluster.",
        page="reference/site-profile",
    )
    verbs = sites.add_subparsers(dest="verb", metavar="list|show|add|check", required=True, help="action")
    verbs.add_parser("list", help="list your profiles and the built-in profiles")
    show = verbs.add_parser("show", help="print a profile with all its keys, or the schema of profiles")
    show.add_argument("profile", nargs="?", metavar="NAME", help="one of your profiles, a built-in profile, or a file")
    show.add_argument("--schema", action="store_true", help="print the JSON Schema of profiles, for editors")
    add = verbs.add_parser("add", help="add a built-in profile, or a file, to your profiles")
    add.add_argument("profile", metavar="PROFILE", help="built-in profile, or a file")
    add.add_argument("name", nargs="?", metavar="CLUSTER", help="name of the cluster (default: that of the profile)")
    add_login_options(add)
    add.add_argument("--yes", action="store_true", help="accept the default answers")
    add.add_argument("--overwrite", action="store_true", help="overwrite an existing profile of that name")
    check = verbs.add_parser("check", help="check profiles, and print file, line and key of each error")
    check.add_argument("profiles", nargs="*", metavar="NAME", help="names or files (default: all your profiles)")


def run(args: argparse.Namespace) -> int:
    """Run a verb of the subcommand."""
    from jupyter_slurm.config import load_settings

    folders = load_settings().sites
    if args.verb == "list":
        return _list(folders)
    if args.verb == "show":
        return _show(args, folders)
    return _add(args, folders) if args.verb == "add" else _check(args, folders)


def _list(folders: list[str]) -> int:
    from jupyter_slurm.cli.setup.site_templates import describe_shipped
    from jupyter_slurm.client.render.terminal import printable

    own = list_profiles(folders)
    for name in own:
        try:
            path, raw = read_profile(name, folders)
            profile = parse_profile(name, raw, path)
            print(printable(f"{name:<16} {profile.title}  ({profile.host}; {path})"))
        except ConfigError as error:
            print(printable(f"{name:<16} {error.message}"))
    if own:
        print()
    print("Built-in profiles (`jupyter slurm init NAME` sets one up):")
    print(describe_shipped())
    return 0


def _show(args: argparse.Namespace, folders: list[str]) -> int:
    from importlib import resources

    from jupyter_slurm.sites.toml_writer import toml_text

    if args.schema:
        sys.stdout.write(resources.files("jupyter_slurm.sites").joinpath("profile.schema.json").read_text("utf-8"))
        return 0
    if args.profile is None:
        raise UsageError("Name a profile to print.", hint="`jupyter slurm sites list` lists the profiles.")
    sys.stdout.write(toml_text(profile_items(*_find_profile(args.profile, folders))))
    return 0


def _add(args: argparse.Namespace, folders: list[str]) -> int:
    from jupyter_slurm.cli.setup.site_templates import is_name, personal, print_notes, site_template, write_profile

    if not folders:
        raise ConfigError(
            "The setting `sites` names no folder for profiles.",
            hint="Remove c.JupyterSlurm.sites from jupyter_slurm_config.py.",
        )
    name = args.name or os.path.basename(args.profile).removesuffix(".toml")
    if not is_name(name):
        raise UsageError(
            f"{name!r} is not a valid name of a cluster.", hint="Add a name: `jupyter slurm sites add FILE NAME`."
        )
    path = os.path.join(folders[0], f"{name}.toml")
    if os.path.exists(path) and not args.overwrite:
        raise UsageError(f"{path} exists.", hint="Add --overwrite, or another name after the profile.")
    options = LoginOptions.from_args(args)
    profile, text = personal(site_template(args.profile), name, path, args.profile, options, is_quick=args.yes)
    write_profile(path, text)
    print(f"Wrote {path}.")
    print_notes(profile)
    print(f"`jupyter slurm doctor {name}` checks the connection.")
    return 0


def _check(args: argparse.Namespace, folders: list[str]) -> int:
    from jupyter_slurm.client.render.terminal import printable

    named, code = args.profiles or list_profiles(folders), 0
    for each in named:
        try:
            profile_items(*_find_profile(each, folders))
            print(printable(f"{each}: valid"))
        except SlurmError as error:
            print(printable(f"{error.message}\n    {error.hint}" if error.hint else error.message), file=sys.stderr)
            code = 1
    if not named:
        print("You have no profiles. `jupyter slurm sites list` lists the built-in profiles.")
    return code


def _find_profile(named: str, folders: list[str]) -> tuple[str, bytes, str]:
    """Return the name, text and path of a profile: a file, a profile of the user, or a built-in profile."""
    if named.endswith(".toml") or os.sep in named:
        try:
            with open(named, "rb") as file:
                return os.path.basename(named).removesuffix(".toml"), file.read(_MAX_PROFILE_BYTES), named
        except OSError as error:
            raise ConfigError(f"{named} cannot be read: {error.strerror}.", hint="Check the path.") from None
    if named not in list_profiles(folders) and named in shipped_names():
        return named, shipped_text(named).encode(), named
    path, raw = read_profile(named, folders)
    return named, raw, path
