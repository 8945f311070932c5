"""A person's public key put where a login node looks for it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.carrier import over, way_of
from jupyter_slurm.services.slurm import printable, text_of
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.gate import personal_gate
from jupyter_slurm.transport.ssh.identities import identities
from jupyter_slurm.transport.ssh.link import Link
from jupyter_slurm.transport.ssh.prompts import Prompter
from jupyter_slurm.transport.ssh.ssh_agent import SshAgent

__all__ = ["keys_for", "put_key"]

# LINE BLOB. A line that is commented out does not count; a last line without an end gets one first.
_PUT: Final = r"""
umask 077
cd || exit
mkdir -p .ssh || exit
keys=.ssh/authorized_keys
if [ -f "$keys" ] && grep -v '^[[:space:]]*#' "$keys" | grep -qF -- "$2"; then echo there; exit 0; fi
[ ! -s "$keys" ] || [ -z "$(tail -c 1 "$keys")" ] || echo >>"$keys" || exit
printf '%s\n' "$1" >>"$keys" && chmod 0600 "$keys" || exit
! command -v restorecon >/dev/null 2>&1 || restorecon -F .ssh "$keys" >/dev/null 2>&1
echo added
"""


async def keys_for(profile: Profile) -> tuple[tuple[str, ...], bool]:
    """Return where keys for the login node are looked for, and whether there is any, in a file or in the agent.

    Raises
    ------
    ConfigError
        The way cannot be worked out.
    """
    host = (await way_of(profile))[-1]
    agent = SshAgent(host.identity_agent) if host.identity_agent else None
    found, _ = await asyncio.to_thread(identities, host, agent)
    return host.identity_files, bool(found)


async def put_key(profile: Profile, prompter: Prompter, public_key: str) -> bool:
    """Log in, and let a key in from now on; False: the login node knew it.

    Parameters
    ----------
    profile : Profile
        How the login node is reached.
    prompter : Prompter
        Who is asked for the password.
    public_key : str
        One line, as in the ``.pub`` file.

    Raises
    ------
    SlurmError
        The log-in failed, or the file there cannot be written.
    """
    way = await way_of(profile)
    link = Link(way, personal_gate(prompter))
    transport = over(link, replace(profile, prelude="", login_shell=False))
    try:
        await link.connect()
        line = public_key.strip()
        done = await transport.run(["/bin/sh", "-c", _PUT, "sh", line, line.split()[1]])
    finally:
        transport.close()
    said = text_of(done.stdout).strip()
    if done.exit_code or said not in ("added", "there"):
        raise TransportError(
            f"the key could not be written to ~/.ssh/authorized_keys on {profile.host}: "
            f"{printable(text_of(done.stderr)).strip() or 'no reason given'}",
            hint=f"Is the home there in order, and not full? `ssh-copy-id {profile.host}` does the same.",
        )
    return said == "added"
