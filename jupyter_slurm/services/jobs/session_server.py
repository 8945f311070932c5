"""Files of the runner of a session (``runner/session/serve.py``), and the session's form in the API (``Session``)."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from jupyter_slurm.errors import JobError, SlurmError, TransportError, TunnelError, UntrustedFile
from jupyter_slurm.services.jobdir.job_json_model import GrantRecord
from jupyter_slurm.services.jobdir.job_written_files import read_time, read_untrusted
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport

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
    "read_host_key",
    "read_served",
    "read_token",
    "session_path",
]

_MAX_NOTE_BYTES = 65_536
_MAX_WARNINGS = 10
_HOST_KEY = re.compile(r"ssh-ed25519 [A-Za-z0-9+/=]{40,200}")
_NO_LISTENER_HINT = (
    "Launch the session on another node, or change the range `node_ports` in the profile or in c.JupyterSlurm."
)


class TunnelLike(Protocol):
    """State of a tunnel to a session: :class:`jupyter_slurm.services.tunnels.tunnel.Tunnel`."""

    @property
    def is_broken(self) -> bool: ...  # noqa: D102
    def as_dict(self) -> api.Tunnel: ...  # noqa: D102


@dataclass
class SessionServer:
    """Jupyter or another server that answers on a node.

    Attributes
    ----------
    server : str
        Name and version.
    port : int
        Port on the node.
    since : float
        Seconds since the epoch, by the node's clock.
    granted : GrantRecord
        ``nodes`` and ``gpus`` of its job, the time at which it was ``ready``, and its ``port``.
    restarts : int
        Number of earlier requeues of the job.
    tunnel : TunnelLike or None
        Tunnel to the server.
    error : SlurmError or None
        Reason if there is no tunnel.
    lost : callable
        Returns why the connection fails now; empty: it works.
    token : str or None
        Token of the server, once read.
    warnings : list of str
        Problems of the server.
    is_stale : bool
        Whether the runner has new warnings.
    has_own_host : bool
        Whether the server accepts requests for ``KEY.localhost``.
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
    has_own_host: bool = False


def session_path(prefix: str | None, key: str) -> str:
    """Return the permanent path under which the launching Jupyter server shows a session."""
    return f"{prefix or '/'}jupyter-slurm/{key}/"


class SessionStart(NamedTuple):
    """Session that does not serve yet: its progress, nodes, and number of earlier requeues."""

    stage: str = ""
    nodes: str = ""
    restarts: int = 0


async def read_served(transport: Transport, folder: JobFolder) -> SessionServer | SessionStart:
    """Read the address of a session's server; before it listens, the progress if known."""
    try:
        told = _checked(await read_untrusted(transport, folder.file("served.json"), _MAX_NOTE_BYTES))
        if "stage" in told:
            nodes, restarts = printable(str(told.get("nodes") or "")), int(told.get("restarts") or 0)
            return SessionStart(printable(str(told["stage"])[:200]), nodes, restarts)
        port = int(told["port"])
        since, nodes = read_time(told["time"]), printable(str(told["nodes"]))
        granted = GrantRecord(nodes=nodes, gpus=int(told["gpus"]), ready=since, port=port)
        server = printable(f"{told['server']} {told['version']}".strip()[:100])
        found = SessionServer(server, port, since, granted, int(told["restarts"]))
        found.has_own_host = bool(told.get("host"))
        found.warnings = [printable(str(text)[:500]) for text in list(told.get("warnings") or ())[:_MAX_WARNINGS]]
    except (FileNotFoundError, TransportError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return SessionStart()
    return found if 0 < port < 65_536 else SessionStart()


def _checked(told: Any) -> Mapping[str, Any]:
    """Return the content of served.json, in which a number is a number: some are saved in the record of the job."""
    if not isinstance(told, dict):
        raise TypeError("served.json is not an object")
    numbers = [told[name] for name in ("port", "gpus", "restarts") if told.get(name) is not None]
    if not all(isinstance(number, int | float) for number in numbers):
        raise TypeError("a number in served.json is not a number")
    return told


async def read_token(transport: Transport, folder: JobFolder) -> str:
    """Read the token of a Jupyter.

    Raises
    ------
    JobError
        The token is missing, or other users could have written it.
    """
    try:
        token = await _read_serving_file(transport, folder, "token")
    except (FileNotFoundError, UnicodeDecodeError) as error:
        raise JobError(
            "The session has no token.",
            hint="Check with `jupyter slurm sessions` whether the session is still running.",
        ) from error
    if not token.isalnum():
        raise JobError("The token of the session is not valid.", hint="Launch a new session.")
    return token


async def read_host_key(transport: Transport, folder: JobFolder) -> str:
    """Read the public key of the host of a session's sshd.

    Raises
    ------
    JobError
        The key is missing, or other users could have written it.
    """
    try:
        key = await _read_serving_file(transport, folder, "host_key.pub")
    except (FileNotFoundError, UnicodeDecodeError):
        key = ""
    if not (found := _HOST_KEY.fullmatch(key.strip())):
        raise JobError("The session has no valid host key.", hint="Stop the session, and connect again.")
    return found[0]


class SessionListener(NamedTuple):
    """TLS entrance of a session (``runner/session/tls_door.py``): its port on the node, and the keys of both sides."""

    port: int
    pem: bytes


async def read_door(transport: Transport, folder: JobFolder, port: int) -> SessionListener | None:
    """Return the TLS entrance to a port of a session's node; None: there is none.

    Raises
    ------
    TunnelError
        The entrance is missing or not trusted; the message gives the reason.
    """
    try:
        told = await read_untrusted(transport, folder.file("served.json"), _MAX_NOTE_BYTES)
        if told.get("port") != port or not told.get("door"):
            return None
        if "port" not in told["door"]:
            raise TunnelError(printable(str(told["door"]["error"])[:300]), hint=_NO_LISTENER_HINT)
        from jupyter_slurm.transport.tunnel.accepted_peer import NAME

        pem = await transport.read_owned(folder.file(NAME), 0, _MAX_NOTE_BYTES)
        return SessionListener(int(told["door"]["port"]), pem)
    except UntrustedFile as error:
        raise TunnelError(
            f"The session is not opened: {error.details['reason']}.",
            hint=f"Run `chmod 700 {folder.path}`, or launch a new session.",
        ) from None
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def end_error(marker: Any) -> SlurmError | None:
    """Return the error in the end marker of a failed session; None: missing or unknown."""
    try:
        told = marker["session"]
        lacks = {"lacks": "jupyter"} if told.get("lacks") == "jupyter" else {}
        return JobError(str(told["why"])[:1000], hint=str(told.get("hint") or "")[:1000], **lacks)
    except (KeyError, TypeError, AttributeError):
        return None


async def _read_serving_file(transport: Transport, folder: JobFolder, name: str) -> str:
    """Read a file by which the server of a session is trusted.

    Raises
    ------
    JobError
        Other users could have written the file.
    FileNotFoundError, UnicodeDecodeError
        The file is missing, or is not ASCII.
    """
    try:
        return (await transport.read_owned(folder.file(f"serving/{name}"), 0, _MAX_NOTE_BYTES)).decode("ascii")
    except UntrustedFile as error:
        raise JobError(
            f"The session is not opened: {error.details['reason']}.",
            hint=f"Run `chmod 700 {folder.path}`, or launch a new session.",
        ) from None
