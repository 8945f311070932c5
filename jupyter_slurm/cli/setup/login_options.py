"""Options of ``init`` and ``sites add`` about the login, and their place in the text of a profile."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_slurm.errors import ConfigError, UsageError
from jupyter_slurm.sites.profile import Profile, parse_profile
from jupyter_slurm.sites.toml_writer import toml_text, toml_value

__all__ = [
    "LoginOptions",
    "add_login_options",
    "as_toml",
    "check_setting",
    "split_hosts",
    "with_login",
    "without_place",
]


@dataclass(frozen=True)
class LoginOptions:
    """Options about the login; None: not given.

    Attributes
    ----------
    host, user : str or None
        Login node, and user name.
    jump : str or None
        Jump hosts with commas, or ``none``.
    ssh_config : str or None
        Absolute path of an OpenSSH configuration file.
    """

    host: str | None = None
    user: str | None = None
    jump: str | None = None
    ssh_config: str | None = None

    @classmethod
    def from_args(cls, args: argparse.Namespace) -> LoginOptions:
        """Return the options of a command line."""
        config = os.path.abspath(os.path.expanduser(args.ssh_config)) if args.ssh_config else None
        return cls(args.host, args.user, args.jump, config)

    @property
    def jump_hosts(self) -> list[str] | None:
        """Return the jump hosts, none for ``none``; None if not given."""
        return None if self.jump is None else split_hosts(self.jump)


def add_login_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser."""
    parser.add_argument("--host", metavar="HOST", help="login node: a name in ~/.ssh/config, or a host name")
    parser.add_argument("--user", metavar="NAME", help="your user name on the cluster")
    parser.add_argument(
        "--jump",
        metavar="none|HOSTS",
        help="jump hosts, separated by commas, the first one first; none to connect directly",
    )
    parser.add_argument(
        "--ssh-config", metavar="FILE", help="OpenSSH configuration of this cluster, instead of ~/.ssh/config"
    )


def split_hosts(text: str) -> list[str]:
    """Return the hosts of an answer: separated by commas or spaces, or ``none``."""
    return [] if text.strip() == "none" else [host for host in re.split(r"[ ,]+", text.strip()) if host]


def as_toml(login: Mapping[str, object]) -> str:
    """Return the text of a profile with only the connection to the login node."""
    return "[login]\n" + toml_text(login)


def without_place(message: str, path: str) -> str:
    """Return an error about an answer, without the path of the file."""
    return re.sub(rf"^{re.escape(path)}(?::\d+)?: ", "", message)


def check_setting(name: str, key: str, value: object) -> None:
    """Check a value for ``[login]``.

    Raises
    ------
    ConfigError
        The value is not valid.
    """
    try:
        parse_profile(name, as_toml({"host": "x", key: value}).encode(), "")
    except ConfigError as error:
        raise ConfigError(without_place(error.message, ""), hint=error.hint) from None


def with_login(name: str, path: str, text: str, changes: Mapping[str, object]) -> tuple[Profile, str]:
    """Write settings into ``[login]`` of a profile's text, without other changes to it.

    Raises
    ------
    ConfigError
        The text is written in a form that cannot be changed.
    UsageError
        A value is not valid.
    """
    for key, value in changes.items():
        try:
            check_setting(name, key, value)
        except ConfigError as error:
            option = f"--{key.replace('_', '-')}"
            shown = ",".join(map(str, value)) if isinstance(value, list) else value
            raise UsageError(
                f"{option} {shown} cannot be used: {error.message}",
                hint=f"Write {option} as for ssh; `jupyter slurm init --help` explains it.",
            ) from None
    before = parse_profile(name, text.encode(), path)
    if not changes:
        return before, text
    changed = _replaced(text, changes)
    try:
        profile = parse_profile(name, changed.encode(), path)
    except ConfigError:
        profile = before
    for key, value in changes.items():
        is_written = getattr(profile, key) == (tuple(value) if isinstance(value, list) else value)
        if not is_written:
            raise ConfigError(
                f"`{key}` cannot be written into {path}: the [login] table of the profile has an unusual form.",
                hint=f"Copy the file, and add these lines below [login]: {toml_text(changes)}",
            )
    return profile, changed


def _replaced(text: str, changes: Mapping[str, object]) -> str:
    """Replace the values of keys in the table ``[login]``, and add keys that it lacks."""
    header = re.search(r"(?m)^[ \t]*\[login\][^\n]*\n?", text)
    if header is None:
        return f"{text.rstrip()}\n\n{as_toml(changes)}"
    start = header.end()
    following = re.search(r"(?m)^[ \t]*\[[^\]\"\n,]+\]", text[start:])  # the header of the next table
    end = start + following.start() if following else len(text)
    table, added = text[start:end], dict[str, object]()
    for key, value in changes.items():
        pattern = rf"(?ms)^[ \t]*{key}[ \t]*=[ \t]*(?:\[.*?\]|[^\n]*?)([ \t]*#[^\n]*)?$"
        line = f"{key} = {toml_value(value)}"
        if (found := re.search(pattern, table)) is None:
            added[key] = value
        else:
            table = f"{table[: found.start()]}{line}{found[1] or ''}{table[found.end() :]}"
    opening = text[:start] if text[:start].endswith("\n") else f"{text[:start]}\n"
    return opening + toml_text(added) + table + text[end:]
