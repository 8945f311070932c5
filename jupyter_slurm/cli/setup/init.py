"""Command ``jupyter slurm init``: a new or built-in site profile, a key, and a check of the connection."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.ssh_hosts import host_names
from jupyter_slurm.cli.setup.login_options import (
    LoginOptions,
    add_login_options,
    as_toml,
    split_hosts,
    without_place,
)
from jupyter_slurm.cli.setup.site_templates import (
    describe_shipped,
    is_name,
    personal,
    print_notes,
    site_template,
    write_profile,
)
from jupyter_slurm.cli.terminal import PlainHelp, ask_until_valid, yes
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import AgentUnreachable, ConfigError, SlurmError, UsageError
from jupyter_slurm.sites.profile import Profile, find_profile, list_profiles, load_profile, parse_profile, read_profile
from jupyter_slurm.sites.shipped import nearest_shipped, resolve_shipped, shipped_names

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    init = subparsers.add_parser(
        "init",
        description="Set up a connection to a cluster. Uses the profile of that name that your site or jupyter_slurm "
        "provides, or asks for the login node and your user name. Writes a site profile, offers to create an SSH key "
        "and to copy it to the cluster, then checks the connection. Options on the command line are not asked for.",
        epilog=f"Built-in profiles:\n{describe_shipped()}\n\n{page_url('getting-started/quickstart-laptop')}",
        formatter_class=PlainHelp,
    )
    init.add_argument("cluster", nargs="?", metavar="NAME", help="a built-in profile, or a new name for the cluster")
    init.add_argument(
        "--profile",
        metavar="FILE|NAME",
        help=f"a file, or a built-in profile ({', '.join(shipped_names())}); none to be asked instead",
    )
    add_login_options(init)
    init.add_argument(
        "--key", choices=("yes", "no"), help="copy your public key, or a new one, to the hosts that lack it; or not"
    )
    init.add_argument("--no-passphrase", action="store_true", help="create the key without a passphrase")
    init.add_argument("--overwrite", action="store_true", help="overwrite an existing profile of that name")
    init.add_argument("--yes", action="store_true", help="accept the default answers")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.cli.doctor import examine
    from jupyter_slurm.cli.setup.ssh_keys import key_bearer
    from jupyter_slurm.config import load_settings

    settings = load_settings()
    folders = settings.sites
    if not folders:
        raise ConfigError(
            "The setting `sites` names no folder for profiles.",
            hint="Remove c.JupyterSlurm.sites from jupyter_slurm_config.py.",
        )
    name, source = _choose(args, folders)
    template = site_template(source) if source else None
    path = os.path.join(folders[0], f"{name}.toml")
    options = LoginOptions.from_args(args)
    profile: Profile | None
    is_shared = source is not None and source == find_profile(name, folders[1:])
    if is_shared and options == LoginOptions() and not os.path.exists(path):
        profile = load_profile(name, folders[1:])
        print(f"Uses the site profile {source}. An option such as --user makes a profile of your own from it.")
        print_notes(profile)
    elif (profile := _present(name, path, template, options)) is not None:
        print(f"Kept {path}: its content is the same.")
    elif os.path.exists(path) and not (args.overwrite or _may_overwrite(path)):
        print(f"Kept {path}. --overwrite replaces it. `jupyter slurm doctor {name}` checks the connection.")
        return 1
    else:
        profile = _write_profile(name, path, source, options, is_quick=args.yes)
        _end_old(name, settings)
    wish = args.key or ("yes" if args.yes else None)
    bearer = key_bearer(profile, wish, passphrase=not args.no_passphrase)
    print()
    code = examine(name, settings, arrived=bearer)
    if code == 0:
        print(f"Use it with `%slurm use {name}` in a notebook, or `--cluster {name}` in a terminal.")
    else:
        print("Follow the instructions of the failed checks. Then run the same command again.")
    return code


def _may_overwrite(path: str) -> bool:
    return yes(f"{path} exists. Overwrite it (as --overwrite does)?", default=False)


def _present(name: str, path: str, template: str | None, options: LoginOptions) -> Profile | None:
    """Return the existing profile if the command, when run again without questions, would write the same."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read()
        present = parse_profile(name, text.encode(), path)
        settled = options if options.user is not None else replace(options, user=present.user)
        if template is None and options.host is None:
            return None
        with contextlib.redirect_stdout(None):  # both print what they would do
            if template is None:
                again = _Interview(options, name, path, is_quick=True).text()[1]
            else:
                again = personal(template, name, path, path, settled, is_quick=True)[1]
        return present if again == text else None
    except (OSError, UnicodeDecodeError, SlurmError):
        return None


def _write_profile(name: str, path: str, source: str | None, options: LoginOptions, *, is_quick: bool) -> Profile:
    if source is None:
        profile, text = _Interview(options, name, path, is_quick=is_quick).text()
    else:
        profile, text = personal(site_template(source), name, path, source, options, is_quick=is_quick)
    write_profile(path, text)
    print(f"Wrote {path}.")
    print_notes(profile)
    return profile


