"""The cluster that a front end uses, and the context of its process that a request carries."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import quote

from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import (
    ConfigError,
    HostKeyError,
    LoginFailed,
    NotConnected,
    SlurmError,
    TransportError,
    UsageError,
)
from jupyter_slurm.transport.local.processes import soft_limits

if TYPE_CHECKING:
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.options.option_parser import OptionTable

__all__ = [
    "Cluster",
    "chosen",
    "close_client",
    "context",
    "current",
    "disconnect",
    "every",
    "is_chosen",
    "is_local_id",
    "local",
    "named",
    "overview",
    "registered",
    "use",
    "used_clusters",
    "with_id",
]

_LOGIN_RETRY_INTERVAL_S = 5.0  # seconds between two login attempts in the background

_lock = threading.Lock()
_client: AgentClient | None = None
_clusters: dict[tuple[str | None, str | None, str | None], Cluster] = {}
_chosen: str | None = None


class Cluster:
    """A cluster, as the agent knows it.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    name : str
        Id of the cluster in the API.
    is_remote : bool
        Whether the cluster is reached over SSH.
    python : str, optional
        Interpreter of Python cells on a remote cluster.
    """

    def __init__(self, client: AgentClient, name: str, *, is_remote: bool = False, python: str = "python3") -> None:
        self.client = client
        self.name = name
        self.is_remote, self.python = is_remote, python
        self.checked_pythons: set[str] = set()
        self.tables: dict[str, OptionTable] = {}
        self._options: dict[str, api.Options] = {}
        self._logging_in = threading.Lock()
        self._login_agent: int | None = None  # process id of the agent that was asked last for a login

    def path(self, *parts: str) -> str:
        """Return the API path of a part of this cluster."""
        return "/".join(["/v1/clusters", quote(self.name, safe=""), *(quote(part, safe="") for part in parts)])

    def options(self, command: str) -> api.Options:
        """Return the options of a command on this cluster; requested once a process."""
        if command not in self._options:
            self._options[command] = self.client.get(self.path("options", command))
        return self._options[command]

    def login_variables(self) -> dict[str, str]:
        """Return HOME, USER and LOGNAME of the user on this cluster; empty without a login."""
        told: api.Cluster = self.client.get(self.path())
        home, user = told.get("home"), told.get("user")
        return {"HOME": home, "USER": user, "LOGNAME": user} if home and user else {}

    def home_folder(self) -> str:
        """Return the user's home on this cluster; log in if needed."""
        if "HOME" not in self.login_variables():
            self.log_in()
        return self.login_variables()["HOME"]

    def log_in(self) -> None:
        """Log in if needed, and count from now on as a user of the login."""
        from jupyter_slurm.agent.client.client_errors import show_once
        from jupyter_slurm.client.clusters.clients import whoami

        told: api.Cluster = self.client.post(self.path("connect"), json={"client": whoami()}, timeout=None)
        connection = told.get("connection")
        if connection and (notice := connection.get("notice")):
            show_once(notice)
        self._login_agent = self.client.info["pid"]

    def start_relogin(self) -> None:
        """Log in in the background after a restart of the agent, as soon as a login is possible.

        Prompts of hosts wait for the user. A refused or ended login is not attempted again.
        """

        def connect() -> None:
            with self._logging_in, contextlib.suppress(SlurmError):
                before, self._login_agent = self._login_agent, self.client.info["pid"]
                is_tried = self._login_agent != before
                while is_tried:
                    is_tried = False
                    try:
                        self.log_in()
                    except (HostKeyError, LoginFailed, NotConnected):
                        raise
                    except TransportError:  # the network is not up yet
                        is_tried = True
                        time.sleep(_LOGIN_RETRY_INTERVAL_S)

        if not self._logging_in.locked():
            threading.Thread(target=connect, name="jupyter-slurm-log-in", daemon=True).start()


def is_local_id(name: str) -> bool:
    """Return whether a name is the ID of a Slurm of this computer: no site profile can have such a name."""
    return name == "local" or name.startswith("local-")


