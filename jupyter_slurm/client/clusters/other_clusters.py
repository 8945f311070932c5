"""Search on the other clusters that are logged in, for something that the cluster in use does not have."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from typing import TypeVar

from jupyter_slurm.client.clusters import cluster as clusters
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.errors import ConfigError, JobNotFound, SlurmError, UsageError

__all__ = ["find_anywhere", "naming_others", "other_clusters", "other_locations"]

_T = TypeVar("_T")


def other_clusters(here: Cluster | None = None) -> list[Cluster]:
    """Return the clusters with a connection and the Slurm of this computer, without the cluster in use.

    Nobody is asked to log in.
    """
    with contextlib.suppress(SlurmError):
        local = clusters._registered(os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None, None)
        found = []
        for one in local.client.get("/v1/clusters"):
            connection = one.get("connection")
            is_reached = connection["state"] == "connected" if connection else one["id"] == local.name
            if is_reached and (here is None or one["id"] != here.name):
                found.append(clusters.registered(one["id"]) if connection else local)
        return found
    return []


def find_anywhere(find: Callable[[Cluster], _T], what: str, *, is_number: bool) -> _T:
    """Return what a function finds on the cluster in use, else on the only other cluster that has it.

    The other cluster is only named, not used, if the user has chosen a cluster, or gave a number: other clusters have
    jobs with the same numbers.

    Parameters
    ----------
    find : callable
        Returns the thing on a cluster; raises JobNotFound.
    what : str
        The thing in words: "session w".
    is_number : bool
        Whether the user gave a number, and not a name.

    Raises
    ------
    JobNotFound
        No cluster has it; or another one has it, which the hint names.
    ConfigError
        This computer has no Slurm, no cluster is in use, and no cluster has it.
    UsageError
        Several other clusters have it.
    """
    here: Cluster | None = None
    try:
        here = clusters.current()
        return find(here)
    except (JobNotFound, ConfigError) as error:
        found = list(_search(find, here))
        if not found:
            raise
        names = [_label(one) for one, _ in found]
        if len(found) == 1 and not is_number and not clusters.is_chosen():
            return found[0][1]
        if len(found) > 1 and not is_number:
            raise UsageError(
                f"Several clusters have {what}: {', '.join(names)}.", hint=f"Add `--cluster {names[0]}`, for example."
            ) from None
        error.hint = _hint(names, what)
        raise


def other_locations(here: Cluster, reference: str) -> str:
    """Return a hint that names the other clusters with a job of this ID; empty if there are none."""
    names = [_label(one) for one, _ in _search(lambda one: one.client.get(one.path("jobs", reference)), here)]
    return _hint(names, f"a job {reference}") if names else ""


@contextlib.contextmanager
def naming_others(here: Cluster, reference: str) -> Iterator[None]:
    """Complete an error about an unknown job with the clusters that have a job of that ID."""
    try:
        yield
    except (JobNotFound, ConfigError) as error:
        error.hint = other_locations(here, reference) or error.hint
        raise


def _search(find: Callable[[Cluster], _T], here: Cluster | None) -> Iterator[tuple[Cluster, _T]]:
    for one in other_clusters(here):
        with contextlib.suppress(SlurmError):
            yield one, find(one)


def _label(cluster: Cluster) -> str:
    return cluster.name if cluster.is_remote else "local"


def _hint(names: list[str], what: str) -> str:
    where = " and ".join(names)
    return f"{where} has {what}: add `--cluster {names[0]}`, or in a notebook run `%slurm use {names[0]}` first."
