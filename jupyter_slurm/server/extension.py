"""Extension class for the Jupyter server."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jupyter_core.paths import jupyter_path
from jupyter_server.extension.application import ExtensionApp

from jupyter_slurm.client.shutdown import leave
from jupyter_slurm.config import JupyterSlurm, load_settings
from jupyter_slurm.errors import ConfigError
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.agent_handler import AgentHandler
from jupyter_slurm.server.allowed_paths import fits_sessions
from jupyter_slurm.server.events import SCHEMAS, Events
from jupyter_slurm.server.kernel_handlers import HANDLERS as KERNELS
from jupyter_slurm.server.notebook_moves.handlers import HANDLERS as MOVES
from jupyter_slurm.server.notebook_moves.handlers import NotebookMoves
from jupyter_slurm.server.session_proxy.handlers import SESSIONS, SessionHandler
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient
from jupyter_slurm.server.session_proxy.isolation import Tickets
from jupyter_slurm.server.session_proxy.new_notebook import NEW_NOTEBOOKS, NewNotebookHandler
from jupyter_slurm.server.terminals import HANDLERS as TERMINALS

__all__ = ["SlurmExtension", "has_panel"]


class SlurmExtension(ExtensionApp):
    """Serves ``<base_url>jupyter-slurm/api/v1/…``, and sessions beside it.

    The agent runs in this server if ``JupyterSlurm.agent_host`` says so.
    """

    name = "jupyter_slurm"
    classes = [JupyterSlurm]  # noqa: RUF012  (traitlets reads a plain class attribute)

    def initialize_handlers(self) -> None:
        """Add the handlers to the server."""
        assert self.serverapp is not None
        logger = self.serverapp.event_logger
        assert logger is not None
        for schema in SCHEMAS:
            logger.register_event_schema(schema)
        self._access, self._caller = AgentAccess(self.config, Events(logger.emit).handle_event), SessionHttpClient()
        tickets = Tickets() if self._isolates_sessions() else None
        if tickets is None:
            page = self.serverapp.web_app.settings.setdefault("page_config_data", {})
            page["jupyterSlurmSharesOrigin"] = "true"  # the panel says it, and so do the cards of its notebooks
            os.environ["JUPYTER_SLURM_SHARES_ORIGIN"] = "1"
        found = {"access": self._access, "caller": self._caller, "tickets": tickets}
        self.handlers.append((SESSIONS, SessionHandler, found))
        self.handlers.append((NEW_NOTEBOOKS, NewNotebookHandler, {"access": self._access, "caller": self._caller}))
        if fits_sessions(self.serverapp.base_url):
            # Inherited by kernels and terminals: sessions launched in them have an address of this server.
            os.environ["JUPYTER_SLURM_BASE_URL"] = self.serverapp.base_url
        # Before the agent's handlers, which match all other paths.
        self.handlers.extend((pattern, handler, {"access": self._access}) for pattern, handler in KERNELS)
        managers = (self.serverapp.session_manager, self.serverapp.kernel_manager, self.serverapp.kernel_spec_manager)
        self._moves = NotebookMoves(*managers, self.config)
        self.handlers.extend((pattern, handler, {"moves": self._moves}) for pattern, handler in MOVES)
        if self.serverapp.terminals_enabled:
            self.handlers.extend((pattern, handler, {"access": self._access}) for pattern, handler in TERMINALS)
            page = self.serverapp.web_app.settings.setdefault("page_config_data", {})
            page["jupyterSlurmHasTerminals"] = "true"
        self.handlers.append((r"jupyter-slurm/api/.*", AgentHandler, {"access": self._access}))
        # The loop does not run yet. Kernels look for the agent before a browser requests it.
        self.serverapp.io_loop.add_callback(self._access.house)
        if not has_panel(jupyter_path("labextensions")):
            # pip hides the message of the build about it.
            self.log.info(
                "jupyter_slurm was installed without its JupyterLab panel. Install a released package instead."
            )

    def _isolates_sessions(self) -> bool:
        """Return whether pages of sessions get another origin than this server, as the settings say."""
        try:
            return load_settings(self.config).isolate_sessions
        except ConfigError:  # the agent reports it
            return True

    async def stop_extension(self) -> None:
        """Disconnect from the agent, which ends with the server if it runs in it, and from remote kernels."""
        await self._moves.close()
        leave()
        await self._caller.close()
        await self._access.close()


def has_panel(folders: Iterable[str]) -> bool:
    """Return whether one of JupyterLab's extension folders has the panel."""
    return any(Path(folder, "jupyter-slurm", "package.json").exists() for folder in folders)
