"""A port of a job or of a host on the way, as a person has it: where it is here, and how to let it go."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Tunnel", "of_host", "open_tunnel", "sentence", "tunnel", "tunnels"]


class Tunnel:
    """A local port (or Unix socket) that leads to a port far away; kept by the agent, also when this kernel ends.

    It comes from :meth:`Job.tunnel` or :func:`jupyter_slurm.tunnel`.
    As a context manager it is closed at the end of the block.
    """

    def __init__(self, cluster: Cluster, data: api.Tunnel) -> None:
        self._cluster = cluster
        self.data: api.Tunnel = {**data}

    @property
    def port(self) -> int | None:
        """The port on 127.0.0.1; None for a Unix socket."""
        value: int | None = self.data["local_port"]
        return value

    @property
    def socket(self) -> str | None:
        """The path of the Unix socket; None for a port."""
        value: str | None = self.data["socket"]
        return value

    @property
    def url(self) -> str | None:
        """``http://127.0.0.1:PORT/``; None for a Unix socket."""
        value: str | None = self.data["url"]
        return value

    def refresh(self) -> Tunnel:
        """Ask the agent how it is; one that is not there any more is closed."""
        told = self._cluster.client.get(self._cluster.path("tunnels"))
        now = next((one for one in told if one["id"] == self.data["id"]), None)
        self.data = {**self.data, "state": "closed"} if now is None else now
        return self

    def close(self) -> None:
        """Give the port up."""
        self.data = self._cluster.client.post(self._cluster.path("tunnels", self.data["id"], "close"))

    def __enter__(self) -> Tunnel:
        """Close it at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Give the port up."""
        self.close()

    def __repr__(self) -> str:
        return sentence(self.data)

    def _repr_html_(self) -> str:
        text, url = escape(sentence(self.data)), self.url
        link = f'<a href="{escape(url)}" target="_blank" rel="noopener noreferrer">{escape(url)}</a>' if url else ""
        return text.replace(escape(url), link, 1) if url else text


def sentence(data: api.Tunnel) -> str:
    """Return a tunnel in one line."""
    here = data["url"] or data["socket"]
    job, host = data["job"], data["node"]
    where = f"port {data['port']} of " + (f"job {job}" if job else host or "the login node")
    node = f" on {host}" if job and host else ""
    way = {"ssh": "by ssh to the node", "nested": "by ssh from the login node", "step": "by a step of the job"}
    way["direct"] = "from the login node"
    by = f", {way[data['way']]}" if data["way"] in way else ""
    if by and data["way"] != "ssh" and "ssh" in data["failed"]:
        by += f" (ssh to the node does not work: {data['failed']['ssh']})"
    doubt = "" if data["proven"] or data["state"] != "open" else ", whose it is cannot be proven"
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
    """Bring a port of a running job here; ``job=None``: of a host on the way, by default the login node.

    Raises
    ------
    UsageError
        That is no port.
    """
    for number in (port, local_port):
        if number is not None and not (isinstance(number, int) and 0 < number < 65536):
            raise UsageError(f"{number!r} is no port.", hint="A port is a number from 1 to 65535.")
    wanted = {"job": job, "port": port, "local_port": local_port, "node": node, "socket": socket}
    made = answering(
        cluster.client,
        cluster.name,
        lambda: cluster.client.post(cluster.path("tunnels"), json=wanted, timeout=None),
    )
    return Tunnel(cluster, made)


def of_host(
    cluster: Cluster, host: str, port: int, *, local_port: int | None = None, socket: bool = False
) -> Tunnel | None:
    """Bring a port of a host on the way here, the login node (also called ``login``) among them; None: it is none."""
    told: Sequence[api.Cluster] = cluster.client.get("/v1/clusters")
    connection = next((one.get("connection") for one in told if one["id"] == cluster.name), None)
    *before, last = (connection["hosts"] if connection else ()) or ["login"]
    if host not in ("login", last, *before):
        return None
    node = host if host in before else None
    return open_tunnel(cluster, None, port, local_port=local_port, node=node, socket=socket)


def tunnel(port: int, host: str = "login", *, local_port: int | None = None, socket: bool = False) -> Tunnel:
    """Bring a port of the login node, or of another host on the way to this cluster, here.

    Parameters
    ----------
    port : int
        On which a program of yours listens there, best on the loopback.
    host : str
        As the profile or ``~/.ssh/config`` calls it: the gateway, for example.
    local_port : int, optional
        Here; by default the first that is free among those of the profile.
    socket : bool
        Listen on a Unix socket instead of a port.

    Raises
    ------
    UsageError
        It is no host on the way.
    TunnelError
        Nothing listens there, or somebody else does.
    """
    made = of_host(cluster := current(), host, port, local_port=local_port, socket=socket)
    if made is None:
        raise UsageError(
            f"{host} is no host on the way to {cluster.name}.", hint="`jupyter slurm doctor` shows them, one by one."
        )
    return made


def tunnels(cluster: Cluster) -> list[Tunnel]:
    """Return the tunnels of a cluster."""
    return [Tunnel(cluster, data) for data in cluster.client.get(cluster.path("tunnels"))]
