"""Location of a cluster for its services: the user on the cluster, and the needs of its commands."""

from __future__ import annotations

import getpass
import hashlib
import json
import os
import posixpath
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypedDict, cast

from jupyter_slurm.config import Settings
from jupyter_slurm.domain.environment_variables import submission_environment
from jupyter_slurm.domain.profile_tables import (
    AdviceTable,
    CommandsTable,
    ContainerTable,
    CostTable,
    EnvironmentTable,
    LaunchTable,
    StorageTable,
    TomlTable,
)
from jupyter_slurm.errors import TransportError
from jupyter_slurm.sites.profile import (
    Profile,
    check_container,
    check_environments,
    check_table,
)
from jupyter_slurm.transport.base import Transport

__all__ = [
    "ClusterFile",
    "ClusterLocation",
    "at_site",
    "cluster_id",
    "inspect_location",
    "local_location",
    "parse_cluster_file",
]

_FACTS = r'printf "%s\n%s\n%s\n%s\n" "$(id -un)" "$HOME" "$(uname -n)" "$(printenv -- "$1")"'
_VARIABLE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)/(.*)", re.DOTALL)


class ClusterFile(TypedDict):
    """Content of cluster.json, in the folder of a cluster."""

    format: int
    id: str
    name: str
    slurm_conf: str | None
    path: str | None


@dataclass(frozen=True)
class ClusterLocation:
    """Location of one cluster.

    Attributes
    ----------
    id : str
        ID of the cluster in the API.
    folder : str
        Folder of job directories.
    user, home, host : str
        User name and home directory on the cluster, and the host that runs the Slurm commands.
    environment : mapping
        Variables that the commands need to find that Slurm; over SSH, in addition to those of the remote shell.
    slurm_conf, path : str or None
        SLURM_CONF and PATH of the front end that registered the cluster.
    poll_shortest : float
        Seconds between two regular queries of the queue.
    is_far : bool
        Whether SSH reaches the cluster: environments are additions to that of the remote shell.
    environments : mapping
        Descriptions of the named environments of jobs.
    container : mapping
        Settings of all containers of jobs.
    node_ports : (int, int) or None
        Ports of nodes on which the login node may reach sessions.
    advice : mapping
        Advice of the site about jobs.
    commands : mapping
        Limits of commands on the login node.
    cost : mapping
        Prices of the site for an hour.
    login_shell : bool
        Whether commands of the user get the start-up files of a login.
    launch : mapping
        Initial values of the form that launches a session.
    storage : mapping
        Places of the files of jobs.
    known : mapping
        Partitions, accounts, QOS, types of GPU and hourly prices in the profile.
    """

    id: str
    folder: str
    user: str
    home: str
    host: str
    environment: Mapping[str, str] = field(repr=False)
    slurm_conf: str | None = None
    path: str | None = None
    min_poll_interval: float = 10.0
    is_remote: bool = False
    environments: Mapping[str, EnvironmentTable] = field(default_factory=dict)
    container: ContainerTable = field(default_factory=ContainerTable)
    node_ports: tuple[int, int] | None = None
    cost: CostTable = field(default_factory=CostTable)
    advice: AdviceTable = field(default_factory=AdviceTable)
    commands: CommandsTable = field(default_factory=CommandsTable)
    login_shell: bool = False
    launch: LaunchTable = field(default_factory=LaunchTable)
    storage: StorageTable = field(default_factory=StorageTable)
    profile_names: Mapping[str, TomlTable] = field(default_factory=dict)


