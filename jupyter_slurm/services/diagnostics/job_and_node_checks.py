"""Checks of the needs of jobs and tunnels besides a working Slurm: a folder, a route to the nodes, ports, a Python."""

from __future__ import annotations

import asyncio
import os
import pwd
import re
import secrets
from collections.abc import Sequence
from typing import Final

from jupyter_slurm.domain.findings import Finding
from jupyter_slurm.domain.storage.disk_space import DISK_SPACE_SCRIPT, parse_room
from jupyter_slurm.errors import CommandMissing, TunnelError
from jupyter_slurm.services.environments.path_visibility import file_system_type, visibility_warning
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.tunnels.login_routes import RouteTarget
from jupyter_slurm.services.tunnels.node_routes import NodeRoutes
from jupyter_slurm.sites.profile import Profile
from jupyter_slurm.transport.base import Context, Transport
from jupyter_slurm.transport.listening_ports import first_free, listeners
from jupyter_slurm.transport.ssh.prompts import Prompter

__all__ = ["job_folder", "node_access", "ports", "python"]

_MAX_PORTS: Final = 12
_MIN_SPACE: Final = 5e9  # bytes; a full home locks its user out on some sites
_PYTHON: Final = "import sys; print('%d.%d.%d' % sys.version_info[:3]); print(sys.executable)"
_OLDEST_PYTHON: Final = (3, 8)
_ROUTE_NAMES: Final = {
    "ssh": "by ssh",
    "nested": "by ssh from the login node",
    "step": "by a step of the job",
    "direct": "by connections from the login node, without a proof of whose program answers",
}


async def job_folder(transport: Transport, location: ClusterLocation, nodes: Sequence[str]) -> Finding:
    """Write, read and remove a file in the folder of job directories."""
    about, folder = "job folder", location.folder
    probe, content = f"{folder}/.doctor-{secrets.token_hex(8)}", secrets.token_bytes(64)
    await transport.make_dir(folder)
    try:
        await transport.write(probe, content)
        same = await transport.read(probe) == content
    finally:
        await transport.remove(probe)
    if not same:
        todo = "Check the free space and the state of the disk on the cluster."
        return Finding("failed", about, f"a test file in {folder} was not read as it was written", todo)
    found = await transport.run(["readlink", "-f", "--", folder])
    path = decode_output(found.stdout).rstrip("\n") or folder
    mounts = decode_output(await transport.read("/proc/self/mounts"))
    kind = file_system_type(path, mounts)
    if visibility_warning(path, nodes, location.host, mounts):
        said = f"{folder} can be written, but seems to lie on a local file system ({kind})"
        todo = (
            "If jobs do not find their files, set `job_root` under [slurm] in the profile to a "
            "directory that the nodes see."
        )
        return Finding("warning", about, said, todo)
    asked = await transport.run(["/bin/sh", "-c", DISK_SPACE_SCRIPT, "sh", folder])
    room = parse_room(decode_output(asked.stdout), folder)
    if room is not None and room.free < _MIN_SPACE:
        said = f"{folder} can be written. Only {room.free / 1e9:.1f} GB are {room.description}."
        todo = "Delete files, or set `job_root` under [slurm] in the profile to a folder on a larger file system."
        return Finding("warning", about, said, todo)
    return Finding("ok", about, f"{folder} can be written" + (f" ({kind})" if kind else ""))


