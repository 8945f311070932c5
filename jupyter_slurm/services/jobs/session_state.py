"""State of a session in the API: steps, end, warnings and address."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jupyter_slurm.domain.advice.endings import is_near_limit
from jupyter_slurm.errors import JobError
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.session_server import SessionServer, read_host_key, read_token, session_path

__all__ = ["not_a_session", "route_to_api", "server_warnings", "session_dict"]


def not_a_session(entry: TrackedJob) -> JobError:
    """Return the error about a job that is no session of jupyter_slurm."""
    return JobError(
        f"Job {entry.id or entry.key} is not a jupyter_slurm session.",
        hint="List your sessions with `jupyter slurm sessions`.",
    )


async def route_to_api(transport: Transport, entry: TrackedJob) -> api.SessionWay:
    """Return the local address and the token of a session: the ``SessionWay`` of the API.

    Raises
    ------
    JobError
        The session is not ready, or over; ``state`` in the details has the progress.
    """
    told, served, folder = session_dict(entry), entry.session.server, entry.folder
    record = entry.record
    if told is None or folder is None or record is None or record.session is None:
        raise not_a_session(entry)
    name, state = record.label, told["state"]
    port = told.get("local_port")
    if served is None or state != "ready" or port is None:
        hint = f"Open it with `jupyter slurm open {name}`." if state == "unreachable" else ""
        message = f"Session {name} is {state}: {told['message']}".removesuffix(": ").rstrip(".") + "."
        raise JobError(message, hint=hint, state=state, path=told["path"])
    if served.token is None and record.session.has_token:
        served.token = await read_token(transport, folder)
    way: api.SessionWay = {
        "port": port,
        "path": told["path"],
        "base_url": record.session.base_url,
        "token": served.token,
    }
    if record.session.app and served.token:
        way["scheme"] = "Bearer"
    if record.session.ssh:
        way["host_key"] = await read_host_key(transport, folder)
    return way


def server_warnings(entry: TrackedJob) -> list[str]:
    """Return the warnings about the server of a running session."""
    return entry.session.server.warnings if entry.session.server is not None and entry.state.is_running else []


def session_dict(entry: TrackedJob) -> api.Session | None:
    """Return the fields of a session beyond those of every job; None for any other job."""
    record = entry.record
    if record is None or record.session is None:
        return None
    request = record.session
    served = None if entry.is_finished or not entry.state.is_running else entry.session.server
    tunnel = served.tunnel.as_dict() if served and served.tunnel else None
    state, message = _state(entry, served, tunnel)
    url = tunnel["url"] if tunnel else None
    url = url.rstrip("/") + request.base_url if url else None
    own = f"http://{entry.key}.localhost:{tunnel['local_port']}{request.base_url}" if tunnel and url else None
    return {
        "state": state,
        "message": message,
        "url": url,
        "browser_url": own if served and served.has_own_host else url,
        "path": session_path(request.prefix, str(entry.key)),
        "server": served.server if served else None,
        "port": served.port if served else None,
        "local_port": tunnel["local_port"] if tunnel else None,
        "way": tunnel["way"] if tunnel else None,
        "ready_time": served.since if served else None,
        "ends": _end(entry) if served else None,
        "steps": _steps(entry, served),
        "idle": request.idle,
        "command": request.command,
        "app": request.app,
        "ssh_host": request.ssh_host,
        "resume": record.resume,
        "dir": request.dir,
        "on": request.on,
    }


def _end(entry: TrackedJob) -> float | None:
    """Return the time at which the time limit of a session ends this run, once near."""
    limit = (entry.latest.time_limit if entry.latest else None) or (entry.record.time_limit if entry.record else None)
    if not limit or not entry.start_time:
        return None
    end = entry.start_time + float(limit)
    return end if is_near_limit(end - time.time() - entry.slurm.clock_offset, limit) else None


def _steps(entry: TrackedJob, served: SessionServer | None) -> list[api.SessionStep]:
    """Return the steps of a session in this run of its job, with times by the clocks of agent, Slurm and node."""
    record = entry.record
    ready = served.since if served else record.granted.ready if record and record.granted else None
    begun = entry.start_time
    if not served and ready and (entry.state.is_pending or (begun and ready < begun)):
        ready = None  # of an earlier run
    if served and begun:
        begun = min(begun, served.since)  # the sign is read a moment after the start
    # Slurm shows equal times for a withdrawn job
    has_begun = not (entry.is_finished and entry.start_time == entry.end_time)
    times = {
        "submitted": record.created + entry.slurm.clock_offset if record else None,
        "pending": entry.slurm.submitted,
        "starting": begun if has_begun else None,
        "ready": ready,
        "ended": entry.end_time if entry.is_finished else None,
    }
    return [{"state": state, "time": at} for state, at in times.items() if at is not None]


def _state(entry: TrackedJob, served: SessionServer | None, tunnel: api.Tunnel | None) -> tuple[str, str]:
    if entry.is_finished:
        return "ended", ""
    if entry.id is None and not entry.is_step:
        return "submitted", ""
    if not entry.state.is_running:
        again = "it will continue under the same address, without its kernels" if entry.restarts else ""
        return ("pending", again) if entry.state.is_pending else ("ending", "")
    if served is None:
        return "starting", entry.session.stage
    if tunnel and tunnel["state"] == "closed":
        return "unreachable", "its tunnel was closed"
    if why := served.lost():
        return "reconnecting", why
    if tunnel:
        return ("ready", "") if tunnel["state"] == "open" else ("reconnecting", tunnel["message"])
    return ("unreachable", served.error.message) if served.error else ("starting", "")
