"""Check of the host for transfers: its login, the directories that it sees, and rsync."""

from __future__ import annotations

from typing import Final

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.errors import CommandMissing, SlurmError
from jupyter_slurm.services.clusters.remote_cluster import Site
from jupyter_slurm.transport.rsync import check_rsync

__all__ = ["check_transfer_host"]

_ABOUT: Final = "transfer host"


async def check_transfer_host(site: Site) -> Finding:
    """Check the login, the home directory and rsync of the host that the profile of a connected cluster names."""
    try:
        name, transport = await site.transfer_transport()
        home = site.cluster.location.home
        # A shared file system gives a directory one inode number on all hosts.
        argv = ["stat", "-L", "-c", "%i", "--", home]
        there, here = await transport.run(argv), await site.cluster.client.transport.run(argv)
        if there.exit_code or there.stdout != here.stdout:
            return Finding(
                "warning",
                _ABOUT,
                f"{name} does not have the home directory {home} of the login node, or has another one of that name",
                f"Transfers use the directories of {name}. Write paths of directories that both hosts have, or remove "
                "`transfer_host` from [storage] in the profile.",
            )
        try:
            await check_rsync(transport, name)
        except CommandMissing:
            return Finding("ok", _ABOUT, f"{name} has your home directory; files are sent without rsync")
    except SlurmError as error:
        return Finding("failed", _ABOUT, error.message, error.hint)
    return Finding("ok", _ABOUT, f"{name} has your home directory, and rsync")
