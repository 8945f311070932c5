"""The user's public keys, and their installation on the hosts of a route."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from jupyter_slurm.domain.scripts.script import quote_argv
from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.connections.transports import route_hosts
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.keys.identities import identities
from jupyter_slurm.transport.ssh.keys.ssh_agent import SshAgent
from jupyter_slurm.transport.ssh.prompts import printable
from jupyter_slurm.transport.ssh.via_paramiko.diagnosis import HopReport
from jupyter_slurm.transport.ssh.via_paramiko.key_probe import HostOffer, accepts_key, request_offer

__all__ = ["KeyEnrolment", "SshKeys", "enrol_key", "find_public_key", "first_offer", "hosts_without_key", "keys_for"]

# LINE BLOB MARK. A commented line does not count; an unterminated last line is first completed.
_ADD_KEY_SCRIPT: Final = r"""
umask 077
cd || exit
mkdir -p .ssh || exit
keys=.ssh/authorized_keys
if [ -f "$keys" ] && grep -v '^[[:space:]]*#' "$keys" | grep -qF -- "$2"; then echo "$3 there"; exit 0; fi
[ ! -s "$keys" ] || [ -z "$(tail -c 1 "$keys")" ] || echo >>"$keys" || exit
printf '%s\n' "$1" >>"$keys" && chmod 0600 "$keys" || exit
! command -v restorecon >/dev/null 2>&1 || restorecon -F .ssh "$keys" >/dev/null 2>&1
echo "$3 added"
"""


@dataclass(frozen=True)
class SshKeys:
    """Keys of the user for the hosts of a route.

    Attributes
    ----------
    way : tuple of HostConfig
    has_any : bool
        Whether there is any key for the login node, in a file or in the SSH agent.
    path : str or None
        Path of a key that would be created.
    """

    route: tuple[HostConfig, ...]
    has_any: bool
    path: str | None


async def keys_for(profile: Profile) -> SshKeys:
    """Find the user's keys for the route of a profile.

    Raises
    ------
    ConfigError
        The route cannot be determined.
    """
    way = await route_hosts(profile)
    host = way[-1]
    agent = SshAgent(host.identity_agent) if host.identity_agent else None
    found, _ = await asyncio.to_thread(identities, host, agent)
    paths = host.identity_files
    path = next((path for path in paths if path.endswith("ed25519")), paths[0] if paths else None)
    return SshKeys(tuple(way), bool(found) or find_public_key(host) is not None, path)


async def first_offer(keys: SshKeys) -> HostOffer | None:
    """Return the answer of the first host of the route before a login; None: unknown."""
    return await asyncio.to_thread(request_offer, keys.route[0])


def find_public_key(host: HostConfig) -> str | None:
    """Return the file of the public key for a host; None: there is no such file."""
    return next((f"{path}.pub" for path in host.identity_files if os.path.exists(f"{path}.pub")), None)


@dataclass(frozen=True)
class KeyEnrolment:
    """Outcome of a key's installation: ``is_new`` on the host, and ``is_taken`` by the host (None: unknown)."""

    is_new: bool
    is_accepted: bool | None


async def enrol_key(hops: Sequence[HopReport], number: int, public: str, transport: Transport) -> KeyEnrolment:
    """Install a public key on a host.

    Parameters
    ----------
    hops : sequence of HopReport
        Hosts of the route, to which the login succeeded by other means.
    number : int
        Index of the host.
    public : str
        File of the public key.
    transport : Transport
        Transport to the last host.

    Raises
    ------
    TransportError
        The file cannot be written on the host.
    """
    hop = hops[number]
    line = await asyncio.to_thread(_first_line, public)
    words = line.split()
    if len(words) < 2:
        raise TransportError(
            f"{public} is not a public key.", hint="Create it from the private key: `ssh-keygen -y -f KEY > KEY.pub`."
        )
    mark = secrets.token_hex(8)
    script = f"set -- {quote_argv([line, words[1], mark])}\n{_ADD_KEY_SCRIPT}"
    if hop.transport is None and hop is hops[-1]:
        done = await transport.run(["/bin/sh", "-s"], stdin=script.encode("utf-8", "surrogateescape"))
        code, said = done.exit_code, printable(done.stdout + done.stderr, 4000)
    else:
        code, said = await asyncio.to_thread(hop.run, script)
    if code == 0:
        for answer, is_new in ((f"{mark} added", True), (f"{mark} there", False)):
            if answer in said:
                before = hops[number - 1] if number else None
                return KeyEnrolment(is_new, await asyncio.to_thread(accepts_key, hop, before, line))
    reason = said.replace(mark, "").strip()[-500:] or f"exit code {code}"
    raise TransportError(
        f"~/.ssh/authorized_keys on {hop.host.name} could not be written: {reason}",
        hint=f"Check the permissions and the free space of your home directory on {hop.host.name}. "
        "Many sites have a web page where you can add keys.",
    )


def _first_line(path: str) -> str:
    with open(path, encoding="utf-8", errors="surrogateescape") as file:
        return file.readline().strip()


def hosts_without_key(hops: Sequence[HopReport]) -> list[tuple[int, str]]:
    """Return the indices of hosts that accept keys but none of the user's, each with a suitable public key."""
    found = [(number, find_public_key(hop.host)) for number, hop in enumerate(hops) if hop.refused_keys]
    return [(number, public) for number, public in found if public is not None]
