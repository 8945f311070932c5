"""Commands ``jupyter slurm connect|disconnect``: logins in the terminal that serve every notebook."""

from __future__ import annotations

import argparse
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    connect = subparsers.add_parser("connect", help="log in to a cluster; without a name: show the log-ins")
    connect.add_argument("cluster", nargs="?", metavar="CLUSTER", help="name of a site profile")
    disconnect = subparsers.add_parser("disconnect", help="end the log-in to a cluster; jobs go on")
    disconnect.add_argument("cluster", metavar="CLUSTER", help="name of a site profile")
    disconnect.add_argument(
        "-y",
        "--yes",
        action="store_true",
        help="also while others use it, without being asked: what a script has to say",
    )


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    from jupyter_slurm.agent.client.agent_client import AgentClient

    with AgentClient.connect() as client:
        if args.cluster is None:
            return _show(client)
        if args.command == "connect":
            return _connect(client, args.cluster)
        return _disconnect(client, args.cluster, is_sure=args.yes)


def _show(client: Any) -> int:
    from jupyter_slurm.client.clusters.clients import lines
    from jupyter_slurm.client.render.terminal import printable

    remote = [cluster for cluster in client.get("/v1/clusters") if cluster.get("connection")]
    for cluster in remote:
        print(printable(f"{cluster['id']}: {_state(cluster['connection'])}").rstrip())
        sys.stdout.write(lines(cluster.get("users", [])))
    if not remote:
        print("There is no site profile. `jupyter slurm init` writes one.")
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
    print(printable(f"Connected to {name} ({way}). Notebooks use it with `%slurm use {name}`."))
    return 0


def _disconnect(client: Any, name: str, *, is_sure: bool) -> int:
    from jupyter_slurm.client.clusters.clients import may_end, other_clients

    cluster = client.post("/v1/clusters", json={"profile": name})
    users = other_clients(cluster)
    if users and not is_sure and not may_end(name, users):
        print("Nothing was done.")
        return 1
    client.post(f"/v1/clusters/{cluster['id']}/disconnect")
    print(f"Disconnected from {name}. Jobs go on.")
    return 0
