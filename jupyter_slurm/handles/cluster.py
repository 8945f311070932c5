"""Which cluster a front door means, and what of its process travels with a request."""

from __future__ import annotations

import contextlib
import os
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from jupyter_slurm.errors import UsageError
from jupyter_slurm.transport.limits import soft_limits

if TYPE_CHECKING:
    from jupyter_slurm.agent.client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.domain.options import OptionTable

__all__ = ["Cluster", "context", "current", "known", "settings"]

_lock = threading.Lock()
_settings: Settings | None = None
_client: AgentClient | None = None
_clusters: dict[tuple[str | None, str | None], Cluster] = {}


class Cluster:
    """One Slurm, as the agent knows it.

    Parameters
    ----------
    client : AgentClient
        The way to the agent.
    name : str
        Its id there.
    """

    def __init__(self, client: AgentClient, name: str) -> None:
        self.client = client
        self.name = name
        self.checked_pythons: set[str] = set()
        self.tables: dict[str, OptionTable] = {}
        self._options: dict[str, dict[str, Any]] = {}

    def path(self, *parts: str) -> str:
        """Return a path of the API below this cluster."""
        return "/".join(["/v1/clusters", quote(self.name, safe=""), *(quote(part, safe="") for part in parts)])

    def options(self, command: str) -> dict[str, Any]:
        """Return what options a command has here; asked once a process."""
        if command not in self._options:
            self._options[command] = self.client.get(self.path("options", command))
        return self._options[command]


def settings() -> Settings:
    """Return the settings of this process, read once."""
    global _settings
    if _settings is None:
        from jupyter_slurm.config import load_settings

        _settings = load_settings()
    return _settings


def current() -> Cluster:
    """Return the cluster that the Slurm commands of this process reach: SLURM_CONF and PATH name it.

    Raises
    ------
    AgentError
        There is no agent and none could be started.
    """
    global _client
    named = (os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None)
    with _lock:
        if named not in _clusters:
            if _client is None:
                from jupyter_slurm.agent.client import AgentClient

                _client = AgentClient.connect(settings())
            answer = _client.post("/v1/clusters", json={"slurm_conf": named[0], "path": named[1]})
            _clusters[named] = Cluster(_client, str(answer["id"]))
        return _clusters[named]


def known() -> list[Cluster]:
    """Return the clusters that were used in this process, the latest first. It waits for nobody who is being asked."""
    return list(_clusters.values())[::-1]


def context() -> dict[str, Any]:
    """Return the circumstances of this process: working directory, environment, umask and soft limits.

    What must not reach a job (secrets, what Slurm set for an enclosing job) is taken out where it is used.

    Raises
    ------
    UsageError
        The working directory is gone.
    """
    try:
        cwd = os.getcwd()
    except FileNotFoundError as error:
        raise UsageError("The working directory no longer exists.", hint="Change to another one: %cd ~") from error
    return {"cwd": cwd, "env": dict(os.environ), "umask": _umask(), "limits": soft_limits()}


def _umask() -> int:
    # os.umask cannot be asked without being set, for all threads.
    with (
        contextlib.suppress(OSError, ValueError),
        open("/proc/self/status", encoding="ascii", errors="replace") as file,
    ):
        for line in file:
            if line.startswith("Umask:"):
                return int(line.split()[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
