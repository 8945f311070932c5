"""Built-in and received site profiles, and their conversion to a profile of the user."""

from __future__ import annotations

import asyncio
import getpass
import json
import os
import re
from collections.abc import Mapping, Sequence

from jupyter_slurm.cli.setup.ssh_hosts import host_names
from jupyter_slurm.cli.terminal import ask_until_valid
from jupyter_slurm.errors import ConfigError, UsageError
from jupyter_slurm.sites.profile import Profile, parse_profile
from jupyter_slurm.sites.shipped import shipped_names

__all__ = ["as_toml", "is_name", "personal", "print_notes", "site_template", "without_place", "write_profile"]

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")  # also of a file
_MAX_PROFILE_BYTES = 1_000_000


def is_name(answer: str) -> bool:
    """Return whether a cluster can have this name; print the reason if not."""
    try:
        if not _NAME.fullmatch(answer):
            raise ConfigError("A name has letters, digits and . _ - only.")
        parse_profile(answer, b'[login]\nhost = "x"\n', answer)
    except ConfigError as error:
        print(error.message)
        return False
    return True


def as_toml(login: Mapping[str, object]) -> str:
    """Return the text of a profile with only the connection to the login node."""
    # A JSON string or list of ASCII is valid TOML.
    return "[login]\n" + "".join(f"{key} = {json.dumps(value)}\n" for key, value in login.items())


def without_place(message: str, path: str) -> str:
    """Return an error about an answer, without the path of the file."""
    return re.sub(rf"^{re.escape(path)}(?::\d+)?: ", "", message)


def site_template(named: str) -> str:
    """Return the text of a profile: that of a file, or one that extends a built-in profile.

    Raises
    ------
    ConfigError
        Neither exists.
    """
    names = shipped_names()
    if named in names and not os.path.exists(named):
        return f"extends = {json.dumps(named)}\n\n[login]\n"
    try:
        with open(named, encoding="utf-8") as file:
            return file.read(_MAX_PROFILE_BYTES)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no UTF-8 text"
        raise ConfigError(
            f"{named} cannot be read: {reason}.", hint=f"Name a file, or one of {', '.join(names)}."
        ) from None


def personal(
    text: str, name: str, path: str, source: str, user: str | None, *, is_quick: bool = False
) -> tuple[Profile, str]:
    """Return a profile with the user's name in it, if it has none.

    Parameters
    ----------
    text, source : str
        Text of the profile, and its origin.
    name, path : str
        Name of the cluster, and path of the new file.
    user : str or None
        User name on the cluster, if given.
    is_quick : bool
        Whether to use the local user name without a question.

    Raises
    ------
    ConfigError, UsageError
        The profile is not valid.
    """
    profile = parse_profile(name, text.encode(), source)
    if profile.prelude:
        print(f"Before every command, this profile runs on {profile.host}:\n{_indented(profile.prelude)}")
    known = host_names(profile.ssh_config or os.path.expanduser("~/.ssh/config"))
    hosts = [*(profile.jump or ()), profile.host]
    unnamed = [host for host in hosts if "@" not in host and host not in known]
    if profile.user is not None or (not unnamed and user is None):
        return profile, text
    here = getpass.getuser()

    def takes(answer: str) -> bool:
        try:
            parse_profile(name, as_toml({"host": "x", "user": answer}).encode(), path)
        except ConfigError as error:
            print(without_place(error.message, path))
            return False
        return True

    user = user or (here if is_quick else ask_until_valid(f"Your user name on {profile.host}", here, check=takes))
    if not takes(user):
        raise UsageError(f"--user {user} cannot be used.", hint="As you would write it for ssh.")
    named = [f"{user}@{host}" if host in unnamed else host for host in profile.jump or ()]
    return _with_name(name, path, text, user, named)


def _with_name(name: str, path: str, text: str, user: str, jump: Sequence[str]) -> tuple[Profile, str]:
    """Write a user name into the text of a profile, without other changes."""
    before = parse_profile(name, text.encode(), path)
    hosts = f"jump = {json.dumps(list(jump))}"
    said, count = re.subn(r"(?ms)^\s*jump\s*=\s*\[.*?\]", lambda found: hosts, text, count=1) if jump else (text, 1)
    lines = f"user = {json.dumps(user)}" + ("" if count else f"\n{hosts}")  # hosts of the base profile
    said = re.sub(r"(?m)^(\s*\[login\][^\n]*)$", lambda found: f"{found[1]}\n{lines}", said, count=1)
    try:
        profile = parse_profile(name, said.encode(), path)
    except ConfigError:
        profile = before
    if (profile.user, profile.jump or ()) != (user, tuple(jump)):
        raise ConfigError(
            f"Your user name cannot be written into {path}.",
            hint='Copy the file, and write `user = "…"` under [login].',
        )
    return profile, said


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
