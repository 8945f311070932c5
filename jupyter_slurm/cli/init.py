"""``jupyter slurm init``: a site profile from a few questions, and a key where there is none."""

from __future__ import annotations

import argparse
import asyncio
import glob
import json
import os
import re
import shlex
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_slurm.cli.asking import asked, yes
from jupyter_slurm.errors import ConfigError
from jupyter_slurm.sites.profile import Profile, parse_profile

__all__ = ["add_parser", "host_names", "run"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # of a file, too
_DEEPEST = 16


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    init = subparsers.add_parser(
        "init",
        help="set up the way to a cluster: a profile, and a key",
        description="Ask how a cluster is reached, write its site profile, make and copy over a key if you want, and "
        "look the way over.",
    )
    init.add_argument("cluster", nargs="?", metavar="CLUSTER", help="what you will call it")
    init.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config; the profile says so, too")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.cli.doctor import examine
    from jupyter_slurm.config import load_settings

    folders = load_settings().sites
    if not folders:
        raise ConfigError(
            "Settings.sites names no folder for profiles.", hint="Take it out of jupyter_slurm_config.py."
        )
    name = args.cluster if args.cluster and _is_name(args.cluster) else asked("Name of the cluster", check=_is_name)
    path = os.path.join(folders[0], f"{name}.toml")
    if os.path.exists(path) and not yes(f"{path} is there. Write it anew?", default=False):
        print(f"It stays. `jupyter slurm doctor {name}` looks it over.")
        return 1
    profile, text = _interview(name, path, args.ssh_config)
    _write(path, text)
    print(f"Written: {path}")
    _offer_key(profile)
    print()
    return examine(name, folders)


# The questions --------------------------------------------------------------------------------------------------------


def _interview(name: str, path: str, ssh_config: str | None) -> tuple[Profile, str]:
    """Ask how a cluster is reached; return its profile, and the text of that."""
    login: dict[str, Any] = {"ssh_config": os.path.abspath(ssh_config)} if ssh_config else {}

    def read() -> Profile:
        return parse_profile(name, _toml(login).encode(), path)

    def takes(key: str, value: Callable[[str], Any]) -> Callable[[str], bool]:
        def check(answer: str) -> bool:
            before = dict(login)
            chosen = value(answer)
            login.pop(key, None)
            if chosen is not None:
                login[key] = chosen
            try:
                read()
            except ConfigError as error:
                print(error.message.removeprefix(f"{path}: "))
                login.clear()
                login.update(before)
                return False
            return True

        return check

    known = host_names(ssh_config or os.path.expanduser("~/.ssh/config"))
    for number, host in enumerate(known, 1):
        print(f"  {number:>3}  {host}")
    number_of = {str(number): host for number, host in enumerate(known, 1)}
    question = "Login node (a number, or a host name)" if known else "Login node (host name)"
    host = number_of.get(answer := asked(question, check=takes("host", lambda a: number_of.get(a, a))), answer)
    said = "as ~/.ssh/config says" if host in known else "as here"
    asked("Your user name there", said, check=takes("user", lambda a: None if a == said else a))
    said = "as ~/.ssh/config says" if host in known else "none"
    asked(
        "Hosts on the way, the first one first, with spaces between",
        said,
        check=takes("jump", lambda a: None if a == said else [] if a == "none" else re.split(r"[ ,]+", a)),
    )
    return read(), _toml(login)


def _toml(login: dict[str, Any]) -> str:
    # A JSON string or list of ASCII is one of TOML.
    return "[login]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in login.items())


def _is_name(answer: str) -> bool:
    try:
        if not _NAME.fullmatch(answer):
            raise ConfigError("A name has letters, digits and . _ - only.")
        parse_profile(answer, b'[login]\nhost = "x"\n', answer)
    except ConfigError as error:
        print(error.message)
        return False
    return True


def host_names(path: str, depth: int = 0) -> list[str]:
    """Return the hosts that an OpenSSH configuration names, patterns left out, with the files that it includes."""
    found: list[str] = []
    for key, words in _lines(path):
        if key == "host":
            found += [word for word in words if not re.search(r"[*?!]", word)]
        elif key == "include" and depth < _DEEPEST:
            for word in words:
                pattern = os.path.join(os.path.expanduser("~/.ssh"), os.path.expanduser(word))
                for file in sorted(glob.glob(pattern)):
                    found += host_names(file, depth + 1)
    return list(dict.fromkeys(found))


def _lines(path: str) -> Iterator[tuple[str, list[str]]]:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            text = file.read()
    except OSError:
        return
    for line in text.splitlines():
        match = re.match(r"\s*(\w+)(?:\s*=\s*|\s+)(.*)", line)
        if match is not None:
            try:
                words = shlex.split(match[2], comments=True)
            except ValueError:  # an open quote; ssh refuses it
                words = match[2].split()
            yield match[1].lower(), words


# What is made ---------------------------------------------------------------------------------------------------------


def _write(path: str, text: str) -> None:
    from jupyter_slurm.transport.local import LocalTransport

    async def write() -> None:
        here = LocalTransport(workers=1)
        try:
            await here.make_dir(os.path.dirname(path))
            await here.write(path, text.encode())
        finally:
            here.close()

    asyncio.run(write())


def _offer_key(profile: Profile) -> None:
    """Offer to make a key if there is none, and to have it let in."""
    from jupyter_slurm.cli.doctor import Terminal
    from jupyter_slurm.services.enrolment import keys_for, put_key

    paths, has_key = asyncio.run(keys_for(profile))
    public = next((f"{path}.pub" for path in paths if os.path.exists(f"{path}.pub")), None)
    if public is None and not has_key:
        public = _make_key(next((path for path in paths if path.endswith("ed25519")), paths[0] if paths else None))
    if public is None or not yes(f"Have {profile.host} let your key {public} in from now on?", default=True):
        return
    with open(public, encoding="utf-8") as file:
        line = file.readline()
    terminal = Terminal(profile.name)
    added = terminal.call(lambda: put_key(profile, terminal, line))
    print(f"{profile.host} lets it in from now on." if added else f"{profile.host} knows it; nothing was changed.")


def _make_key(path: str | None) -> str | None:
    """Make a key; the passphrase is between ssh-keygen and the person."""
    if path is None or os.path.exists(path) or not yes(f"You have no key. Make one ({path})?", default=True):
        return None
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    done = subprocess.run(["ssh-keygen", "-t", "ed25519", "-f", path], check=False)
    return f"{path}.pub" if done.returncode == 0 else None
