"""Slurm in Jupyter: a notebook cell becomes a job.

``%load_ext jupyter_slurm`` registers the magics; the names below are imported at first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_slurm._version import __version__
from jupyter_slurm.client.card_controls import register_controls

if TYPE_CHECKING:
    from jupyter_slurm.client.allocations.allocation import Allocation, RemoteCell, Step, allocations
    from jupyter_slurm.client.clusters.resources import Resources, resources
    from jupyter_slurm.client.clusters.tunnel import Tunnel, tunnel
    from jupyter_slurm.client.images.image import images
    from jupyter_slurm.client.interrupts import WaitInterrupted
    from jupyter_slurm.client.job_search import job, jobs
    from jupyter_slurm.client.jobs.array import ArrayJob, Task
    from jupyter_slurm.client.jobs.as_completed import as_completed, wait
    from jupyter_slurm.client.jobs.job import Job
    from jupyter_slurm.client.jobs.job_list import JobList
    from jupyter_slurm.client.render.table import Table
    from jupyter_slurm.client.sessions.session import Session, session, sessions
    from jupyter_slurm.errors import JobEndUnknown, JobFailed, SlurmError
    from jupyter_slurm.widgets.cluster_view import cluster_view
    from jupyter_slurm.widgets.job_monitor import monitor
    from jupyter_slurm.widgets.session_launcher import launcher
    from jupyter_slurm.widgets.submit_form import submit_form

__all__ = [
    "Allocation",
    "ArrayJob",
    "Job",
    "JobEndUnknown",
    "JobFailed",
    "JobList",
    "RemoteCell",
    "Resources",
    "Session",
    "SlurmError",
    "Step",
    "Table",
    "Task",
    "Tunnel",
    "Usage",
    "WaitInterrupted",
    "__version__",
    "allocations",
    "as_completed",
    "cluster_view",
    "errors",
    "images",
    "job",
    "jobs",
    "launcher",
    "monitor",
    "resources",
    "session",
    "sessions",
    "submit_form",
    "tunnel",
    "usage",
    "wait",
]

_HOME = {
    "Allocation": "jupyter_slurm.client.allocations.allocation",
    "ArrayJob": "jupyter_slurm.client.jobs.array",
    "Job": "jupyter_slurm.client.jobs.job",
    "JobEndUnknown": "jupyter_slurm.errors",
    "JobFailed": "jupyter_slurm.errors",
    "JobList": "jupyter_slurm.client.jobs.job_list",
    "SlurmError": "jupyter_slurm.errors",
    "RemoteCell": "jupyter_slurm.client.allocations.allocation",
    "Resources": "jupyter_slurm.client.clusters.resources",
    "Session": "jupyter_slurm.client.sessions.session",
    "Step": "jupyter_slurm.client.allocations.allocation",
    "Table": "jupyter_slurm.client.render.table",
    "Task": "jupyter_slurm.client.jobs.array",
    "Tunnel": "jupyter_slurm.client.clusters.tunnel",
    "Usage": "jupyter_slurm.client.clusters.usage",
    "WaitInterrupted": "jupyter_slurm.client.interrupts",
    "allocations": "jupyter_slurm.client.allocations.allocation",
    "as_completed": "jupyter_slurm.client.jobs.as_completed",
    "cluster_view": "jupyter_slurm.widgets.cluster_view",
    "images": "jupyter_slurm.client.images.image",
    "job": "jupyter_slurm.client.job_search",
    "jobs": "jupyter_slurm.client.job_search",
    "resources": "jupyter_slurm.client.clusters.resources",
    "launcher": "jupyter_slurm.widgets.session_launcher",
    "monitor": "jupyter_slurm.widgets.job_monitor",
    "session": "jupyter_slurm.client.sessions.session",
    "sessions": "jupyter_slurm.client.sessions.session",
    "submit_form": "jupyter_slurm.widgets.submit_form",
    "tunnel": "jupyter_slurm.client.clusters.tunnel",
    "usage": "jupyter_slurm.client.clusters.usage",
    "wait": "jupyter_slurm.client.jobs.as_completed",
}


def __getattr__(name: str) -> Any:
    """Import a public name at first use (PEP 562)."""
    from importlib import import_module

    if name == "errors":
        return import_module("jupyter_slurm.errors")
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names, imported or not."""
    return sorted({*globals(), *__all__})


def _controls(job: Any) -> Any:
    from jupyter_slurm.widgets.job_controls import controls

    return controls(job)


register_controls(_controls)


def load_ipython_extension(shell: Any) -> None:
    """Register the magics (``%load_ext jupyter_slurm``), without other imports or processes before their first use."""
    from jupyter_slurm.magics import register

    register(shell)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics (``%unload_ext jupyter_slurm``). Jobs and their cards stay."""
    from jupyter_slurm.magics import unregister

    unregister(shell)


def _jupyter_labextension_paths() -> list[dict[str, str]]:
    return [{"src": "labextension", "dest": "jupyter-slurm"}]


def _jupyter_server_extension_points() -> list[dict[str, str | type]]:
    from jupyter_slurm.server import extension_points

    return extension_points()
