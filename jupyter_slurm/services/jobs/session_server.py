"""What the runner of a session leaves (``runner/session/serve.py``), and how a session is told: the ``Session`` of
the API.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jupyter_slurm.errors import JobError, SlurmError, TransportError, TunnelError
from jupyter_slurm.services.jobdir.job_json import GrantRecord
from jupyter_slurm.services.jobdir.ownership import ownership_error
from jupyter_slurm.services.jobdir.untrusted import read_untrusted
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.tunnel.accepted_peer import NAME

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.jobdir.job_directory import JobFolder

__all__ = [
    "SessionListener",
    "SessionServer",
    "SessionStart",
    "TunnelLike",
    "end_error",
    "read_door",
    "read_served",
    "read_token",
    "session_path",
]

_MAX_NOTE_BYTES = 65_536
_MAX_WARNINGS = 10
_NO_LISTENER_HINT = "Another node may have a free port; the range is `node_ports` of its profile, or of c.Settings."


class TunnelLike(Protocol):
    """A tunnel to a session, as far as its state is told: :class:`jupyter_slurm.services.tunnels.tunnel.Tunnel`."""

    @property
    def is_broken(self) -> bool: ...  # noqa: D102
    def as_dict(self) -> api.Tunnel: ...  # noqa: D102


@dataclass
class SessionServer:
    """A Jupyter, or another server, that answers on a node.

    Attributes
    ----------
    server : str
        What it is, with its version.
    port : int
        Where it listens, on the node.
    since : float
        Seconds since the epoch, by the node's clock.
    granted : GrantRecord
        ``nodes`` and ``gpus`` of its job, when it was ``ready``, and on which ``port``.
    restarts : int
        How often its job had been requeued before.
    tunnel : TunnelLike or None
        What leads there.
    error : SlurmError or None
        Why nothing does.
    lost : callable
        Returns why nothing comes through now; empty: it does.
    token : str or None
        What it knows its person by, once that was asked for.
    warnings : list of str
        What is wrong with it.
    is_stale : bool
        Its runner has something new to tell of that.
    """

    server: str
    port: int
    since: float
    granted: GrantRecord
    restarts: int = 0
    tunnel: TunnelLike | None = None
    error: SlurmError | None = None
    lost: Callable[[], str] = str
    token: str | None = None
    warnings: list[str] = field(default_factory=list)
    is_stale: bool = False


def session_path(prefix: str | None, key: str) -> str:
    """Return the path of a session for life, which the Jupyter server shows it under that it was launched through."""
    return f"{prefix or '/'}jupyter-slurm/{key}/"


class SessionStart(NamedTuple):
    """A session that does not serve yet: how far it is, on which nodes, and how often its job had been requeued."""

    stage: str = ""
    nodes: str = ""
    restarts: int = 0


async def read_served(transport: Transport, folder: JobFolder) -> SessionServer | SessionStart:
    """Read where the server of a session listens; while it does not yet, how far it is, as far as that is known."""
    try:
        told = await read_untrusted(transport, folder.file("served.json"), _MAX_NOTE_BYTES)
        if "stage" in told:
            nodes, restarts = printable(str(told.get("nodes") or "")), int(told.get("restarts") or 0)
            return SessionStart(printable(str(told["stage"])[:200]), nodes, restarts)
        port = int(told["port"])
        granted = GrantRecord(nodes=str(told["nodes"]), gpus=int(told["gpus"]), ready=float(told["time"]), port=port)
        server = f"{told['server']} {told['version']}".strip()[:100]
        found = SessionServer(server, port, float(told["time"]), granted, int(told["restarts"]))
        found.warnings = [printable(str(text)[:500]) for text in list(told.get("warnings") or ())[:_MAX_WARNINGS]]
    except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError, RecursionError):
        return SessionStart()
    return found if 0 < port < 65_536 else SessionStart()


async def read_token(transport: Transport, folder: JobFolder) -> str:
    """Read what a Jupyter knows its person by.

    Raises
    ------
    JobError
        It is not there, or others could have put it there.
    """
    if why := await ownership_error(transport, folder.path):
        raise JobError(f"the session is not opened: {why}", hint=f"chmod 700 {folder.path}, or launch another one.")
    try:
        token = (await transport.read(folder.file("serving/token"), 0, _MAX_NOTE_BYTES)).decode("ascii")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise JobError("the session has no token", hint="Is it about to end? `jupyter slurm sessions`.") from error
    if not token.isalnum():
        raise JobError("the session has no token", hint="Launch another one.")
    return token


class SessionListener(NamedTuple):
    """Another way in to a session (``runner/session/tls_door.py``): its port on the node, and what both sides have
    of it.
    """

    port: int
    pem: bytes


async def read_door(transport: Transport, folder: JobFolder, port: int) -> SessionListener | None:
    """Read which door leads to a port of a session's node; None: none does.

    Raises
    ------
    TunnelError
        There should be one; says why there is none, or why it is not believed.
    """
    try:
        told = await read_untrusted(transport, folder.file("served.json"), _MAX_NOTE_BYTES)
        if told.get("port") != port or not told.get("door"):
            return None
        if why := await ownership_error(transport, folder.path):
            raise TunnelError(why, hint=f"chmod 700 {folder.path}, or launch another session.")
        if "port" not in told["door"]:
            raise TunnelError(printable(str(told["door"]["error"])[:300]), hint=_NO_LISTENER_HINT)
        return SessionListener(int(told["door"]["port"]), await transport.read(folder.file(NAME), 0, _MAX_NOTE_BYTES))
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def end_error(marker: Any) -> SlurmError | None:
    """Return what an end marker says of a session that has failed; None: nothing, or nothing that we know."""
    try:
        told = marker["session"]
        lacks = {"lacks": "jupyter"} if told.get("lacks") == "jupyter" else {}
        return JobError(str(told["why"])[:1000], hint=str(told.get("hint") or "")[:1000], **lacks)
    except (KeyError, TypeError, AttributeError):
        return None