def _shared_profile(name: str, folders: Sequence[str]) -> str | None:
    """Return the path of a site profile that this computer offers to all users; None if there is none.

    Raises
    ------
    ConfigError
        Other users can change it.
    """
    return read_profile(name, folders[1:])[0] if find_profile(name, folders[1:]) else None


def _choose(args: argparse.Namespace, folders: Sequence[str]) -> tuple[str, str | None]:
    """Return the name of the cluster, and its profile: a file, a built-in profile, or None for the questions."""
    if args.profile and args.profile != "none":
        offered = os.path.basename(args.profile).removesuffix(".toml")
        site_template(args.profile)  # an error about the profile comes before a question about the name
        return _name(args.cluster or offered), args.profile
    if args.cluster is None and args.profile is None:
        for shared in list_profiles(folders[1:]):
            print(printable(f"  {shared:<12} {find_profile(shared, folders[1:])}"))
        print(f"Built-in profiles:\n{describe_shipped()}")
    name = _name(args.cluster, "" if args.profile else " (a built-in profile, or a new name)")
    if args.profile == "none":
        return name, None
    if (shared_path := _shared_profile(name, folders)) is not None:
        return name, shared_path
    if (shipped := resolve_shipped(name)) is not None:
        return name, shipped
    near = nearest_shipped(name) if args.host is None else None
    question = f"There is no built-in profile {name}. Use the built-in profile {near}?"
    if near is not None and yes(question, default=True, is_quick=args.yes):
        return near, near
    return name, None


def _name(given: str | None, explanation: str = "") -> str:
    if given and is_name(given):
        return given
    return ask_until_valid(f"Name of the cluster{explanation}", check=is_name)


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
            print(f"Kept the present connection to {name}. The new profile is used from the next login on.")
            return
        client.post(f"/v1/clusters/{name}/disconnect")


# Questions ------------------------------------------------------------------------------------------------------------


class _Interview:
    """Interview about the connection to a cluster."""

    def __init__(self, options: LoginOptions, name: str, path: str, *, is_quick: bool) -> None:
        self._options, self._name, self._path, self._is_quick = options, name, path, is_quick
        self._login: dict[str, object] = {"ssh_config": options.ssh_config} if options.ssh_config else {}
        self._configured_hosts = host_names(options.ssh_config or os.path.expanduser("~/.ssh/config"))

    def text(self) -> tuple[Profile, str]:
        """Return the profile, and its text."""
        self._host()
        is_known = self._login["host"] in self._configured_hosts
        is_given = self._options.user is not None or self._options.jump is not None
        if not is_known or is_given or not self._is_right():
            self._user("as in ~/.ssh/config" if is_known else "as on this computer")
            self._jump("as in ~/.ssh/config" if is_known else "none")
        return self._read(), as_toml(self._login)

    def _host(self) -> None:
        if self._options.host is None:
            for number, host in enumerate(self._configured_hosts, 1):
                print(f"  {number:>3}  {host}")
        number_of = {str(number): host for number, host in enumerate(self._configured_hosts, 1)}
        question = "Login node (a number, or a host name)" if self._configured_hosts else "Login node (host name)"
        self._ask_setting("host", self._options.host, question, "", lambda answer: number_of.get(answer, answer))

    def _is_right(self) -> bool:
        """Ask whether the connection is the one in ``~/.ssh/config``."""
        from jupyter_slurm.services.connections.transports import route_hosts

        try:
            way = asyncio.run(route_hosts(self._read()))
        except SlurmError as error:
            print(f"{error.message}\n{error.hint}")
            return False
        print("Connection: " + " -> ".join(["this computer", *(f"{host.user}@{host.name}" for host in way)]))
        return yes("Is this correct?", default=True, is_quick=self._is_quick)

    def _user(self, default: str) -> None:
        question = "Your user name on the cluster"
        self._ask_setting(
            "user", self._options.user, question, default, lambda answer: None if answer == default else answer
        )

    def _jump(self, default: str) -> None:
        question = "Jump hosts, separated by commas, the first one first"

        def hosts(answer: str) -> list[str] | None:
            return None if answer == default else [self._named(host) for host in split_hosts(answer)]

        self._ask_setting("jump", self._options.jump, question, default, hosts)

    def _named(self, host: str) -> str:
        """Return a jump host with its user name, by default that of the login node."""
        is_plain = "@" not in host and host not in self._configured_hosts
        return f"{self._login['user']}@{host}" if is_plain and "user" in self._login else host

    def _ask_setting(
        self, key: str, given: str | None, question: str, default: str, value: Callable[[str], Any]
    ) -> None:
        def accepts(answer: str) -> bool:
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

        if given is None and self._is_quick and default:
            given = default
        if given is None:
            ask_until_valid(question, default, check=accepts)
        elif not accepts(given):
            raise UsageError(
                f"--{key} {given} cannot be used.", hint="`jupyter slurm init --help` explains the option."
            )

    def _read(self) -> Profile:
        return parse_profile(self._name, as_toml({"host": "x", **self._login}).encode(), self._path)
