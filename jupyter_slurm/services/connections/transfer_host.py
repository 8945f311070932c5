"""Login to the host that a profile names for transfers of files."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from jupyter_slurm.services.connections.transports import SiteTransports, carry
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.prompts import Prompter

__all__ = ["TransferHost", "profile_of_transfer_host"]

log = logging.getLogger(__name__)


def profile_of_transfer_host(profile: Profile) -> Profile:
    """Return the connection to the host that the profile of a cluster names.

    User and jump hosts of the cluster lead there, too. Its commands for the login node (``prelude``) do not run there.
    """
    return replace(profile, host=profile.storage["transfer_host"], port=None, prelude="")


class TransferHost:
    """A host that sees the files of a cluster, with a login of its own.

    The first transfer opens the login. It ends with that of the cluster.

    Parameters
    ----------
    profile : Profile
        Profile of the cluster, which names the host.
    prompter : Prompter
        Prompts the user.
    folder : str
        Private folder on a local disk, for logins of OpenSSH.
    """

    def __init__(self, profile: Profile, prompter: Prompter, folder: str) -> None:
        self._profile = profile_of_transfer_host(profile)
        self.name = self._profile.host
        self._prompter, self._folder = prompter, folder
        self._carried: SiteTransports | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> Transport:
        """Log in, unless connected, and return the transport.

        Raises
        ------
        SlurmError
            The login failed; the next call tries again.
        """
        async with self._lock:
            if self._carried is None:
                self._carried = await carry(self._profile, self._prompter, self._on_link_state, self._folder)
            carried = self._carried
            await carried.connect()
            return carried.transport

    def close(self) -> None:
        """End the login."""
        carried, self._carried = self._carried, None
        if carried is not None:
            carried.transport.close()

    @staticmethod
    def _on_link_state(message: str, is_up: bool) -> None:
        log.info("%s", message)