def local_location(settings: Settings, slurm_conf: str | None, path: str | None) -> ClusterLocation:
    """Return the location of a Slurm of this machine."""
    env = submission_environment(dict(os.environ))
    if path:
        env["PATH"] = path
    if slurm_conf:
        env["SLURM_CONF"] = slurm_conf
    else:
        env.pop("SLURM_CONF", None)
    name = cluster_id(slurm_conf)
    return ClusterLocation(
        name,
        posixpath.join(settings.job_root, name),
        getpass.getuser(),
        os.path.expanduser("~"),
        socket.gethostname(),
        env,
        slurm_conf,
        path,
        settings.poll_shortest,
        environments=check_environments(settings.environments, "c.JupyterSlurm.environments"),
        container=check_container(settings.container, "c.JupyterSlurm.container"),
        cost=cast("CostTable", check_table("cost", settings.cost, "c.JupyterSlurm.cost")),
        advice=cast("AdviceTable", check_table("advice", settings.advice, "c.JupyterSlurm.advice")),
        commands=cast("CommandsTable", check_table("commands", settings.commands, "c.JupyterSlurm.commands")),
        launch=cast("LaunchTable", check_table("launch", settings.launch, "c.JupyterSlurm.launch")),
        storage=cast("StorageTable", check_table("storage", settings.storage, "c.JupyterSlurm.storage")),
        node_ports=(settings.node_ports[0], settings.node_ports[1]) if settings.node_ports else None,
    )


def at_site(
    profile: Profile, user: str, home: str, host: str, min_poll_interval: float, root: str | None = None
) -> ClusterLocation:
    """Return the location of a cluster behind SSH.

    The folder is also that of an agent on the login node itself: both see the same jobs.
    """
    if root is None:
        root = posixpath.join(home, profile.job_root[2:]) if profile.job_root.startswith("~/") else profile.job_root
    return ClusterLocation(
        profile.name,
        posixpath.join(root, cluster_id(profile.slurm_conf)),
        user,
        home,
        host,
        {"SLURM_CONF": profile.slurm_conf} if profile.slurm_conf else {},
        profile.slurm_conf,
        None,
        max(profile.poll_shortest, min_poll_interval),
        is_remote=True,
        environments=profile.environments,
        container=profile.container,
        node_ports=profile.node_ports if "direct" in profile.ways else None,
        cost=profile.cost,
        advice=profile.advice,
        commands=profile.commands,
        login_shell=profile.login_shell,
        launch=profile.launch,
        storage=profile.storage,
        profile_names={**profile.known, "cost": profile.cost},
    )


async def inspect_location(transport: Transport, profile: Profile, min_poll_interval: float) -> ClusterLocation:
    """Determine the user on a login node, and return the location of its cluster.

    Raises
    ------
    TransportError
        The remote shell does not answer as expected.
    """
    named = _VARIABLE.fullmatch(profile.job_root)
    done = await transport.run(["/bin/sh", "-c", _FACTS, "sh", named[1] if named else "HOME"])
    facts = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    if done.exit_code or len(facts) < 4 or not facts[1].startswith("/"):
        raise TransportError(
            f"The shell on {profile.host} does not report your user name and home directory.",
            hint=f"Run `ssh {profile.host} 'id -un; echo $HOME'` to see its answer.",
        )
    user, home, host, folder = facts[:4]
    if named and not folder.startswith("/"):
        raise TransportError(
            f"{profile.job_root}: {named[1]} is not set to a directory on {profile.host}.",
            hint="Set `login_shell = true` under [shell] in the profile if a start-up file sets the "
            "variable, or write the directory itself in job_root under [slurm].",
        )
    root = posixpath.join(folder, named[2]) if named else None
    return at_site(profile, user, home, host, min_poll_interval, root)


def cluster_id(slurm_conf: str | None) -> str:
    """Return the ID of a Slurm of this machine, derived from its configuration file, so that two can coexist."""
    if not slurm_conf:
        return "local"
    return "local-" + hashlib.sha256(slurm_conf.encode("utf-8", "surrogateescape")).hexdigest()[:8]


def parse_cluster_file(raw: bytes) -> tuple[str | None, str | None] | None:
    """Return SLURM_CONF and PATH from a cluster.json; None if it is not valid."""
    try:
        about = json.loads(raw)
        return about["slurm_conf"], about["path"]
    except (ValueError, KeyError, TypeError):
        return None
