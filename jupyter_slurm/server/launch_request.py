"""What a browser cannot say when it launches a session or submits: whose Jupyter server it is, and where that works."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING
from urllib.parse import quote

from jupyter_slurm.client.clusters.cluster import Cluster, context
from jupyter_slurm.client.submission.submit import python_named
from jupyter_slurm.server.allowed_paths import fits_sessions

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.domain import api_types as api

__all__ = ["completed", "surrounded"]


async def completed(client: AgentClient, cluster: str, asked: api.Launch, *, base_url: str, folder: str) -> api.Launch:
    """Return a launch with what was left open, as a notebook of this server would say it.

    Parameters
    ----------
    client : AgentClient
        The way to the agent.
    cluster : str
        Where to.
    asked : mapping
        The API's ``Launch``.
    base_url, folder : str
        Of this server: the session is shown below the one, and begins in the other unless its cluster is behind SSH.
    """
    told: api.Launch = {**asked}
    if not told.get("prefix") and fits_sessions(base_url):
        told["prefix"] = base_url
    if "context" in told and (told.get("python") or told.get("default_python")):
        return told
    there = await _place(client, cluster)
    if "context" not in told:
        told["context"] = _context(there, folder)
    if not told.get("python") and not told.get("default_python"):
        told["default_python" if told.get("env") else "python"] = python_named(None, there)
    return told


async def surrounded(
    client: AgentClient, cluster: str, asked: Mapping[str, object], *, folder: str
) -> dict[str, object]:
    """Return a request with the circumstances of a notebook of this server, where it came without any."""
    if "context" in asked:
        return dict(asked)
    return {**asked, "context": _context(await _place(client, cluster), folder)}


async def _place(client: AgentClient, cluster: str) -> Cluster:
    known = await client.aget(f"/v1/clusters/{quote(cluster, safe='')}")
    is_remote = known.get("connection") is not None
    return Cluster(client, cluster, is_remote=is_remote, python=str(known.get("python") or "python3"))


def _context(there: Cluster, folder: str) -> api.Context:
    """Return the circumstances of a notebook that lies in the server's own folder, written as Jupyter writes that."""
    around, path = context(there), os.path.abspath(os.path.expanduser(folder))
    if not there.is_remote and os.path.isdir(path):
        around["cwd"] = path
    return around
