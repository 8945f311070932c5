"""Fields of a launch or a submission that a browser cannot know: the Jupyter server, and its working directory."""

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


async def completed(
    client: AgentClient, cluster: str, requested: api.Launch, *, base_url: str, folder: str
) -> api.Launch:
    """Return a launch with the missing fields, as a notebook of this server would send it.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    cluster : str
        Cluster of the session.
    asked : mapping
        The API's ``Launch``.
    base_url, folder : str
        Of this server: the session is shown below the URL, and starts in the folder unless its cluster is remote.
    """
    told: api.Launch = {**requested}
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
    client: AgentClient, cluster: str, requested: Mapping[str, object], *, folder: str
) -> dict[str, object]:
    """Return a request with the context of a notebook of this server, unless it has a context."""
    if "context" in requested:
        return dict(requested)
    return {**requested, "context": _context(await _place(client, cluster), folder)}


async def _place(client: AgentClient, cluster: str) -> Cluster:
    known = await client.aget(f"/v1/clusters/{quote(cluster, safe='')}")
    is_remote = known.get("connection") is not None
    return Cluster(client, cluster, is_remote=is_remote, python=str(known.get("python") or "python3"))


def _context(cluster: Cluster, folder: str) -> api.Context:
    """Return the context of a notebook in the server's root folder, in Jupyter's notation."""
    around, path = context(cluster), os.path.abspath(os.path.expanduser(folder))
    if not cluster.is_remote and os.path.isdir(path):
        around["cwd"] = path
    return around
