"""Command ``jupyter slurm ssh-config``: the node of a running job, for ssh, rsync and VS Code."""

from __future__ import annotations

import argparse
import asyncio
import base64
import os
import secrets
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.cli.arguments.cluster import add_cluster_option, requested_cluster
from jupyter_slurm.cli.editors.ssh_files import change_entries, include, report
from jupyter_slurm.cli.terminal import add_command
from jupyter_slurm.errors import JobError, JobNotFound, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.tunnels.ssh_config import SshConfigEntry, SshConfigFiles
    from jupyter_slurm.sites.profile import Profile

__all__ = ["add_parser", "run"]

_MAX_NODES = 64  # of one job; more logins are not useful
_QUEUE_TIMEOUT_S = 30.0  # seconds until a running job appears in the queue with its nodes
_NO_SSH = "If nodes do not accept ssh, forward a port of the job with `jupyter slurm tunnel`."


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = add_command(
        subparsers,
        "ssh-config",
        description="Print an entry for ~/.ssh/config that connects to the node of a running job, by the route of the "
        "cluster's profile: for ssh, rsync and Remote-SSH of VS Code. With --write, the entry goes into a separate "
        f"file. Entries of finished jobs are removed from it at each call. {_NO_SSH}",
        page="how-to/tunnels-and-ssh",
    )
    parser.add_argument("job", nargs="?", metavar="JOB", help="job ID (12, 12_3) or key of a submission")
    parser.add_argument("--node", metavar="NODE", help="connect to this node, without a job")
    parser.add_argument("--write", action="store_true", help="write to ~/.ssh/jupyter_slurm.conf instead of printing")
    parser.add_argument("--yes", action="store_true", help="include that file in ~/.ssh/config without a question")
    add_cluster_option(parser)


def run(args: argparse.Namespace) -> int:
    """Run the subcommand."""
    if bool(args.job) == bool(args.node) and not (args.write and not args.job):
        raise UsageError("Name a job, or a node with --node.", hint="`jupyter slurm jobs` lists your jobs.")
    from jupyter_slurm.client.clusters.other_clusters import naming_others

    cluster = requested_cluster(args)
    with naming_others(cluster, args.job or ""):
        entries = _entries(cluster, args.job, args.node) if args.job or args.node else []
    if not args.write:
        for entry in entries:
            print(entry.text)
        report(f"Add --write to write the entry where ssh finds it. {_NO_SSH}")
        return 0
    gone = _update(cluster, entries)
    for entry in entries:
        print(entry.text.split("\n", 1)[0].removeprefix("Host ").replace(" ", ", "))
    if gone:
        report(f"Removed: {', '.join(gone)}")
    elif not entries:
        report("No entries were added or removed. Name a job, or a node with --node, to add one.")
    if entries:
        name = entries[0].text.split()[1]
        include(name, sure=args.yes)
        report(f"Use it as `ssh {name}`, `rsync -a {name}:FILE .`, or in Remote-SSH of VS Code. {_NO_SSH}")
    return 0


# Queries to the cluster -----------------------------------------------------------------------------------------------


def _entries(cluster: Cluster, job: str | None, node: str | None) -> list[SshConfigEntry]:
    from jupyter_slurm.agent.hosting.discovery import place_to_start
    from jupyter_slurm.client.settings import settings
    from jupyter_slurm.services.connections.transports import control_socket, route_hosts
    from jupyter_slurm.services.tunnels.ssh_config import entry_for

    profile = _profile(cluster)
    places = _job_files(cluster, job) if job else _nodes(cluster, str(node), None)
    if profile is None:
        return [entry_for(cluster.name, place, None, None) for place in places]
    way = asyncio.run(route_hosts(profile))
    control = control_socket(profile, way, os.path.join(place_to_start(settings()).folder, "ssh"))
    return [entry_for(cluster.name, place, profile, way[-1], control) for place in places]


