"""Jupyter events for the agent's events: for listeners on the server, and for ``/api/events/subscribe``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["SCHEMAS", "Events"]

SCHEMAS = [Path(__file__).with_name("schemas") / f"{name}.yaml" for name in ("job", "prompt")]
"""The schemas of the events."""

_PREFIX = "https://schema.jupyter.org/jupyter_slurm/"
_JOB_KEYS = ("cluster", "key", "id", "kind", "state", "nodes", "exit_code")
_PROMPT_KEYS = ("id", "cluster", "host", "kind")
_MAX_REMEMBERED_JOBS = 10_000  # jobs, including finished ones, which another agent reports again


class Events:
    """Emits an event for each state change; other changes of a job are ignored.

    Parameters
    ----------
    emit : callable
        Method of a ``jupyter_events.EventLogger`` that knows the schemas.
    """

    def __init__(self, emit: Callable[..., Any]) -> None:
        self._emit = emit
        self._states: dict[tuple[str, ...], tuple[Any, ...]] = {}

    def handle_event(self, event: str, data: Any) -> None:
        """Handle an event of the agent."""
        if event == "job":
            self._job(data)
        elif event == "prompt":
            told = {name: str(data[name]) for name in _PROMPT_KEYS}
            self._emit(schema_id=f"{_PREFIX}prompt/v1", data={**told, "settled": bool(data.get("settled"))})

    def _job(self, data: api.Job) -> None:
        which = (str(data.get("cluster")), *_identity(data))
        told_session, is_finished = data.get("session"), bool(data.get("finished"))
        session = told_session["state"] if told_session else None
        state = (data.get("state"), session, is_finished)
        is_known = self._states.pop(which, None) == state
        self._states[which] = state  # last: the oldest entry is removed first
        if len(self._states) > _MAX_REMEMBERED_JOBS:
            del self._states[next(iter(self._states))]
        if is_known:
            return
        told = {name: data.get(name) for name in _JOB_KEYS}
        told |= {"name": data.get("label") or data.get("name"), "session": session, "finished": is_finished}
        self._emit(schema_id=f"{_PREFIX}job/v1", data=told)


def _identity(data: api.Job) -> tuple[str, ...]:
    """Return the identity of a job in its cluster: its key, or for other jobs the number, which Slurm may reuse."""
    return (str(data["key"]),) if data.get("key") else (str(data.get("id")), str(data.get("submit_time")))
