"""Instruction for a cluster that needs a VPN, if its first host cannot be reached."""

from __future__ import annotations

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.protocols import LinkLost

__all__ = ["vpn_hint"]


def vpn_hint(profile: Profile, first: HostConfig, error: SlurmError) -> str:
    """Return an instruction to connect to the VPN of a profile; empty if the VPN is not the likely cause.

    Parameters
    ----------
    profile : Profile
        Profile of the cluster.
    first : HostConfig
        First host of the route, which the local computer reaches directly.
    error : SlurmError
        Error that ended the login.
    """
    is_unreached = isinstance(error, LinkLost) and error.details.get("host") == first.name
    if profile.vpn is None or not is_unreached or "connection refused" in error.message:
        return ""
    place = f" ({profile.vpn['url']})" if "url" in profile.vpn else ""
    is_unknown = f"the name {first.hostname} is" in error.message
    attempt = f"look up the name {first.hostname}" if is_unknown else f"connect to {first.hostname}, port {first.port}"
    return f"Connect to {profile.vpn['name']}{place}, which this cluster needs, and try again. Tried to {attempt}."
