"""The server's way to the agent: one connection, made when it is first needed."""

from __future__ import annotations

import asyncio
import logging
import os
import shutil
from typing import TYPE_CHECKING

from traitlets.config import Config

from jupyter_slurm.errors import SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.agent.client import AgentClient
    from jupyter_slurm.agent.schema import Document

__all__ = ["AgentAccess"]

_log = logging.getLogger(__name__)


class AgentAccess:
    """Connects to the agent for all requests of a Jupyter server.

    Parameters
    ----------
    config : traitlets Config
        What the Jupyter server has read; it wins over jupyter_slurm's own files.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._connecting = asyncio.Lock()
        self._client: AgentClient | None = None
        self._document: Document | None = None
        self._is_closed = False

    def document(self) -> Document:
        """Return the description of the API; what is not in it is not passed on."""
        if self._document is None:
            from jupyter_slurm.agent.schema import load_document

            self._document = load_document()
        return self._document

    async def client(self) -> AgentClient:
        """Return the connection to the agent, which is found or started.

        Raises
        ------
        AgentError
            There is none, and none could be started.
        ConfigError
            A configuration file cannot be read.
        """
        from jupyter_slurm.agent.client import AgentClient
        from jupyter_slurm.config import load_settings

        async with self._connecting:
            if self._client is None:
                self._client = await AgentClient.connect_in_server(load_settings(self._config))
            return self._client

    async def register(self) -> None:
        """Tell the agent of the cluster that this server's environment reaches, as every kernel does of its own.

        Without it a person who has not yet run a cell would see no jobs. The agent takes the same cluster only once;
        where there is no Slurm on the PATH there is nothing to tell.
        """
        if shutil.which("squeue") is None:
            return
        address = {"slurm_conf": os.environ.get("SLURM_CONF") or None, "path": os.environ.get("PATH") or None}
        client = await self.client()
        try:
            await asyncio.to_thread(client.post, "/v1/clusters", json=address)
        except SlurmError as error:  # the list of clusters is worth having all the same
            _log.warning("jupyter_slurm: the cluster of this server is not known to the agent: %s", error)

    async def house(self) -> None:
        """Take the agent in, where this server is the place for it."""
        from jupyter_slurm.agent.hosting import enter_server
        from jupyter_slurm.agent.launch import choose_hosting
        from jupyter_slurm.config import load_settings

        try:
            enter_server()
            if not self._is_closed and choose_hosting(load_settings(self._config), os.environ) == "server":
                await self.client()
        except (
            SlurmError
        ) as error:  # the Jupyter server must come up whatever happens to us; requests will say it again
            _log.warning("jupyter_slurm: no agent in this server: %s", error)

    async def close(self) -> None:
        """Close the connection, and end the agent if it lives here."""
        from jupyter_slurm.agent.hosting import leave_server

        self._is_closed = True
        client, self._client = self._client, None
        if client is not None:
            client.close()
        await leave_server()
