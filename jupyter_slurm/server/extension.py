"""The extension as the Jupyter server loads it."""

from __future__ import annotations

from jupyter_server.extension.application import ExtensionApp

from jupyter_slurm.config import Settings
from jupyter_slurm.server.access import AgentAccess
from jupyter_slurm.server.handlers import AgentHandler

__all__ = ["SlurmExtension"]


class SlurmExtension(ExtensionApp):
    """Serves ``<base_url>jupyter-slurm/api/v1/…``, and houses the agent where ``Settings.agent_host`` says so."""

    name = "jupyter_slurm"
    classes = [Settings]  # noqa: RUF012  (traitlets reads a plain class attribute)

    def initialize_handlers(self) -> None:
        """Add our one handler to the server."""
        assert self.serverapp is not None
        self._access = AgentAccess(self.config)
        self.handlers.append((r"jupyter-slurm/api/.*", AgentHandler, {"access": self._access}))
        # The loop does not run yet. Kernels look for the agent before any browser asks for it.
        self.serverapp.io_loop.add_callback(self._access.house)

    async def stop_extension(self) -> None:
        """Let go of the agent; one that lives here ends with the server."""
        await self._access.close()