def chosen() -> str:
    """Return the name of the chosen cluster; ``local`` for the cluster of the Slurm commands of this machine."""
    return (settings().cluster if _chosen is None else _chosen) or "local"


def is_chosen() -> bool:
    """Return whether the user has chosen a cluster in this process: ``%slurm use``, ``--cluster``."""
    return _chosen is not None


def current(*, log_in: bool = True) -> Cluster:
    """Return the cluster that this process uses: the chosen one, else that of the Slurm commands.

    Parameters
    ----------
    log_in : bool
        Whether a user without a login may be prompted now.

    Raises
    ------
    AgentError
        No agent is running, and none could be started.
    LoginError
        The login failed.
    ConfigError
        No cluster was chosen, and this machine has none.
    """
    name = chosen()
    if name == "local":
        here = (os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None, None)
        if here not in _clusters and _chosen is None and not settings().cluster:
            _check_local_slurm()
        return _registered(*here)
    if is_local_id(name):
        return local(name)
    return named(name) if log_in else _registered(None, None, name)


def for_submission() -> Cluster:
    """Return the cluster of this process without a login check, except for the first submission.

    The submission itself detects a missing login. One request less saves 2 ms for each cell.
    """
    cluster = current(log_in=False)
    return cluster if not cluster.is_remote or "sbatch" in cluster.tables else current()


def _check_local_slurm() -> None:
    """Explain how to choose a cluster if this machine has no Slurm (a laptop) and site profiles exist."""
    if shutil.which("squeue"):
        return
    from jupyter_slurm.sites.profile import list_profiles

    names = list_profiles(settings().sites)
    if names:
        raise ConfigError(
            f"This computer has no Slurm, and no cluster is chosen. Site profiles: {', '.join(names)}.",
            hint=f"Run `%slurm use {names[0]}` in a notebook, or add `--cluster {names[0]}` in a terminal. "
            f'To set a default, write `c.JupyterSlurm.cluster = "{names[0]}"` into jupyter_slurm_config.py.',
        )


def registered(profile: str) -> Cluster:
    """Return the cluster of a site profile, with or without a login."""
    return _registered(None, None, profile)


def local(cluster_id: str) -> Cluster:
    """Return a Slurm of this computer by its ID; ``local``: the one of the Slurm commands of this process.

    Raises
    ------
    ConfigError
        No such cluster is known.
    """
    key = (None, None, cluster_id)
    if cluster_id != "local" and key not in _clusters:
        client = _agent_client()
        with contextlib.suppress(UsageError):  # by its ID: this process may have another SLURM_CONF and PATH
            told: api.Cluster = client.get(f"/v1/clusters/{quote(cluster_id, safe='')}")
            _clusters[key] = Cluster(client, told["id"])
    if key in _clusters:
        return _clusters[key]
    here = _registered(os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None, None)
    if cluster_id not in ("local", here.name):
        raise ConfigError(
            f"There is no cluster {cluster_id!r} on this computer.",
            hint="Set SLURM_CONF to its configuration file, and use the name `local`.",
        )
    return here


def named(profile: str) -> Cluster:
    """Return the cluster of a site profile, logged in."""
    from jupyter_slurm.client.login.call import answering

    cluster = _registered(None, None, profile)
    # This call costs little with a connection, and only this process could answer the prompts of the hosts.
    answering(cluster.client, cluster.name, cluster.log_in)
    return cluster


def use(profile: str) -> Cluster:
    """Choose the cluster of this process; ``local`` is the one of its Slurm commands."""
    global _chosen
    before, _chosen = _chosen, profile
    try:
        cluster = current()
        if not cluster.is_remote:
            cluster.log_in()  # no login is needed, but from now on this process uses only this cluster
        return cluster
    except BaseException:
        _chosen = before
        raise


def disconnect(profile: str) -> bool:
    """End the login to a cluster, for all its users; jobs continue.

    Returns
    -------
    bool
        False: others use the login, and the user keeps it.
    """
    from jupyter_slurm.client.clusters.clients import may_end, other_clients

    cluster = _registered(None, None, profile)
    users = other_clients(cluster.client.post("/v1/clusters", json={"profile": profile}))
    if users and not may_end(profile, users):
        return False
    cluster.client.post(cluster.path("disconnect"))
    return True


