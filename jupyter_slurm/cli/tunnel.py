"""Command ``jupyter slurm tunnel``: forwarded ports of running jobs and of jump hosts."""

from __future__ import annotations

import argparse
from typing import Any

from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser(
        "tunnel",
        help="bring a port of a running job, or of a host on the way, here",
        description="Open a port of 127.0.0.1, for you only, that leads to a port on which a running job of yours "
        "listens, or a program of yours on the login node or a gateway before it. It is kept by the agent until the "
        "job ends, also over broken connections. If somebody else has the local port after a restart, the list says "
        "so; the same command again opens another one.",
    )
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="Slurm id (12, 12_3), key of a submission, `login`, or the name of a host on the way",
    )
    parser.add_argument("port", nargs="?", type=int, metavar="PORT", help="on which it listens there")
    parser.add_argument("--local", type=int, metavar="PORT", help="local port; by default one of the profile's")
    parser.add_argument("--socket", action="store_true", help="a Unix socket instead of a port")
    parser.add_argument("--node", metavar="NODE", help="which of the job's nodes; by default the first")
    parser.add_argument("--cluster", metavar="CLUSTER", help="name of a site profile, or local")
    parser.add_argument("--list", action="store_true", help="list the tunnels that are open")
    parser.add_argument("--close", metavar="PORT", help="close the tunnel of a local port (or socket)")


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.clusters.cluster import current, every, use
    from jupyter_slurm.client.clusters.tunnel import open_host_tunnel, open_tunnel, tunnels
    from jupyter_slurm.client.render.terminal import printable

    if args.list == bool(args.close) and (args.job is None or args.port is None or args.list):
        raise UsageError(
            "Name a job and a port, or --list, or --close PORT.", hint="`jupyter slurm tunnel 12 8888`, for example."
        )
    if args.list or args.close:
        opened = [one for each in every() if args.cluster in (None, each.name) for one in tunnels(each)]
        if args.list:
            print("\n".join(printable(repr(one)) for one in opened) or "No tunnels.")
            return 0
        for one in opened:
            if args.close in (str(one.port), one.socket):
                one.close()
                print(f"Closed: {args.close}")
                return 0
        raise UsageError(f"There is no tunnel on {args.close}.", hint="`jupyter slurm tunnel --list` shows them.")
    cluster = use(args.cluster) if args.cluster else current()
    made = open_host_tunnel(cluster, args.job, args.port, local_port=args.local, socket=args.socket)
    if made is None:
        made = open_tunnel(cluster, args.job, args.port, local_port=args.local, node=args.node, socket=args.socket)
    print(printable(repr(made)))
    return 0
