"""Displayed names of clusters: two of one name are told apart by their host, or the folder of their Slurm."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.clusters.cluster import Cluster, is_local_id
from jupyter_slurm.client.settings import settings
from jupyter_slurm.sites.profile import list_profiles

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["is_site_or_id", "shown_name", "split_address"]

_ADDRESS: Final = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]{0,62}):(.*)", re.DOTALL)


def split_address(word: str) -> tuple[str | None, str]:
    """Return the cluster before the colon of ``CLUSTER:PATH``, None without one, and the path."""
    found = _ADDRESS.fullmatch(word)
    return (found[1], found[2]) if found else (None, word)


def is_site_or_id(name: str) -> bool:
    """Return whether a name identifies a cluster: a site profile, or an ID of a Slurm of this computer.

    The ClusterName of the Slurm of this computer counts only where no site profile has that name.
    """
    return is_local_id(name) or name in list_profiles(settings().sites)


def shown_name(cluster: Cluster) -> str:
    """Return the name of a cluster for display, with its place where the agent knows another one of that name."""
    known: list[api.Cluster] = cluster.client.get("/v1/clusters")
    found = next((one for one in known if one["id"] == cluster.name), None)
    if found is None:
        return cluster.name
    name = _name(found)
    is_shared = sum(_name(one) == name for one in known) > 1
    return f"{name} ({_place(found)})" if is_shared else name


def _name(told: api.Cluster) -> str:
    return told["id"] if told.get("connection") else told["name"]


def _place(told: api.Cluster) -> str:
    connection = told.get("connection")
    if connection:
        return connection["hosts"][-1] if connection["hosts"] else told["id"]
    return os.path.dirname(told["slurm_conf"]) if told["slurm_conf"] else told["id"]