def overview() -> list[tuple[str, str, Sequence[api.User]]]:
    """Return the usable clusters, each with the state of its connection and the users of its login."""
    told = _registered(os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None, None).client.get(
        "/v1/clusters"
    )
    far = [(one["id"], one["connection"]["state"], one.get("users", [])) for one in told if one.get("connection")]
    others = [(one["id"], f"this computer, SLURM_CONF={one['slurm_conf']}") for one in told if _is_other_local(one)]
    names: list[tuple[str, str, Sequence[api.User]]] = [("local", "this computer", [])]
    names += [*((name, state, []) for name, state in others), *far]
    return [(name, state + (", in use" if name == chosen() else ""), users) for name, state, users in names]


def with_id(name: str) -> Cluster:
    """Return the cluster of an ID, logged in: that of a site profile, or of a Slurm of this computer."""
    if name == chosen():
        return current()
    return local(name) if is_local_id(name) else named(name)


def every() -> list[Cluster]:
    """Return all clusters that the agent knows, without a login."""
    client = _registered(os.environ.get("SLURM_CONF") or None, os.environ.get("PATH") or None, None).client
    return [Cluster(client, str(one["id"])) for one in client.get("/v1/clusters")]


def _is_other_local(told: api.Cluster) -> bool:
    """Return whether a cluster is a Slurm of this computer, but not that of the Slurm commands of this process."""
    return not told.get("connection") and told["slurm_conf"] != (os.environ.get("SLURM_CONF") or None)


def _agent_client() -> AgentClient:
    global _client
    with _lock:
        if _client is None:
            from jupyter_slurm.agent.client.agent_client import AgentClient

            _client = AgentClient.connect(settings())
        return _client


def close_client() -> None:
    """Close the connection to the agent, at the end of a command. A later request opens a new one."""
    if _client is not None:
        _client.close()


def _registered(slurm_conf: str | None, path: str | None, profile: str | None) -> Cluster:
    key, client = (slurm_conf, path, profile), _agent_client()
    with _lock:
        if key not in _clusters:
            if profile is not None:
                _notify_silence(client)
            asked = {"slurm_conf": slurm_conf, "path": path} if profile is None else {"profile": profile}
            answer = client.post("/v1/clusters", json=asked)
            python = str(answer.get("python") or "python3")
            _clusters[key] = Cluster(client, str(answer["id"]), is_remote=profile is not None, python=python)
        return _clusters[key]


def _notify_silence(client: AgentClient) -> None:
    from jupyter_slurm.client.login.link_watch import (
        create_link_watch,  # a Slurm of this machine is never silent in this way
    )

    client.create_wait_limits = partial(create_link_watch, client)


def used_clusters() -> list[Cluster]:
    """Return the clusters used in this process, the latest first. Do not wait for a running login."""
    return list(_clusters.values())[::-1]


def context(cluster: Cluster) -> api.Context:
    """Return the context of this process for a request: working directory, environment, umask and soft limits.

    Over SSH only named parts are used: directories and variables of this machine have no meaning on the cluster. Values
    that must not reach a job (secrets, variables of Slurm for an enclosing job) are removed at the place of use.

    Raises
    ------
    UsageError
        The working directory no longer exists.
    """
    if cluster.is_remote:
        return {}
    try:
        cwd = os.getcwd()
    except FileNotFoundError as error:
        raise UsageError(
            "The working directory no longer exists.", hint="Change to another directory: `%cd ~`."
        ) from error
    return {"cwd": cwd, "env": dict(os.environ), "umask": _umask(), "limits": soft_limits()}


def _umask() -> int:
    # os.umask cannot be read without a write, for all threads. A binary file: every cell waits for this read.
    with contextlib.suppress(OSError, ValueError):
        file = os.open("/proc/self/status", os.O_RDONLY | os.O_CLOEXEC)
        try:
            found = re.search(rb"^Umask:\s*([0-7]+)$", os.read(file, 512), re.MULTILINE)
        finally:
            os.close(file)
        if found:
            return int(found[1], 8)
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
