"""Choice of the allocation for a step, a cell or a kernel: by its name, its job ID, or the latest of this kernel."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from jupyter_slurm.client.allocations import allocation as here
from jupyter_slurm.client.allocations import kernel_end
from jupyter_slurm.client.allocations.allocation import Allocation, open_allocations
from jupyter_slurm.client.clusters.cluster import Cluster, context
from jupyter_slurm.client.clusters.other_clusters import naming_others
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.request import new_key
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import python_named
from jupyter_slurm.errors import UsageError

__all__ = ["choose", "join", "place_named"]

_JOB_ID = re.compile(r"[0-9]+(?:_[0-9]+)?", re.ASCII)


def choose(cluster: Cluster, name: str | None, namespace: Mapping[str, object]) -> Allocation | None:
    """Return the allocation that the user means; None: the user named none, and none exists.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the allocation.
    name : str or None
        A variable, the name that ``as=`` gave, or a Slurm id. None: the latest of this kernel, else the latest that
        was kept for this notebook, else the only kept allocation.
    namespace : mapping
        The variables of the user.

    Raises
    ------
    UsageError
        No allocation has that name, or several have it.
    JobNotFound, JobError
        The user named a job that cannot be joined.
    """
    reference = _job_named(cluster, name, namespace)
    found = _choose(cluster, name, namespace) if reference is None else join(cluster, reference)
    if found is not None and found not in here._mine and kernel_end.take_up(found):
        here._mine.append(found)
        found._follow()
    return found


def place_named(cluster: Cluster, name: str, namespace: Mapping[str, object]) -> str:
    """Return the running job or the open allocation that ``on=NAME`` of a session means: an ID, or a key.

    Raises
    ------
    UsageError
        No allocation has that name, or several have it.
    """
    reference = _job_named(cluster, name, namespace)
    if reference is None:
        found = choose(cluster, name, namespace)
        assert found is not None  # `choose` returns the named allocation or raises
        reference = str(found.key)
    return reference


def _job_named(cluster: Cluster, name: str | None, namespace: Mapping[str, object]) -> str | None:
    """Return the ID of the job that a name means, if it is no allocation of this kernel: a job variable, or an ID."""
    value = namespace.get(name) if name is not None else None
    if isinstance(value, Job) and not isinstance(value, Allocation):
        name = value.id
    if name is None or not _JOB_ID.fullmatch(name) or any(name in (one.label, one.id) for one in here._mine):
        return None
    return name


def join(cluster: Cluster, reference: str) -> Allocation:
    """Return a running job as an allocation: a step of the job, which the job outlives, holds it open.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    reference : str
        ID of the job, or of a task of an array (``12_3``).

    Raises
    ------
    JobNotFound, UsageError, JobError
        The job cannot be joined; the message says why. Nothing was started.
    """
    asked = {"key": new_key(), "python": python_named(None, cluster), "lease": settings().allocation_lease}
    with naming_others(cluster, reference):
        data = cluster.client.post(
            cluster.path("jobs", reference, "join"),
            json={**asked, "context": context(cluster)},
            timeout=None,
            idempotent=True,
        )
    found = Allocation(cluster, data)
    found._follow()
    return found


def _choose(cluster: Cluster, name: str | None, namespace: Mapping[str, object]) -> Allocation | None:
    value = namespace.get(name) if name is not None else None
    if isinstance(value, Allocation) and value.is_open:
        return value
    for one in reversed(here._mine):
        is_meant = one.cluster == cluster.name and name in (None, one.label, one.id)
        # Another handle or program may have released it within the last second.
        if is_meant and one.is_open and allocation_card.is_open(one.refresh()._data):
            return one
    found = [one for one in open_allocations(cluster) if one._data.get("lease")]  # others end with their only step
    if name is not None:
        return _named(name, value, found)
    # the allocation of a notebook's kernel: only by its name
    found = [one for one in found if one.keep and not one._data.get("kernel")]
    if inherited := [one for one in found if kernel_end.is_for_this_notebook(one)]:
        return inherited[0]
    found = [one for one in found if not one._data.get("kept_for")]  # the others wait for the kernel of their notebook
    if len(found) > 1:
        raise UsageError("Several allocations are open, and this kernel requested none of them.", hint=_listed(found))
    return found[0] if found else None


def _named(name: str, value: Any, matches: list[Allocation]) -> Allocation:
    """Return the allocation of that name among those of other kernels."""
    named = [one for one in matches if name in (one.label, one.id)]
    # else its kernel may have been killed, and this kernel takes over
    named = [one for one in named if one.keep] or named
    if isinstance(value, Allocation) and not (named and named[0].keep):
        over = "was released" if allocation_card.is_released(value.data) else f"has ended: {value.state}"
        raise UsageError(f"on={name}: {value.title} {over}.", hint=_listed(matches))
    if not named:
        raise UsageError(f"on={name}: no open allocation has this name or job ID.", hint=_listed(matches))
    if len(named) > 1:
        raise UsageError(f"on={name}: several open allocations have this name.", hint=_listed(named))
    return named[0]


def _listed(matches: list[Allocation]) -> str:
    labels = [one.label for one in matches]
    means = [one.label if one.label and labels.count(one.label) == 1 else one.id for one in matches]
    shown = [f"on={mean} ({one.id}, {one._data['state']})" for mean, one in zip(means, matches, strict=True)]
    return f"Open allocations: {', '.join(shown)}" if shown else "Request one with %salloc."
