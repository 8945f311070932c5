"""Keys at ``jupyter slurm init``: one is made where there is none, and hosts that lack it are given it."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.cli.asking import yes
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.sites.profile import Profile

if TYPE_CHECKING:
    from jupyter_slurm.cli.doctor import Terminal
    from jupyter_slurm.transport.ssh.survey import Hop

__all__ = ["key_bearer"]


def key_bearer(
    profile: Profile, wish: str | None, *, passphrase: bool = True
) -> Callable[[Terminal, Sequence[Hop]], Awaitable[bool]] | None:
    """Make a key if there is none and the person wants one; return what gives it to the hosts that lack it.

    Parameters
    ----------
    profile : Profile
        Names the hosts.
    wish : {"yes", "no"}, optional
        What the person has said before; None: they are asked.
    passphrase : bool
        False: a key that is made gets none.
    """
    from jupyter_slurm.services.enrolment import keys_for

    if wish == "no":
        return None
    if profile.carrier == "openssh":  # chosen where log-ins need no key, or one that only OpenSSH can use
        print(f"`ssh-copy-id {profile.host}` gives it a key of yours, where it takes keys.")
        return None
    try:
        keys = asyncio.run(keys_for(profile))
    except SlurmError:
        return None  # what is wrong with the way is told when it is walked
    if keys.has_any:
        return lambda terminal, hops: _give(terminal, hops, wish)
    names = " and ".join(host.name for host in keys.way)
    question = f"You have no key. Make one ({keys.path}), and have {names} let it in from now on?"
    if keys.path is None or os.path.exists(keys.path) or not (wish == "yes" or yes(question, default=True)):
        return None
    if not _make(keys.path, passphrase=passphrase):
        return None
    return lambda terminal, hops: _give(terminal, hops, "yes")


def _make(path: str, *, passphrase: bool) -> bool:
    """Make a key; the passphrase is between ssh-keygen and the person."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    try:
        done = subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-f", path, *([] if passphrase else ["-N", ""])], check=False
        )
    except FileNotFoundError:
        print("There is no ssh-keygen here: install OpenSSH's client to make a key.")
        return False
    if done.returncode == 0:
        print(f"Made: {path}, and its public half {path}.pub")
    return done.returncode == 0


async def _give(terminal: Terminal, hops: Sequence[Hop], wish: str | None) -> bool:
    """Give the hosts that lack it the key, host by host; return whether any of them has it only now."""
    from jupyter_slurm.services.enrolment import lacking, let_in

    changed = False
    for hop, public in lacking(hops):
        name = hop.host.name
        if wish != "yes" and not await terminal.agree(f"Have {name} let your key {public} in from now on?"):
            continue
        try:
            is_new = await let_in(hop, public)
        except SlurmError as error:
            terminal.say(f"{error.message}\n{error.hint}\n{name} goes without it.")
            continue
        if is_new:
            terminal.say(f"{name} lets it in from now on.")
        elif changed:  # the same home as that of a host before it
            terminal.say(f"{name} knows it.")
        else:
            terminal.say(f"{name} knows it, and does not take it: may others write to your home or ~/.ssh there?")
        changed = changed or is_new
    if changed:
        terminal.say("Once more, by the key:")
    return changed
