"""Built-in and received site profiles, and their conversion to a profile of the user."""

from __future__ import annotations

import asyncio
import getpass
import os
import re

from jupyter_slurm.cli.arguments.ssh_hosts import host_names
from jupyter_slurm.cli.setup.login_options import LoginOptions, check_setting, with_login
from jupyter_slurm.cli.terminal import ask_until_valid
from jupyter_slurm.errors import ConfigError, SlurmError
from jupyter_slurm.sites.profile import Profile, parse_profile
from jupyter_slurm.sites.shipped import nearest_shipped, resolve_shipped, shipped_names, shipped_profiles
from jupyter_slurm.sites.toml_writer import toml_value

__all__ = ["describe_shipped", "is_name", "personal", "print_notes", "site_template", "write_profile"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # also of a file
_MAX_PROFILE_BYTES = 1_000_000


def is_name(answer: str) -> bool:
    """Return whether a cluster can have this name; print the reason if not."""
    try:
        if not _NAME.fullmatch(answer):
            raise ConfigError(f"{answer!r} is not a valid name.", hint="Use letters, digits, and . _ - in it.")
        parse_profile(answer, b'[login]\nhost = "x"\n', answer)
    except ConfigError as error:
        print(f"{error.message} {error.hint}")
        return False
    return True


def site_template(named: str) -> str:
    """Return the text of a profile: that of a file, or one that extends a built-in profile.

    Raises
    ------
    ConfigError
        Neither exists.
    """
    shipped = resolve_shipped(named)
    if shipped and not os.path.exists(named):
        return f"extends = {toml_value(shipped)}\n\n[login]\n"
    try:
        with open(named, encoding="utf-8") as file:
            return file.read(_MAX_PROFILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        near = None if named.endswith(".toml") or os.sep in named else nearest_shipped(named)
        known = f"Name a file, or a built-in profile: {', '.join(shipped_names())}."
        hint = f"Did you mean the built-in profile {near}? {known}" if near else known
        raise ConfigError(f"The profile {named} cannot be read: {reason}.", hint=hint) from None


def describe_shipped() -> str:
    """Return two lines for each built-in profile: its name, cluster and site, and a description."""
    lines = []
    for one in shipped_profiles():
        other = f", also called {', '.join(one.aliases)}" if one.aliases else ""
        lines += [f"  {one.name:<12} {one.title}{other}", f"{'':15}{one.about}"]
    return "\n".join(lines)


def personal(
    text: str, name: str, path: str, source: str, options: LoginOptions, *, is_quick: bool = False
) -> tuple[Profile, str]:
    """Return a profile with the options about the login in it, and with a user name if it has none.

    Parameters
    ----------
    text, source : str
        Text of the profile, and its origin.
    name, path : str
        Name of the cluster, and path of the new file.
    options : LoginOptions
        Values that replace those of the profile.
    is_quick : bool
        Whether to use the local user name without a question.

    Raises
    ------
    ConfigError, UsageError
        The profile, or an option, is not valid.
    """
    profile = parse_profile(name, text.encode(), source)
    if profile.prelude:
        print(f"This profile runs on {profile.host} before every command:\n{_indented(profile.prelude)}")
    config = options.ssh_config or profile.ssh_config
    known = host_names(config or os.path.expanduser("~/.ssh/config"))
    host, jump = options.host or profile.host, options.jump_hosts
    if jump is None:
        jump = list(profile.jump) if profile.jump is not None else None
    unnamed = [one for one in (*(jump or ()), host) if "@" not in one and one not in known]
    user = options.user
    if user is None and profile.user is None and unnamed:
        user = getpass.getuser() if is_quick else _ask_user(name, host)
    given = {"host": options.host, "user": user, "ssh_config": options.ssh_config}
    changes: dict[str, object] = {key: value for key, value in given.items() if value is not None}
    who = user or (profile.user if options.jump is not None else None)
    if jump is not None:
        named = [
            f"{who}@{one}" if who and (one in unnamed or (options.user and _is_without_user(one, config))) else one
            for one in jump
        ]
        if options.jump is not None or named != list(profile.jump or ()):
            changes["jump"] = named
    return with_login(name, path, text, changes)


def _is_without_user(host: str, config: str | None) -> bool:
    """Return whether OpenSSH would use the local user name for a host: its configuration has no other."""
    from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route

    if "@" in host:
        return False
    try:
        return asyncio.run(resolve_route(host, jump=(), config_file=config))[-1].user == getpass.getuser()
    except SlurmError:
        return False


def _ask_user(name: str, host: str) -> str:
    def accepts(answer: str) -> bool:
        try:
            check_setting(name, "user", answer)
        except ConfigError as error:
            print(error.message)
            return False
        return True

    return ask_until_valid(f"Your user name on {host}", getpass.getuser(), check=accepts)


def _indented(text: str) -> str:
    from jupyter_slurm.client.render.terminal import printable

    return "".join(f"    {line}\n" for line in printable(text).strip().splitlines()).rstrip("\n")


def print_notes(profile: Profile) -> None:
    """Print the notes of a profile for users of the cluster."""
    from jupyter_slurm.client.render.terminal import printable

    for note in profile.notes:
        print(printable(f"  - {note}"))


def write_profile(path: str, text: str) -> None:
    """Write a profile, private and atomically."""
    from jupyter_slurm.transport.local.transport import LocalTransport

    async def write() -> None:
        here = LocalTransport(workers=1)
        try:
            await here.make_dir(os.path.dirname(path))
            await here.write(path, text.encode())
        finally:
            here.close()

    asyncio.run(write())
