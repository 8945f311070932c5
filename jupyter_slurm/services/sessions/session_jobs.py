"""Sessions among the tracked jobs: their names, their apps, and the run that a report belongs to."""

from __future__ import annotations

import re

from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.session_server import SessionServer, SessionStart

__all__ = ["NAME", "app_of", "has_token", "is_current_run", "is_session", "name_of"]

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")
"""Form of a session's name: neither a number nor a key, because these identify the job."""


def is_session(entry: TrackedJob) -> bool:
    """Return whether a job is a session."""
    return entry.kind == "session"


def has_token(entry: TrackedJob) -> bool:
    """Return whether the server of a session has a login by a token."""
    return entry.record is not None and entry.record.session is not None and entry.record.session.has_token


def app_of(entry: TrackedJob) -> str:
    """Return the name of the app that a session serves; empty for Jupyter and other commands."""
    return (entry.record.session.app if entry.record and entry.record.session else None) or ""


def is_current_run(entry: TrackedJob, served: SessionServer | SessionStart) -> bool:
    """Return whether a runner's report belongs to the present run, not to one before a requeue."""
    return entry.state.is_running and served.restarts >= entry.restarts


def name_of(entry: TrackedJob) -> str:
    """Return the name of a session."""
    return str((entry.record.label if entry.record else None) or entry.key)
