"""Request of a session: its part of the record, and its start as a step of a job that runs already."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.services.allocations.session_steps import NODE_PYTHON, session_step
from jupyter_slurm.services.environments.session_folders import folder_paths, missing_folders, refuse_missing
from jupyter_slurm.services.jobs.session_server import session_path
from jupyter_slurm.services.sessions.command import base_url_of, folders_of
from jupyter_slurm.services.sessions.protocols import SessionCluster

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["OF_A_SESSION", "check_on", "session_part", "start_on"]

OF_A_SESSION = ("idle", "dir", "port", "prefix", "command", "jupyter", "ssh", "ssh_host", "app")
"""Fields of a launch that are part of the record of a session."""

_KEY_TIME = len("20261129-063000-")  # characters of a key before its random digits
_OWN_JOB_HINT = "Omit {0}, or omit on= to launch the session in a job of its own."


def session_part(cluster: SessionCluster, requested: api.Launch, served: dict[str, Any]) -> dict[str, Any]:
    """Return the part of the record that describes a session, with the command that it serves."""
    session: dict[str, Any] = {name: value for name in OF_A_SESSION if (value := requested.get(name)) is not None}
    session |= served
    if session.get("jupyter") and (folder := cluster.location.container.get("image_dir")):
        session["image_dir"] = folder
    path = session_path(session.get("prefix"), requested["key"])
    session["base_url"] = base_url_of(path, served.get("command"))
    if cluster.location.node_ports:
        session["node_ports"] = list(cluster.location.node_ports)
    return session


async def check_on(cluster: SessionCluster, requested: api.Launch) -> list[str]:
    """Refuse what a session in a running job cannot have; return warnings about folders that its node may not have.

    Raises
    ------
    UsageError
        The request has options of sbatch, or keywords that belong to a job of its own; or one of its folders in the
        home directory does not exist.
    """
    if options := requested.get("options"):
        raise UsageError(
            f"on={requested['on']} names a running job, which keeps its resources and its time limit. "
            f"Options of sbatch, such as {options[0]}, have no effect.",
            hint=_OWN_JOB_HINT.format("them"),
        )
    if requested.get("resume"):
        raise UsageError(
            "The keywords resume and on= cannot be combined: a session in a running job ends with that job, which "
            "Slurm does not start again for it.",
            hint=_OWN_JOB_HINT.format("resume"),
        )
    if requested.get("stage"):
        raise UsageError(
            "stage= and on= cannot be combined: a folder is sent before a job starts.",
            hint="Omit stage=, and copy the folder with `jupyter slurm put`.",
        )
    if requested.get("dry_run"):
        raise UsageError(
            "A session in a running job has no preview: nothing is submitted.", hint="Launch it, or omit on=."
        )
    return await _check_folders(cluster, requested)


async def _check_folders(cluster: SessionCluster, requested: api.Launch) -> list[str]:
    """Refuse folders that the node of a running job lacks, or warn of them; an image may have other folders."""
    entry, where = cluster.tracker.find(requested["on"] or ""), cluster.location
    record = entry.record if entry is not None else None
    if requested.get("env") or (record is not None and record.environment is not None):
        return []
    work_dir = (requested.get("context") or {}).get("cwd") or (record and record.work_dir)
    if not work_dir and entry is not None and entry.latest is not None:
        work_dir = entry.latest.work_dir
    paths = folder_paths(where.home, work_dir or "", requested.get("dir") or "", folders_of(requested))
    missing = await missing_folders(cluster.client.transport, where, paths)
    refuse_missing(missing, where.host)
    return [one.to_api(where.host)["text"] for one in missing]


async def start_on(cluster: SessionCluster, requested: api.Launch, session: dict[str, Any], label: str) -> api.Job:
    """Start a session in an open allocation or another running job, as a step.

    Raises
    ------
    UsageError, JobError
        The job cannot be joined, or the step is not possible: nothing was started.
    """
    joined = cluster.actions.joined
    told = await joined.join(
        requested["on"] or "",
        {
            "key": requested["key"][:_KEY_TIME] + secrets.token_hex(8),
            "python": requested.get("default_python") or NODE_PYTHON,
            "lease": joined.default_lease,
            "context": requested.get("context") or {},
        },
    )
    allocation = cluster.tracker.find(told["key"] or "")
    if allocation is None:
        raise JobError(f"Job {requested['on']} has ended.", hint="List your jobs with `%squeue --me`.")
    return await cluster.steps.start(allocation, session_step(requested, session, label))
