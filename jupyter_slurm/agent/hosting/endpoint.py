"""Address of a listening agent: a Unix socket, or a port of 127.0.0.1 with a secret."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from jupyter_slurm.agent.hosting.discovery import AgentLocation, is_stale, read_private, read_record
from jupyter_slurm.transport.peer_credentials import is_same_user

__all__ = ["Endpoint", "endpoint_at"]

_CONNECT_TIMEOUT_S = 2.0


@dataclass(frozen=True)
class Endpoint:
    """Address for connections. ``port`` is None for the Unix socket of the location."""

    place: AgentLocation
    port: int | None = None
    secret: str = field(default="", repr=False)

    @property
    def base_url(self) -> str:
        """Return the URL before the path; for a Unix socket its host is only a name."""
        return "http://jupyter-slurm" if self.port is None else f"http://127.0.0.1:{self.port}"

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that every request must have."""
        return {} if self.port is None else {"Authorization": f"Bearer {self.secret}"}

    def answers(self) -> bool:
        """Return whether a process of this user accepts connections at the address."""
        family = socket.AF_UNIX if self.port is None else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(_CONNECT_TIMEOUT_S)
            try:
                probe.connect(self.place.socket if self.port is None else ("127.0.0.1", self.port))
                return is_same_user(probe)
            except OSError:
                return False


def endpoint_at(place: AgentLocation) -> Endpoint | None:
    """Return the endpoint of the agent that listens at this location, or None."""
    on_socket = Endpoint(place)
    if on_socket.answers():
        return on_socket
    record = read_record(place)
    port = record and record.get("port")
    if not record or not isinstance(port, int) or is_stale(record):
        return None
    try:
        on_port = Endpoint(place, port, read_private(place.secret).decode("ascii"))
    except (OSError, ValueError):
        return None
    return on_port if on_port.answers() else None
