"""Hosts behind different gates with one inner address: each needs a name of its own in known_hosts."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from jupyter_slurm.errors import ConfigError, HostKeyChanged, SlurmError
from jupyter_slurm.services.connections.transports import route_hosts
from jupyter_slurm.sites.profile import Profile, list_profiles, load_profile
from jupyter_slurm.transport.ssh.config.configured_names import configured_names
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig, resolve_route

__all__ = ["add_alias_hint"]

_MAX_NAMES = 100  # ssh is asked about each


async def add_alias_hint(error: HostKeyChanged, profile: Profile, sites: Sequence[str]) -> None:
    """Name HostKeyAlias in the hint of an error, if another profile or entry has the address of the host.

    Parameters
    ----------
    error : HostKeyChanged
        Error of the login.
    profile : Profile
        Profile of the login.
    sites : sequence of str
        Folders of profiles.
    """
    with contextlib.suppress(SlurmError):
        host = next((one for one in await route_hosts(profile) if one.name == error.details.get("host")), None)
        if host is None or host.host_key_alias:
            return
        other = await _other(host, profile, sites)
        if other:
            error.hint = f"{other} has the same address. {_remedy(host, profile)} {error.hint}".rstrip()


async def _other(host: HostConfig, profile: Profile, sites: Sequence[str]) -> str:
    """Return another host of the configuration with this address, reached by another route; empty: none."""
    for name in list_profiles(sites):
        if name == profile.name:
            continue
        with contextlib.suppress(ConfigError):
            for one in await route_hosts(load_profile(name, sites)):
                if _is_at(one, host):
                    return f"{one.name} of the profile {name}"
    for name in configured_names(profile.ssh_config)[:_MAX_NAMES]:
        with contextlib.suppress(ConfigError):
            one = (await resolve_route(name, config_file=profile.ssh_config))[-1]
            if one.name != host.name and _is_at(one, host):
                return f"{name} of your ssh configuration"
    return ""


def _is_at(one: HostConfig, host: HostConfig) -> bool:
    same = (one.hostname.lower(), one.port) == (host.hostname.lower(), host.port)
    return same and not one.host_key_alias and (one.through, one.proxy_command) != (host.through, host.proxy_command)


def _remedy(host: HostConfig, profile: Profile) -> str:
    file = profile.ssh_config or "~/.ssh/config"
    if host.name.lower() != host.hostname.lower():
        return f"If they are different hosts, write `HostKeyAlias {host.name}` below `Host {host.name}` in {file}."
    alias = f"{profile.name}-{'login' if host.name == profile.host else 'gate'}"
    return (
        f"If they are different hosts, write an entry in {file}: `Host {alias}`, and below it `HostName "
        f"{host.hostname}` and `HostKeyAlias {alias}`. Then use {alias} in the profile {profile.name}."
    )