def _profile(cluster: Cluster) -> Profile | None:
    from jupyter_slurm.client.settings import settings
    from jupyter_slurm.sites.profile import load_profile

    return load_profile(cluster.name, settings().sites) if cluster.is_remote else None


def _job_files(cluster: Cluster, reference: str) -> list[SshConfigFiles]:
    deadline = time.monotonic() + _QUEUE_TIMEOUT_S
    found = cluster.client.get(cluster.path("jobs", reference))
    while found["state"] == "RUNNING" and not found["nodes"] and time.monotonic() < deadline:
        time.sleep(1)  # the job runs, but the queue was not queried since its start
        found = cluster.client.get(cluster.path("jobs", reference))
    number = found["id"] or reference
    if not _is_running(found):
        state = found["state"] + ("" if found["known"] else "?")
        hint = "`jupyter slurm jobs` lists active jobs." if found["finished"] else "Run the command again when it runs."
        if found["state"] == "RUNNING":
            hint = "Slurm has not reported its node yet. Run the command again in a minute."
        raise JobError(f"Job {number} is not on a node: {state}. {found.get('reason_text') or ''}".strip(), hint=hint)
    return _nodes(cluster, found["nodes"], found)


def _is_running(job: api.Job) -> bool:
    return bool(job["nodes"]) and not job["finished"] and job["state"] != "PENDING"


def _nodes(cluster: Cluster, names: str, job: api.Job | None) -> list[SshConfigFiles]:
    """Query Slurm for the addresses of nodes."""
    from jupyter_slurm.client.clusters.cluster import context
    from jupyter_slurm.client.clusters.cluster_names import shown_name
    from jupyter_slurm.domain.queries.cluster import expand_hosts, nodes_argv, parse_nodes
    from jupyter_slurm.services.tunnels.ssh_config import SshConfigFiles

    wanted, mark = expand_hosts(names)[:_MAX_NODES], secrets.token_hex(8)
    argv = [*nodes_argv(mark), f"--nodes={','.join(wanted)}"]
    asked = {"argv": argv, "table": False, "context": context(cluster)}
    answer = cluster.client.post(cluster.path("commands"), json=asked, idempotent=True)
    known = {node.name: node for node in parse_nodes(base64.b64decode(answer["stdout"]), mark)}
    missing = [name for name in wanted if name not in known]
    if missing:
        raise UsageError(f"{shown_name(cluster)} has no node {missing[0]}.", hint="Run `sinfo -N` on the login node.")
    number, submitted = (str(job.get("id") or ""), int(job.get("submit_time") or 0)) if job else ("", 0)
    return [
        SshConfigFiles(name, known[name].address or known[name].hostname or name, number, submitted, name == wanted[0])
        for name in wanted
    ]


def _is_over(cluster: Cluster, entry: SshConfigEntry) -> bool:
    """Return whether the job of an entry has left that node, as far as known."""
    if entry.cluster != cluster.name or not entry.job:
        return False
    from jupyter_slurm.domain.queries.cluster import expand_hosts

    try:
        job = cluster.client.get(cluster.path("jobs", entry.job))
    except JobNotFound:
        return True
    except SlurmError:  # a silent controller gives no information about a job
        return False
    if job["finished"] or int(job.get("submit_time") or 0) != entry.submitted:
        return True
    return _is_running(job) and entry.node not in expand_hosts(job["nodes"])


def _update(cluster: Cluster, new: Sequence[SshConfigEntry]) -> list[str]:
    """Put entries into jupyter_slurm's file, replace older ones, and remove expired ones; return their names."""
    mine = {(entry.cluster, entry.job, entry.node) for entry in new}
    over: list[SshConfigEntry] = []

    def change(known: list[SshConfigEntry]) -> list[SshConfigEntry]:
        others = [entry for entry in known if (entry.cluster, entry.job, entry.node) not in mine]
        over.extend(entry for entry in others if _is_over(cluster, entry))
        return [*new, *(entry for entry in others if entry not in over)]

    change_entries(change)
    return [entry.text.split()[1] for entry in over]
