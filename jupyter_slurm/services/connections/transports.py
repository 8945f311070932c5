"""Transports from site profiles: the route, the source of prompts, and the setup of the remote shell."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from jupyter_slurm.domain.environment_variables import SCRUBBED_FORMATS
from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.connections.vpn import vpn_hint
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, resolve_route
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import Prompt, Prompter
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_openssh.hops import own_socket_path
from jupyter_slurm.transport.ssh.via_openssh.login_target import LoginTarget
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import OpenSshLink, end_own_masters
from jupyter_slurm.transport.ssh.via_paramiko.diagnosis import LoginDiagnosis, LoginLogDiagnosis
from jupyter_slurm.transport.ssh.via_paramiko.login_verification import login_verification
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink

__all__ = ["SiteTransports", "carry", "control_socket", "log_out", "over", "route_hosts"]


@dataclass(frozen=True)
class SiteTransports:
    """Transport to a login node, with the means to connect at once."""

    transport: SshTransport
    hosts: Sequence[str]
    link: PersistentLink
    walk: LoginDiagnosis | LoginLogDiagnosis
    vpn_hint: Callable[[SlurmError], str]

    async def connect(self) -> None:
        """Connect now, even after a refusal."""
        try:
            await self.link.connect()
        except SlurmError as error:
            error.hint = self.vpn_hint(error) or error.hint
            raise

    def failure(self, error: SlurmError) -> Finding:
        """Return the finding about an error that ended the login."""
        finding = self.walk.failure(error)
        return replace(finding, todo=self.vpn_hint(error) or finding.todo)


async def carry(
    profile: Profile,
    prompter: Prompter,
    on_result: Callable[[str, bool], None],
    folder: str,
    on_finding: Callable[[Finding], None] = lambda finding: None,
) -> SiteTransports:
    """Return the transport of a profile, not yet connected.

    Parameters
    ----------
    profile : Profile
        Describes the connection.
    prompter : Prompter
        Prompts the user.
    on_result : callable
        Receives a line of text and the state of the connection, at each loss and recovery.
    folder : str
        Private folder on a local disk, for logins that outlive this process.
    on_finding : callable, optional
        Receives the findings of the first login, host by host, in another thread.

    Raises
    ------
    ConfigError
        The route cannot be determined.
    """
    way = await route_hosts(profile)
    walk: LoginDiagnosis | LoginLogDiagnosis
    link: PersistentLink

    def line(text: str) -> None:
        on_result(text, link.is_alive)

    if profile.carrier == "openssh":
        walk = LoginLogDiagnosis(way, on_finding)
        link = OpenSshLink(
            _target(profile), way, prompter, folder, max_age=profile.max_age, on_line=walk.read_log, notify=line
        )
    else:
        walk = LoginDiagnosis(way, lambda opened: login_verification(prompter, opened), on_finding)
        link = ParamikoLink(way, walk.gate, notify=line)
    return SiteTransports(
        over(link, profile, prompter, way[-1].label),
        [host.name for host in way],
        link,
        walk,
        partial(vpn_hint, profile, way[0]),
    )


def control_socket(profile: Profile, route: Sequence[HostConfig], folder: str) -> str | None:
    """Return the control socket of a login that OpenSSH keeps for jupyter_slurm; None if there is none."""
    theirs = (route[-1].control_path or "none").lower() != "none"  # the user's own socket; ssh finds it by itself
    return None if profile.carrier != "openssh" or theirs else own_socket_path(_target(profile), route, folder)


async def log_out(profile: Profile, folder: str) -> None:
    """End a login that outlived an earlier process.

    Raises
    ------
    ConfigError
        The route cannot be determined.
    """
    if profile.carrier == "openssh":
        way = await route_hosts(profile)
        await asyncio.to_thread(end_own_masters, _target(profile), way, folder)


def _target(profile: Profile) -> LoginTarget:
    name, options = profile.host, list[str]()
    options += ["-l", profile.user] if profile.user is not None else []
    options += ["-p", str(profile.port)] if profile.port is not None else []
    options += ["-J", ",".join(profile.jump) or "none"] if profile.jump is not None else []
    return LoginTarget(name, tuple(options), profile.ssh_config)


async def route_hosts(profile: Profile) -> list[HostConfig]:
    """Return the hosts on the route to a cluster, the login node last.

    Raises
    ------
    ConfigError
        The route cannot be determined.
    """
    return await resolve_route(
        profile.host,
        user=profile.user,
        port=profile.port,
        jump=profile.jump,
        config_file=profile.ssh_config,
    )


def over(link: PersistentLink, profile: Profile, prompter: Prompter, label: str) -> SshTransport:
    """Return the transport over a connection; ``label``: display name of the remote host."""
    said = (
        "The start-up files of your login shell on the cluster (.bashrc, .zshenv, .cshrc, config.fish) are taking long"
    )
    notice = Prompt(label, "keyboard-interactive", "", f"{said}: waiting for up to {profile.patience:g} s.")

    async def slow() -> None:
        await prompter.ask(notice)

    # A user's format settings must not change the output that jupyter_slurm parses.
    prelude = f"unset {' '.join(sorted(SCRUBBED_FORMATS))}\n{profile.prelude}"
    return SshTransport(link, prelude=prelude, login_shell=profile.login_shell, timeout=profile.patience, slow=slow)
