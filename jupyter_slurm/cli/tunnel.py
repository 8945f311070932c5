"""Command ``jupyter slurm tunnel``: forwarded ports of running jobs and of jump hosts."""

from __future__ import annotations

import argparse
from typing import Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import UsageError

__all__ = ["add_parser", "run"]


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "tunnel",
        description="Forward a local port to a port of a running job, or of a program of yours on the login node or a "
        "jump host. Only your own processes can connect to the local port. The agent keeps the tunnel until the job "
        "ends, also when the connection breaks. If another program has taken the local port meanwhile, the list shows "
        "it. Run the command again to open another port.",
        page="how-to/tunnels-and-ssh",
    )
    parser.add_argument(
        "job",
        nargs="?",
        metavar="JOB",
        help="job ID (12, 12_3), key of a submission, `login`, or the name of a jump host",
    )
    parser.add_argument("port", nargs="?", type=int, metavar="PORT", help="port on the node of the job, or on the host")
    parser.add_argument("--local", type=int, metavar="PORT", help="local port (default: a free one)")
    parser.add_argument("--socket", action="store_true", help="open a Unix socket instead of a local port")
    parser.add_argument("--node", metavar="NODE", help="node of the job (default: the first)")
    parser.add_argument("--list", action="store_true", help="list the open tunnels")
    parser.add_argument("--close", metavar="PORT", help="close the tunnel of a local port or socket")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    from jupyter_slurm.client.clusters.cluster import every, is_local_id, local
    from jupyter_slurm.client.clusters.other_clusters import naming_others
    from jupyter_slurm.client.clusters.tunnel import open_host_tunnel, open_tunnel, tunnels
    from jupyter_slurm.client.render.terminal import printable

    if args.list == bool(args.close) and (args.job is None or args.port is None or args.list):
        raise UsageError(
            "Name a job and a port, or give --list or --close PORT.",
            hint="Example: `jupyter slurm tunnel 12 8888`.",
        )
    if args.list or args.close:
        name = local(args.cluster).name if args.cluster and is_local_id(args.cluster) else args.cluster
        opened = [one for each in every() if name in (None, each.name) for one in tunnels(each)]
        if args.list:
            print("\n".join(printable(repr(one)) for one in opened) or "No tunnels.")
            return 0
        for one in opened:
            if args.close in (str(one.port), one.socket):
                one.close()
                print(f"Closed the tunnel of {args.close}.")
                return 0
        raise UsageError(f"There is no tunnel on {args.close}.", hint="Run `jupyter slurm tunnel --list`.")
    cluster = requested_cluster(args)
    made = open_host_tunnel(cluster, args.job, args.port, local_port=args.local, socket=args.socket)
    if made is None:
        with naming_others(cluster, args.job):
            made = open_tunnel(cluster, args.job, args.port, local_port=args.local, node=args.node, socket=args.socket)
    print(printable(repr(made)))
    return 0
