"""The extension as the Jupyter server loads it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jupyter_core.paths import jupyter_path
from jupyter_server.extension.application import ExtensionApp

from jupyter_slurm.config import Settings
from jupyter_slurm.server.access import AgentAccess
from jupyter_slurm.server.handlers import AgentHandler

__all__ = ["SlurmExtension", "has_panel"]


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
        if not has_panel(jupyter_path("labextensions")):
            # pip hides what the build said about it.
            self.log.info("jupyter_slurm was installed without its JupyterLab panel; building that needs Node.js 20.")

    async def stop_extension(self) -> None:
        """Let go of the agent; one that lives here ends with the server."""
        await self._access.close()


def has_panel(folders: Iterable[str]) -> bool:
    """Tell whether one of the folders that JupyterLab searches has our panel."""
    return any(Path(folder, "jupyter-slurm", "package.json").exists() for folder in folders)