async def node_access(
    transport: Transport,
    location: ClusterLocation,
    profile: Profile,
    client: SlurmClient,
    prompter: Prompter,
    node: str,
    job: str,
) -> Finding:
    """Check the route to the node of a running job."""
    about, reach, goal = (
        "node access",
        NodeRoutes(transport, location, profile, client, prompter),
        RouteTarget(node, job),
    )
    try:
        await reach.find_route(goal, is_requested=True)
    except TunnelError as error:
        return Finding("failed", about, error.message, error.hint)
    finally:
        kind, failed = reach.kind(goal), reach.failed(goal)
        await asyncio.to_thread(reach.close)
    said = f"{node} is reached {_ROUTE_NAMES[kind]}" + "".join(
        f"\nnot {_ROUTE_NAMES[way]}: {why}" for way, why in failed.items()
    )
    if "ssh" not in failed:
        return Finding("ok", about, said)
    if kind == "direct":
        has_ports = profile is not None and profile.node_ports is not None
        with_ports = "Sessions use a port of `node_ports`, and prove that it is yours."
        without = (
            "Sessions need ports of nodes that the login node can reach: set `node_ports = [FIRST, "
            "LAST]` under [tunnels]."
        )
        todo = f"{with_ports if has_ports else without} Other tunnels need `unproven = true` under [tunnels]."
        return Finding("warning", about, said, todo)
    todo = "Tunnels use a connection that works. ssh, rsync and VS Code (`jupyter slurm ssh-config`) need one by ssh."
    return Finding("warning", about, said, todo)


def ports(first: int, last: int) -> Finding:
    """Find a free local port for a tunnel, and the users of those that are taken."""
    free = first_free(first, last)
    taken: dict[int, list[int]] = {}
    for port, uid in sorted(listeners().items()):
        if first <= port <= last:
            taken.setdefault(uid, []).append(port)
    by = "; ".join(f"{_listed(mine)} by {_user(uid)}" for uid, mine in taken.items())
    said = f"{first} to {last} on this computer, for tunnels: " + (f"{free} is free" if free else "none is free")
    if free is None:
        todo = "Close unused tunnels, or set another range in the profile: `ports = [FIRST, LAST]` under [tunnels]."
        return Finding("failed", "ports", f"{said}; taken: {by or 'by processes that are not shown'}", todo)
    return Finding("ok", "ports", said + (f"; taken: {by}" if by else ""))


def _listed(ports: list[int]) -> str:
    more = len(ports) - _MAX_PORTS
    return ", ".join(map(str, ports[:_MAX_PORTS])) + (f" and {more} more" if more > 0 else "")


def _user(uid: int) -> str:
    if uid == os.getuid():
        return "you"
    try:
        return f"user {pwd.getpwuid(uid).pw_name}"
    except KeyError:
        return f"user {uid}"


async def python(
    transport: Transport, location: ClusterLocation, profile: Profile, nodes: Sequence[str], *, is_asked_there: bool
) -> Finding:
    """Check the Python for cells on the login node; ``is_asked_there``: a probe job checks it on a node."""
    todo = (
        "Name another Python with `%%sbatch python=PATH`, or load a module with `prelude` in the "
        "profile. Scripts need no Python."
    )
    about = "Python"
    try:
        done = await transport.run([profile.python, "-c", _PYTHON], context=Context(cwd="/"))
    except CommandMissing:
        if profile.python != "python3":
            said = f"the login node has no {profile.python}; the nodes may have it" + (
                "" if is_asked_there else ", `--job` checks"
            )
            return Finding("ok", about, said)
        return Finding("warning", about, "there is no python3 on the PATH, and cells in Python need one", todo)
    version, _, path = decode_output(done.stdout).strip().partition("\n")
    found = re.match(r"(\d+)\.(\d+)", version)
    if done.exit_code or found is None:
        return Finding("warning", about, f"{profile.python} does not run on the login node", todo)
    if (int(found[1]), int(found[2])) < _OLDEST_PYTHON:
        return Finding("warning", about, f"{path} is {version}, and cells in Python need 3.8", todo)
    said = f"{version} ({path}) on {location.host}"
    short = location.host.split(".")[0]
    if is_asked_there or (nodes and all(node.split(".")[0] == short for node in nodes)):
        return Finding("ok", about, said)
    doubt = visibility_warning(path, nodes, location.host, decode_output(await transport.read("/proc/self/mounts")))
    there = "the nodes may not have it" if doubt else "each node may have its own"
    return Finding("ok", about, f"{said}; {there}, `--job` checks")
