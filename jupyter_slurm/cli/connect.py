"""``jupyter slurm connect|disconnect``: log-ins, asked for in the terminal, that serve every notebook."""

from __future__ import annotations

import argparse
import time
from typing import Any

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommands."""
    connect = subparsers.add_parser("connect", help="log in to a cluster; without a name: show the log-ins")
    connect.add_argument("cluster", nargs="?", metavar="CLUSTER", help="name of a site profile")
    disconnect = subparsers.add_parser("disconnect", help="end the log-in to a cluster; jobs go on")
    disconnect.add_argument("cluster", metavar="CLUSTER", help="name of a site profile")


def run(args: argparse.Namespace) -> int:
    """Run one of the subcommands."""
    from jupyter_slurm.agent.client import AgentClient

    with AgentClient.connect() as client:
        if args.cluster is None:
            return _show(client)
        return {"connect": _connect, "disconnect": _disconnect}[args.command](client, args.cluster)


def _show(client: Any) -> int:
    from jupyter_slurm.handles.terminal import printable

    remote = [cluster for cluster in client.get("/v1/clusters") if cluster.get("connection")]
    for cluster in remote:
        connection = cluster["connection"]
        since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(connection["since"]))
        way = " -> ".join(connection["hosts"])
        print(
            printable(
                f"{cluster['id']}: {connection['state']} since {since}, by {way}  {connection['message']}"
            ).rstrip()
        )
    if not remote:
        print("There is no log-in. `jupyter slurm connect CLUSTER` makes one.")
    return 0


def _connect(client: Any, name: str) -> int:
    from jupyter_slurm.handles.answering import answering
    from jupyter_slurm.handles.terminal import printable

    cluster = client.post("/v1/clusters", json={"profile": name})
    path = f"/v1/clusters/{cluster['id']}/connect"
    connected = answering(client, cluster["id"], lambda: client.post(path, timeout=None))
    way = " -> ".join(connected["connection"]["hosts"])
    print(printable(f"Connected to {name} ({way}). Notebooks use it with `%slurm use {name}`."))
    return 0


def _disconnect(client: Any, name: str) -> int:
    cluster = client.post("/v1/clusters", json={"profile": name})
    client.post(f"/v1/clusters/{cluster['id']}/disconnect")
    print(f"Disconnected from {name}. Jobs go on.")
    return 0
