"""Tunnels as objects of the user: the local address of a remote port, and its close."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Tunnel", "open_host_tunnel", "open_tunnel", "sentence", "tunnel", "tunnels"]


class Tunnel:
    """A local port (or Unix socket) that leads to a remote port. The agent keeps it, also after the end of this kernel.

    Returned by :meth:`Job.tunnel` and :func:`jupyter_slurm.tunnel`.
    As a context manager, the tunnel is closed at the end of the block.
    """

    def __init__(self, cluster: Cluster, data: api.Tunnel) -> None:
        self._cluster = cluster
        self.data: api.Tunnel = {**data}

    @property
    def port(self) -> int | None:
        """Return the port on 127.0.0.1; None for a Unix socket."""
        value: int | None = self.data["local_port"]
        return value

    @property
    def socket(self) -> str | None:
        """Return the path of the Unix socket; None for a port."""
        value: str | None = self.data["socket"]
        return value

    @property
    def url(self) -> str | None:
        """Return ``http://127.0.0.1:PORT/``; None for a Unix socket."""
        value: str | None = self.data["url"]
        return value

    def refresh(self) -> Tunnel:
        """Request the state of the tunnel from the agent. A tunnel that no longer exists counts as closed."""
        told = self._cluster.client.get(self._cluster.path("tunnels"))
        now = next((one for one in told if one["id"] == self.data["id"]), None)
        self.data = {**self.data, "state": "closed"} if now is None else now
        return self

    def close(self) -> None:
        """Close the tunnel."""
        self.data = self._cluster.client.post(self._cluster.path("tunnels", self.data["id"], "close"))

    def __enter__(self) -> Tunnel:
        """Return the tunnel, to be closed at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the tunnel."""
        self.close()

    def __repr__(self) -> str:
        return sentence(self.data)

    def _repr_html_(self) -> str:
        text, url = escape(sentence(self.data)), self.url
        link = f'<a href="{escape(url)}" target="_blank" rel="noopener noreferrer">{escape(url)}</a>' if url else ""
        return text.replace(escape(url), link, 1) if url else text


def sentence(data: api.Tunnel) -> str:
    """Describe a tunnel in one line."""
    here = data["url"] or data["socket"]
    job, host = data["job"], data["node"]
    where = f"port {data['port']} of " + (f"job {job}" if job else host or "the login node")
    node = f" on {host}" if job and host else ""
    way = {"ssh": "by ssh to the node", "nested": "by ssh from the login node", "step": "by a step of the job"}
    way["direct"] = "from the login node"
    by = f", {way[data['way']]}" if data["way"] in way else ""
    if by and data["way"] != "ssh" and "ssh" in data["failed"]:
        by += f" (ssh to the node does not work: {data['failed']['ssh']})"
    is_known = data["proven"] or data["state"] != "open" or not data["way"]  # without a route nothing was tried yet
    doubt = "" if is_known else ", the owner of the port cannot be verified"
    state = "" if data["state"] == "open" else f" ({data['state']}{': ' + data['message'] if data['message'] else ''})"
    return f"{here} leads to {where}{node}{by}{doubt}{state}"


def open_tunnel(
    cluster: Cluster,
    job: str | None,
    port: int,
    *,
    local_port: int | None = None,
    node: str | None = None,
    socket: bool = False,
) -> Tunnel:
    """Forward a port of a running job to this machine; ``job=None``: of a jump host, by default the login node.

    Raises
    ------
    UsageError
        The port is not valid.
    """
    for number in (port, local_port):
        if number is not None and not (isinstance(number, int) and 0 < number < 65536):
            raise UsageError(f"{number!r} is not a port number.", hint="Use a number from 1 to 65535.")
    wanted = {"job": job, "port": port, "local_port": local_port, "node": node, "socket": socket}
    made = answering(
        cluster.client,
        cluster.name,
        lambda: cluster.client.post(cluster.path("tunnels"), json=wanted, timeout=None),
    )
    return Tunnel(cluster, made)


def open_host_tunnel(
    cluster: Cluster, host: str, port: int, *, local_port: int | None = None, socket: bool = False
) -> Tunnel | None:
    """Forward a port of a jump host or the login node (also called ``login``); None if the host is neither."""
    told: Sequence[api.Cluster] = cluster.client.get("/v1/clusters")
    connection = next((one.get("connection") for one in told if one["id"] == cluster.name), None)
    *before, last = (connection["hosts"] if connection else ()) or ["login"]
    if host not in ("login", last, *before):
        return None
    node = host if host in before else None
    return open_tunnel(cluster, None, port, local_port=local_port, node=node, socket=socket)


def tunnel(port: int, host: str = "login", *, local_port: int | None = None, socket: bool = False) -> Tunnel:
    """Forward a port of the login node, or of a jump host of this cluster, to this machine.

    Parameters
    ----------
    port : int
        Port of your program on that host, best on the loopback.
    host : str
        Name of the host in the profile or ``~/.ssh/config``: the gateway, for example.
    local_port : int, optional
        Port on this machine; by default the first free port of the profile.
    socket : bool
        Listen on a Unix socket instead of a port.

    Raises
    ------
    UsageError
        The host is not a jump host of the cluster.
    TunnelError
        No program, or a program of another user, listens on the port.
    """
    made = open_host_tunnel(cluster := current(), host, port, local_port=local_port, socket=socket)
    if made is None:
        raise UsageError(
            f"{host} is not a jump host or login node of {cluster.name}.",
            hint="Run `jupyter slurm doctor` to list the hosts.",
        )
    return made


def tunnels(cluster: Cluster) -> list[Tunnel]:
    """Return the tunnels of a cluster."""
    return [Tunnel(cluster, data) for data in cluster.client.get(cluster.path("tunnels"))]
