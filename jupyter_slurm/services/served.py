"""What the runner of a session leaves (``runner/serve.py``), and how a session is told: the ``Session`` of the API."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import JobError, SlurmError, TransportError
from jupyter_slurm.services.ownership import doubt
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.services.entry import Entry
    from jupyter_slurm.services.jobdir import JobFolder
    from jupyter_slurm.services.tunnel import Tunnel

__all__ = ["Served", "end_error", "read_served", "read_token", "session_dict"]

_MOST = 65_536


@dataclass
class Served:
    """A Jupyter that answers on a node.

    Attributes
    ----------
    server : str
        What it is, with its version.
    port : int
        Where it listens, on the node.
    since : float
        Seconds since the epoch, by the node's clock.
    granted : dict
        ``nodes`` and ``gpus`` of its job.
    tunnel : Tunnel or None
        What leads there.
    error : SlurmError or None
        Why nothing does.
    lost : str
        Why nothing comes through now.
    """

    server: str
    port: int
    since: float
    granted: dict[str, Any]
    tunnel: Tunnel | None = None
    error: SlurmError | None = None
    lost: str = ""


async def read_served(transport: Transport, folder: JobFolder) -> Served | None:
    """Read where the Jupyter of a session listens; None: it does not yet."""
    try:
        told = json.loads(await transport.read(folder.file("served.json"), 0, _MOST))
        port = int(told["port"])
        granted = {"nodes": str(told["nodes"]), "gpus": int(told["gpus"])}
        found = Served(f"{told['server']} {told['version']}"[:100], port, float(told["time"]), granted)
    except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return found if 0 < port < 65_536 else None


async def read_token(transport: Transport, folder: JobFolder) -> str:
    """Read what a Jupyter knows its person by.

    Raises
    ------
    JobError
        It is not there, or others could have put it there.
    """
    if why := await doubt(transport, folder.path):
        raise JobError(f"the session is not opened: {why}", hint=f"chmod 700 {folder.path}, or launch another one.")
    try:
        token = (await transport.read(folder.file("serving/token"), 0, _MOST)).decode("ascii")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise JobError("the session has no token", hint="Is it about to end? `jupyter slurm sessions`.") from error
    if not token.isalnum():
        raise JobError("the session has no token", hint="Launch another one.")
    return token


def end_error(marker: Any) -> SlurmError | None:
    """Return what an end marker says of a session that has failed; None: nothing, or nothing that we know."""
    try:
        told = marker["session"]
        return JobError(str(told["why"])[:1000], hint=str(told.get("hint") or "")[:1000])
    except (KeyError, TypeError, AttributeError):
        return None


def session_dict(entry: Entry) -> dict[str, Any] | None:
    """Return what is told of a session beside what every job has; None for what is none."""
    asked = (entry.record or {}).get("session")
    if asked is None:
        return None
    served = None if entry.is_finished or not entry.state.is_running else entry.served
    tunnel = served.tunnel.as_dict() if served and served.tunnel else {}
    state, message = _state(entry, served, tunnel)
    url = tunnel.get("url")
    return {
        "state": state,
        "message": message,
        "url": url.rstrip("/") + asked["base_url"] if url else None,
        "server": served.server if served else None,
        "port": served.port if served else None,
        "local_port": tunnel.get("local_port"),
        "way": tunnel.get("way"),
        "ready_time": served.since if served else None,
        "idle": asked["idle"],
        "dir": asked.get("dir"),
    }


def _state(entry: Entry, served: Served | None, tunnel: dict[str, Any]) -> tuple[str, str]:
    if entry.is_finished:
        return "ended", ""
    if entry.id is None:
        return "submitted", ""
    if not entry.state.is_running:
        return ("pending" if entry.state.is_pending else "ending"), ""
    if served is None:
        return "starting", ""
    if tunnel.get("state") == "closed":
        return "unreachable", "its tunnel was closed"
    if served.lost:
        return "reconnecting", served.lost
    if tunnel:
        return ("ready", "") if tunnel["state"] == "open" else ("reconnecting", str(tunnel["message"]))
    return ("unreachable", served.error.message) if served.error else ("starting", "")
