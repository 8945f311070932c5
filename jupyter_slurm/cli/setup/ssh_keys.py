"""SSH keys in ``jupyter slurm init``: creation of a key, and its copy to the hosts that lack it."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.cli.terminal import yes
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.sites.profile import Profile

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.connections.ssh_keys import SshKeys
    from jupyter_slurm.transport.ssh.via_paramiko.key_probe import HostOffer

__all__ = ["key_bearer"]


def key_bearer(
    profile: Profile, name: str | None, *, passphrase: bool = True
) -> Callable[[AgentClient, Sequence[api.ExaminationKeyless]], None]:
    """Create a key if there is none and the user agrees; return a function that copies it to the hosts without it.

    Parameters
    ----------
    profile : Profile
        Profile with the hosts.
    name : {"yes", "no"}, optional
        Earlier answer of the user; None: ask.
    passphrase : bool
        Whether a new key gets a passphrase.
    """
    from jupyter_slurm.client.render.terminal import printable
    from jupyter_slurm.services.connections.ssh_keys import first_offer, keys_for

    if name == "no":
        return _skip
    try:
        keys = asyncio.run(keys_for(profile))
    except SlurmError:
        return _skip  # the check of the connection reports the error
    if keys.has_any:
        return lambda client, keyless: _enrol_keys(client, profile.name, keyless, name)
    names = [host.name for host in keys.route]
    offer, first = asyncio.run(first_offer(keys)), printable(names[0])
    if reason := _doubt(keys, offer):
        print(f"{first} {reason}. No SSH key was created.")
        return _skip
    if offer is not None and "publickey" not in offer.methods:
        offered = ", ".join(map(printable, offer.methods))
        print(f"{first} takes no SSH keys. It offers: {offered or 'a login without a proof'}.")
        names.pop(0)
        if not names:
            return _skip
    question = f"You have no SSH key. Create one ({keys.path}), and copy the public key to {' and '.join(names)}?"
    if keys.path is None or os.path.exists(keys.path) or not (name == "yes" or yes(question, default=True)):
        return _skip
    if not _create_key(keys.path, passphrase=passphrase and sys.stdin.isatty()):
        return _skip
    return lambda client, keyless: _enrol_keys(client, profile.name, keyless, "yes")


def _doubt(keys: SshKeys, offer: HostOffer | None) -> str:
    """Return why a key would be of no use: the first host is not reached, or its key is not accepted."""
    if offer is None:
        return "" if keys.route[0].proxy_command else "does not answer"
    if offer.host_key == "known" or (offer.host_key == "unknown" and sys.stdin.isatty()):
        return ""
    return f"has a host key that is {'not known yet' if offer.host_key == 'unknown' else offer.host_key}"


def _skip(client: AgentClient, keyless: Sequence[api.ExaminationKeyless]) -> None:
    """Copy no key."""


def _create_key(path: str, *, passphrase: bool) -> bool:
    """Create a key; only ssh-keygen sees the passphrase."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    print(f"Creating an SSH key, {path}.", end=" ")
    # ssh-keygen asks for a passphrase without saying what it is for.
    print("Choose a passphrase for the key; do not use your password of the cluster." if passphrase else "", flush=True)
    try:
        done = subprocess.run(
            ["ssh-keygen", "-q", "-t", "ed25519", "-f", path, *([] if passphrase else ["-N", ""])], check=False
        )
    except FileNotFoundError:
        print("ssh-keygen was not found. Install the OpenSSH client to create a key.")
        return False
    if done.returncode == 0:
        print(f"Created the key {path}, and its public key {path}.pub.")
        if not passphrase:
            print(
                f"The key has no passphrase: anyone who gets the file can use it. `ssh-keygen -p -f {path}` adds one."
            )
    return done.returncode == 0


def _enrol_keys(client: AgentClient, name: str, keyless: Sequence[api.ExaminationKeyless], wish: str | None) -> None:
    """Copy the key to the hosts without it, one by one."""
    from jupyter_slurm.cli.terminal import yes
    from jupyter_slurm.client.render.terminal import printable

    added = False
    for lacking in keyless:
        host, public = lacking["host"], lacking["public"]
        try:
            if wish != "yes" and not yes(f"Copy your public key {public} to {host}?", default=True):
                continue
            told = client.post(f"/v1/clusters/{name}/keys", json={"host": host})
        except SlurmError as error:
            print(printable(f"{error.message}\n{error.hint}\nThe key was not copied to {host}."))
            continue
        if told["is_taken"] is False:
            print(
                printable(f"{host} has the key and refuses it. Allow only yourself to write to your home and ~/.ssh.")
            )
        elif told["is_new"]:
            print(printable(f"Your public key was added on {host}."))
        else:  # the same home as that of an earlier host
            print(printable(f"Your public key is on {host}{'' if added else ', and the next login uses it'}."))
        added = added or told["is_new"]
