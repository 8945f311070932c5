"""Card of a session: its progress, its address, and the event that ends it."""

from __future__ import annotations

import os
import shlex
import time
from typing import TYPE_CHECKING

from jupyter_slurm.client.render.present_time import present_time, time_limit
from jupyter_slurm.domain.clock_text import clock_text
from jupyter_slurm.domain.slurm_values import duration_words, format_duration

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "command_name",
    "end_note",
    "hides_log",
    "is_session_open",
    "server_prefix",
    "session_facts",
    "session_history",
    "session_notes",
    "session_path",
    "session_state",
    "start_note",
    "state_text",
    "terminal_name",
]

_STATE_TEXTS = {"unreachable": "ready, but not reachable from this computer"}


def session_state(data: api.Job) -> str:
    """Return the state of a session; empty for other jobs, and for a finished session: Slurm's state applies."""
    session = data.get("session")
    return str(session["state"]) if session and not data.get("finished") else ""


def server_prefix() -> str | None:
    """Return the base_url of the Jupyter server of this kernel or terminal; None if the server lacks the extension."""
    return os.environ.get("JUPYTER_SLURM_BASE_URL")


def session_path(session: api.Session) -> str:
    """Return the path under which that server shows a session; empty if it does not."""
    prefix, path = server_prefix(), str(session["path"])
    return path if prefix and path.startswith(f"{prefix}jupyter-slurm/") else ""


def is_session_open(data: api.Job) -> bool:
    """Return whether a session can be opened."""
    return session_state(data) in ("ready", "reconnecting")


def hides_log(data: api.Job) -> bool:
    """Return whether the log of Jupyter is of no interest: Jupyter is ready, or ended as intended."""
    if not data.get("session"):
        return False
    return is_session_open(data) or (bool(data.get("finished")) and data.get("state") in ("COMPLETED", "CANCELLED"))


def state_text(data: api.Job) -> str:
    """Describe the state of a running session; empty for any other job, for which Slurm's state suffices."""
    state = session_state(data)
    if state == "starting":
        return f"starting {command_name(data) or 'Jupyter'}"
    return "" if state in ("submitted", "pending") else _STATE_TEXTS.get(state, state)


def command_name(data: api.Job) -> str:
    """Return the name of the served command; empty for Jupyter."""
    session = data.get("session")
    command = session and session.get("command")
    return str(command[0]).rpartition("/")[2] if command else ""


def session_facts(data: api.Job) -> list[str]:
    """Return the resources of a session, its server, and its remaining time."""
    session = data.get("session")
    if not session or not session_state(data):
        return []
    said, gpus = [], data.get("gpus")
    if gpus:
        said.append(f"{gpus} GPU{'s' if gpus > 1 else ''}")
    if session.get("server"):
        said.append(str(session["server"]))
    limit, start = time_limit(data), data.get("start_time")
    if limit and start and is_session_open(data):
        said.append(f"{format_duration(max(0.0, start + limit - present_time(data)))} left")
    return said


def session_notes(data: api.Job) -> list[str]:
    """Return notes: the address of a session, how to open it, and the event that ends it."""
    session = data.get("session")
    if not session or not session_state(data):
        return []
    said, is_jupyter = [str(session.get("message") or ""), end_note(data)], not session.get("command")
    if is_session_open(data) and session.get("app") == "ssh":
        said.append(f"`ssh {data.get('label')}` connects to it, on the computer that has started it.")
    elif is_session_open(data):
        said.append(str(session.get("browser_url") or session["url"]))
        if path := session_path(session):
            said += [f"Or through this Jupyter server, {_isolation()}:", path]
        how = "opens it logged in" if is_jupyter else "opens it"
        said.append(f"`jupyter slurm open {terminal_name(data)}` in a terminal, or .open() in this notebook, {how}.")
    said.append(f"It stops after {duration_words(session['idle'])} without {'use' if is_jupyter else 'a connection'}.")
    if on := session.get("on"):
        said.append(f"It runs in job {on}, and ends with it. The job continues when the session ends.")
    if resume := session.get("resume"):
        said.append(f"At its time limit it starts again, at most {resume} times, with new kernels.")
    return said


def _isolation() -> str:
    """Describe what the page of a session may do on the Jupyter server that shows it."""
    if os.environ.get("JUPYTER_SLURM_SHARES_ORIGIN"):
        return "whose address the page shares: software on the node can act as you on it"
    return "in a sandbox: the page cannot act as you on it"


def end_note(data: api.Job) -> str:
    """Return a note about a near time limit and its consequence; empty if the limit is not near."""
    session = data.get("session")
    if not session or not (ends := session.get("ends")):
        return ""
    left = format_duration(max(0.0, ends - present_time(data)))
    if session.get("resume"):
        return f"Warning: it starts again in {left}. The memory of its kernels will be lost."
    return f"Warning: it ends in {left}, with all that runs in it."


def start_note(data: api.Job) -> str:
    """Return the estimated start of a pending job; empty if unknown."""
    start = data.get("estimated_start")
    if data.get("state") != "PENDING" or not start or start <= present_time(data):
        return ""
    return "Earliest start, by Slurm's estimate: " + clock_text(start, present_time(data))


def session_history(data: api.Job) -> str:
    """Return the steps of a session with their times and durations, and the server unless it is Jupyter."""
    session, said, before = data["session"], list[str](), None
    assert session is not None
    for step in session["steps"]:
        took = "" if before is None else f" (after {max(0.0, step['time'] - before):.0f} s)"
        at = time.strftime("%Y-%m-%d %H:%M:%S" if before is None else "%H:%M:%S", time.localtime(step["time"]))
        said.append(f"{step['state']} {at}{took}")
        before = step["time"]
    said += [text[0].lower() + text[1:] for text in [start_note(data)] if text]
    command = session.get("command")
    return f"{data.get('label')}: {', '.join(said)}" + (f"; runs {shlex.join(command)}" if command else "")


def terminal_name(data: api.Job) -> str:
    """Return the name of a session for a terminal."""
    cluster = str(data.get("cluster") or "")
    is_here = cluster == "local" or cluster.startswith("local-")  # a site profile cannot have such a name
    return f"{data.get('label')}" + ("" if is_here else f" --cluster {cluster}")
