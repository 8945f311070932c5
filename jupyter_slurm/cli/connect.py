"""Commands ``jupyter slurm connect|disconnect``: logins in the terminal that serve every notebook."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import add_cluster, first_cluster
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    connect = add_command(
        subparsers,
        "connect",
        description="Log in to a cluster. All notebooks, terminals and JupyterLab windows on this computer use the "
        "connection. Without a cluster, list the connections and the clients that use them.",
        page="how-to/log-in",
    )
    disconnect = subparsers.add_parser(
        "disconnect", description="End the connection to a cluster. Jobs continue, and their output is kept."
    )
    disconnect.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="disconnect without a question, even if other clients use the connection (for scripts)",
    )
    for parser in (connect, disconnect):
        add_cluster(parser)


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    from jupyter_slurm.agent.client.agent_client import AgentClient

    name = first_cluster(args)
    if name is None and args.command == "disconnect":
        raise UsageError("Name the cluster to disconnect from.", hint="`jupyter slurm connect` lists the connections.")
    with AgentClient.connect() as client:
        if name is None:
            return _show(client)
        if args.command == "connect":
            return _connect(client, name)
        return _disconnect(client, name, is_sure=args.yes)


def _show(client: Any) -> int:
    from jupyter_slurm.client.clusters.clients import lines
    from jupyter_slurm.client.render.terminal import printable

    remote = [cluster for cluster in client.get("/v1/clusters") if cluster.get("connection")]
    for cluster in remote:
        print(printable(f"{cluster['id']}: {_state(cluster['connection'])}").rstrip())
        sys.stdout.write(lines(cluster.get("users", [])))
    if not remote:
        print("There is no site profile. Run `jupyter slurm init` to set up a connection to a cluster.")
    return 0


def _state(connection: api.Connection) -> str:
    if not connection["hosts"]:  # the profile cannot be read
        return f"cannot be used: {connection['message']}"
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(connection["since"]))
    return f"{connection['state']} since {since}, by {' -> '.join(connection['hosts'])}  {connection['message']}"


def _connect(client: Any, name: str) -> int:
    from jupyter_slurm.client.login.call import answering
    from jupyter_slurm.client.render.terminal import printable

    cluster = client.post("/v1/clusters", json={"profile": name})
    path = f"/v1/clusters/{cluster['id']}/connect"
    connected = answering(client, cluster["id"], lambda: client.post(path, timeout=None))
    way = " -> ".join(connected["connection"]["hosts"])
    print(printable(f"Connected to {name} ({way}). Use it with `%slurm use {name}` in a notebook."))
    return 0


def _disconnect(client: Any, name: str, *, is_sure: bool) -> int:
    from jupyter_slurm.client.clusters.clients import may_end, other_clients

    cluster = client.post("/v1/clusters", json={"profile": name})
    users = other_clients(cluster)
    if users and not is_sure and not may_end(name, users):
        print(f"Kept the connection to {name}.")
        return 1
    client.post(f"/v1/clusters/{cluster['id']}/disconnect")
    print(f"Disconnected from {name}. Jobs continue.")
    return 0
