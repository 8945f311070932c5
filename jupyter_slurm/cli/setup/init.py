"""Command ``jupyter slurm init``: a new or built-in site profile, a key, and a check of the connection."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.setup.site_templates import (
    as_toml,
    is_name,
    personal,
    print_notes,
    site_template,
    without_place,
    write_profile,
)
from jupyter_slurm.cli.setup.ssh_hosts import host_names
from jupyter_slurm.cli.terminal import ask_until_valid, yes
from jupyter_slurm.errors import AgentUnreachable, ConfigError, SlurmError, UsageError
from jupyter_slurm.sites.profile import Profile, parse_profile

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    init = subparsers.add_parser(
        "init",
        help="set up the way to a cluster: a profile, and a key",
        description="Ask how a cluster is reached, write its site profile, make a key and have it let in if you want, "
        "and look the way over. What an option says is not asked.",
    )
    init.add_argument("cluster", nargs="?", metavar="CLUSTER", help="what you will call it")
    init.add_argument("--profile", metavar="FILE", help="a ready-made profile, instead of the questions")
    init.add_argument("--host", metavar="HOST", help="the login node, as ~/.ssh/config names it, or a host name")
    init.add_argument("--user", metavar="NAME", help="your user name there")
    init.add_argument("--jump", metavar="HOSTS", help="hosts on the way, the first one first, with commas; or none")
    init.add_argument(
        "--key", choices=("yes", "no"), help="whether hosts that lack it are given your key, or a new one"
    )
    init.add_argument("--no-passphrase", action="store_true", help="none for a key that is made")
    init.add_argument("--overwrite", action="store_true", help="write the profile anew if it is there")
    init.add_argument("--yes", action="store_true", help="take what is offered, where no option says otherwise")
    init.add_argument("--ssh-config", metavar="FILE", help="instead of ~/.ssh/config; the profile says so, too")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.cli.doctor import examine
    from jupyter_slurm.cli.setup.ssh_keys import key_bearer
    from jupyter_slurm.config import load_settings

    settings = load_settings()
    folders = settings.sites
    if not folders:
        raise ConfigError(
            "Settings.sites names no folder for profiles.", hint="Take it out of jupyter_slurm_config.py."
        )
    ready = site_template(args.profile) if args.profile else None
    name = _name(args, ready)
    path = os.path.join(folders[0], f"{name}.toml")
    if os.path.exists(path) and not (args.overwrite or yes(f"{path} is there. Write it anew?", default=False)):
        print(f"It stays. `jupyter slurm doctor {name}` looks it over.")
        return 1
    profile, text = _Interview(args, name, path).text() if ready is None else _personal_profile(args, name, path, ready)
    write_profile(path, text)
    print(f"Written: {path}")
    print_notes(profile)
    _end_old(name, settings)
    wish = args.key or ("yes" if args.yes else None)
    bearer = key_bearer(profile, wish, passphrase=not args.no_passphrase)
    print()
    code = examine(name, settings, arrived=bearer)
    if code == 0:
        print(f"`%slurm use {name}` in a notebook uses it, `--cluster {name}` in a terminal.")
    return code


def _end_old(name: str, settings: Settings) -> None:
    """End a login of an older profile of that name: the check is for the new profile."""
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.client.clusters.clients import may_end, other_clients

    try:
        client = AgentClient.connect(settings, start=False)
    except AgentUnreachable:
        return
    with client:
        known = [each for each in client.get("/v1/clusters") if each["id"] == name]
        if not known or known[0]["connection"]["state"] == "disconnected":
            return
        users = other_clients(known[0])
        if users and not may_end(name, users):
            print(f"The log-in to {name} stays: the new profile counts from the next one on.")
            return
        client.post(f"/v1/clusters/{name}/disconnect")


def _name(args: argparse.Namespace, ready: str | None) -> str:
    if args.cluster and is_name(args.cluster):
        return str(args.cluster)
    offered = os.path.basename(args.profile).removesuffix(".toml") if ready is not None else ""
    if offered and not args.cluster and is_name(offered):
        return offered
    return ask_until_valid("Name of the cluster", check=is_name)


def _personal_profile(args: argparse.Namespace, name: str, path: str, ready: str) -> tuple[Profile, str]:
    for option in ("host", "jump", "ssh_config"):
        if getattr(args, option):
            raise UsageError(f"--{option.replace('_', '-')} is not for a ready-made profile.", hint="The file says it.")
    return personal(ready, name, path, args.profile, args.user, is_quick=args.yes)


# Questions ------------------------------------------------------------------------------------------------------------


class _Interview:
    """Interview about the connection to a cluster."""

    def __init__(self, args: argparse.Namespace, name: str, path: str) -> None:
        self._args, self._name, self._path = args, name, path
        config = os.path.abspath(args.ssh_config) if args.ssh_config else None
        self._login: dict[str, object] = {"ssh_config": config} if config else {}
        self._configured_hosts = host_names(config or os.path.expanduser("~/.ssh/config"))

    def text(self) -> tuple[Profile, str]:
        """Return the profile, and its text."""
        self._host()
        is_known = self._login["host"] in self._configured_hosts
        said = self._args.user is not None or self._args.jump is not None
        if not is_known or said or not self._is_right():
            self._user("as ~/.ssh/config says" if is_known else "as here")
            self._jump("as ~/.ssh/config says" if is_known else "none")
        return self._read(), as_toml(self._login)

    def _host(self) -> None:
        if self._args.host is None:
            for number, host in enumerate(self._configured_hosts, 1):
                print(f"  {number:>3}  {host}")
        number_of = {str(number): host for number, host in enumerate(self._configured_hosts, 1)}
        question = "Login node (a number, or a host name)" if self._configured_hosts else "Login node (host name)"
        self._ask_setting("host", self._args.host, question, "", lambda answer: number_of.get(answer, answer))

    def _is_right(self) -> bool:
        """Ask whether the connection is the one in ``~/.ssh/config``."""
        from jupyter_slurm.services.connections.transports import route_hosts

        try:
            way = asyncio.run(route_hosts(self._read()))
        except SlurmError as error:
            print(f"{error.message}\n{error.hint}")
            return False
        print("The way there: " + " -> ".join(["this machine", *(f"{host.user}@{host.name}" for host in way)]))
        return self._args.yes or yes("Is that right?", default=True)

    def _user(self, default: str) -> None:
        question = "Your user name there"
        self._ask_setting(
            "user", self._args.user, question, default, lambda answer: None if answer == default else answer
        )

    def _jump(self, default: str) -> None:
        question = "Hosts on the way, the first one first, with spaces between"

        def hosts(answer: str) -> list[str] | None:
            if answer == default:
                return None
            return [] if answer == "none" else [self._named(host) for host in re.split(r"[ ,]+", answer.strip())]

        self._ask_setting("jump", self._args.jump, question, default, hosts)

    def _named(self, host: str) -> str:
        """Return a jump host with its user name, by default that of the login node."""
        is_plain = "@" not in host and host not in self._configured_hosts
        return f"{self._login['user']}@{host}" if is_plain and "user" in self._login else host

    def _ask_setting(
        self, key: str, given: str | None, question: str, default: str, value: Callable[[str], Any]
    ) -> None:
        def takes(answer: str) -> bool:
            before = dict(self._login)
            chosen = value(answer)
            self._login.pop(key, None)
            if chosen is not None:
                self._login[key] = chosen
            try:
                self._read()
            except ConfigError as error:
                print(without_place(error.message, self._path))
                self._login = before
                return False
            return True

        if given is None and self._args.yes and default:
            given = default
        if given is None:
            ask_until_valid(question, default, check=takes)
        elif not takes(given):
            raise UsageError(f"--{key} {given} cannot be used.", hint="`jupyter slurm init --help` says what it takes.")

    def _read(self) -> Profile:
        return parse_profile(self._name, as_toml({"host": "x", **self._login}).encode(), self._path)
