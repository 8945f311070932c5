"""From a site profile to a transport: the way, who is asked, and what the far shell needs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from jupyter_slurm.domain.queue import SCRUBBED_FORMATS
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.gate import personal_gate
from jupyter_slurm.transport.ssh.link import Link
from jupyter_slurm.transport.ssh.prompts import Prompter
from jupyter_slurm.transport.ssh.ssh_config import way_to
from jupyter_slurm.transport.ssh.transport import SshTransport

__all__ = ["Carried", "carry"]


@dataclass(frozen=True)
class Carried:
    """A transport to a login node, and how to make its connection now."""

    transport: SshTransport
    hosts: Sequence[str]
    connect: Callable[[], Awaitable[None]]


async def carry(profile: Profile, prompter: Prompter, told: Callable[[str, bool], None]) -> Carried:
    """Return the transport of a profile; nothing is connected yet.

    Parameters
    ----------
    profile : Profile
        How the cluster is reached.
    prompter : Prompter
        Who can ask the person.
    told : callable
        Is given one line, and whether the link is up, when it is lost and when it is back.

    Raises
    ------
    ConfigError
        The way cannot be worked out.
    """
    way = await way_to(
        profile.host,
        user=profile.user,
        port=profile.port,
        jump=profile.jump,
        config_file=profile.ssh_config,
    )
    link = Link(way, personal_gate(prompter), told=lambda line: told(line, link.is_alive))
    # What a person sets for their own eyes must not change what we read.
    prelude = f"unset {' '.join(sorted(SCRUBBED_FORMATS))}\n{profile.prelude}"
    transport = SshTransport(link, prelude=prelude, login_shell=profile.login_shell)
    return Carried(transport, [host.name for host in way], link.connect)
