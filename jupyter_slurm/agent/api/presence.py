"""Presence of clients: a process that uses a cluster counts as present as long as one of its connections exists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from jupyter_slurm.services.connections.clients import ClientRegistry, ClientUse
from jupyter_slurm.transport.peer_credentials import peer_pid

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Presence"]


class _Exchange(Protocol):
    @property
    def connection(self) -> Any: ...
    @property
    def closed(self) -> asyncio.Future[None]: ...


class Presence:
    """The connections of the clients of clusters.

    Parameters
    ----------
    users : ClientRegistry
        Registry of the clients that come and go.
    """

    def __init__(self, users: ClientRegistry) -> None:
        self._users = users
        self._clients: dict[object, ClientUse] = {}

    def register_client(self, exchange: _Exchange, client: api.Client, cluster: str) -> None:
        """Record that this request's client uses a cluster; the system gives its process ID."""
        if exchange.closed.done():
            return  # the client has gone meanwhile
        user = ClientUse(client["kind"], client["name"], peer_pid(exchange.connection.socket))
        self._clients[exchange.connection] = user
        self._users.join(user, cluster)

    def remove_connection(self, connection: object) -> None:
        """Handle the end of a connection."""
        user = self._clients.pop(connection, None)
        if user is not None and all(other.key != user.key for other in self._clients.values()):
            self._users.leave(user)
