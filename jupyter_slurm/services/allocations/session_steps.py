"""Sessions as steps: their additions to the plan of a step, and the time limit that their job gives them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.slurm_values import NO_LIMIT_S
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile, SessionRecord
from jupyter_slurm.services.jobs.job import TrackedJob

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["NODE_PYTHON", "record_session", "session_step", "show_limit"]

NODE_PYTHON = "python3"
"""Python of a node, where neither the request nor the environment says it."""


def session_step(requested: api.Launch, session: Mapping[str, Any], label: str) -> api.Step:
    """Return the request of a step that serves a session; no front end can make it."""
    known = {name: requested.get(name) for name in ("key", "python", "env", "default_python", "context")}
    given = {name: value for name, value in known.items() if value is not None}
    given.setdefault("default_python", NODE_PYTHON)
    return cast("api.Step", {**given, "kind": "session", "session": session, "label": label})


def record_session(record: JobRecordFile, requested: api.Step, allocation: TrackedJob) -> JobRecordFile:
    """Return the record of a step, with its session and the job in which it runs."""
    told = cast("dict[str, Any]", requested)
    session = {**told["session"], "on": str(allocation.id or "")}
    return replace(record, session=SessionRecord.from_json(session), label=told["label"])


def show_limit(step: TrackedJob, allocation: TrackedJob) -> None:
    """Give a running session the rest of its job's time limit."""
    job, started = allocation.latest, step.start_time
    if step.number is None or started is None or job is None or not job.state.is_running:
        return
    limit, began = job.time_limit, job.start_time or allocation.start_time
    rest = limit
    if limit and limit < NO_LIMIT_S and began:
        rest = max(0, round(limit - (started - began)))
    nodes = step.reported_nodes or job.nodes
    step.slurm.latest = replace(
        job,
        id=JobId(JobId.parse(step.number).job),
        nodes=nodes,
        time_limit=rest,
        start_time=round(started),
        restarts=None,
    )
