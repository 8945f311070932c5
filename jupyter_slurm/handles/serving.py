"""What the card of a session says beside that of any job: how far it is, where it is, and what ends it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["hides_log", "is_ready", "session_facts", "session_notes", "session_state", "told_state"]

_WORDS = {"starting": "starting Jupyter", "unreachable": "ready, but not reached from here"}


def session_state(data: Mapping[str, Any]) -> str:
    """Return how far a session is; empty for what is none, and for one that is over: Slurm says how."""
    session = data.get("session")
    return str(session["state"]) if session and not data.get("finished") else ""


def is_ready(data: Mapping[str, Any]) -> bool:
    """Tell whether a session can be opened."""
    return session_state(data) in ("ready", "reconnecting")


def hides_log(data: Mapping[str, Any]) -> bool:
    """Tell whether what Jupyter logs is of no interest: it is there, or ended as it should."""
    if not data.get("session"):
        return False
    return is_ready(data) or (bool(data.get("finished")) and data.get("state") in ("COMPLETED", "CANCELLED"))


def told_state(data: Mapping[str, Any]) -> str:
    """Return how far a session that runs is, in words; empty for any other job, whose state Slurm's word tells."""
    state = session_state(data)
    return "" if state in ("submitted", "pending") else _WORDS.get(state, state)


def session_facts(data: Mapping[str, Any], duration: Callable[[float], str]) -> list[str]:
    """Return what a session has, which Jupyter it is, and for how long yet."""
    state, session = session_state(data), data.get("session") or {}
    if not state:
        return []
    said, gpus = [], data.get("gpus")
    if gpus:
        said.append(f"{gpus} GPU{'s' if gpus > 1 else ''}")
    if session.get("server"):
        said.append(str(session["server"]))
    limit, start = data.get("time_limit"), data.get("start_time")
    if limit and start and is_ready(data):
        said.append(f"{duration(max(0.0, start + limit - time.time()))} left")
    return said


def session_notes(data: Mapping[str, Any], duration: Callable[[float], str]) -> list[str]:
    """Return where a session is, how it is opened, and what ends it."""
    state, session = session_state(data), data.get("session") or {}
    if not state:
        return []
    said = [str(session.get("message") or "")]
    if is_ready(data):
        said.append(str(session["url"]))
        said.append(f"`jupyter slurm open {_named(data)}` in a terminal, or .open() here, opens it logged in.")
    said.append(f"It ends when nobody has used it for {duration(session['idle'])}.")
    return said


def _named(data: Mapping[str, Any]) -> str:
    """Return how a terminal names a session."""
    cluster = str(data.get("cluster") or "")
    is_here = cluster == "local" or cluster.startswith("local-")  # what is named so is no profile
    return f"{data.get('label')}" + ("" if is_here else f" --cluster {cluster}")
