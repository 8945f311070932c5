"""Terminals of all clusters: start, list, and sockets of this computer that lead to them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from jupyter_slurm.errors import ConfigError, TransportError
from jupyter_slurm.runner.terminal.keeper import HEAD
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.slurm.client import SlurmClient
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.terminals.description import terminal_to_api, unreadable
from jupyter_slurm.services.terminals.targets import ClusterJobs, find_target, node_of
from jupyter_slurm.services.terminals.viewer_sockets import ViewerSockets
from jupyter_slurm.transport.base import Context, Stream, has_files
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Terminals"]

_ATTACH_TIMEOUT_S: Final = 60.0
_HANG_UP_TIMEOUT_S = 10.0  # seconds to wait for the end of a closed terminal
_MAX_GREETING_BYTES: Final = 1 << 16  # bytes that start-up files may print before the mark
_MAX_TERMINALS: Final = 64
_CONTAINER_SHELL: Final = "terminal/container_shell.py"
_PYTHON: Final = "python3"


class RunnerFiles(Protocol):
    """Installed runner files."""

    async def prepare(self) -> None:
        """Install the runner files, once."""

    def runner_path(self, name: str) -> str:
        """Return the path of a runner file."""


class TerminalCluster(ClusterJobs, Protocol):
    """Cluster of terminals: :class:`jupyter_slurm.services.clusters.cluster.Cluster`."""

    @property
    def location(self) -> ClusterLocation: ...
    @property
    def client(self) -> SlurmClient: ...
    @property
    def submitter(self) -> RunnerFiles: ...


class Terminals:
    """Terminals of all clusters.

    Parameters
    ----------
    cluster : callable
        Returns a cluster by its name.
    folder : str
        Folder of sockets, readable only by the user, on a local disk.
    """

    def __init__(self, cluster: Callable[[str], TerminalCluster], folder: str) -> None:
        self._cluster = cluster
        self.sockets = ViewerSockets(folder)
        self._threads = DaemonThreadPool()  # a host may be silent for a minute

    @property
    def viewers(self) -> int:
        """Return the number of attached viewers."""
        return self.sockets.viewers

    def stop(self) -> None:
        """Close the sockets; the terminals stay."""
        self.sockets.close()
        self._threads.close()

    async def start(self, name: str, requested: api.StartTerminalRequest) -> api.Terminal:
        """Start a terminal on the login node, or inside a running job: in its container, if it has one.

        Raises
        ------
        ConfigError
            The site profile allows no commands on the login node.
        JobNotFound, JobError, UsageError
            The target is not one running job.
        TransportError
            The terminal cannot be started.
        """
        cluster, words = self._cluster(name), ["", "", ""]
        if not cluster.location.commands.get("allowed", True):
            raise ConfigError(
                f"The site profile of {name} does not allow commands on the login node.",
                hint="Start an interactive job with `salloc` or `srun` in a terminal of your computer.",
            )
        if (reference := requested["job"]) is not None:
            target = await find_target(cluster, reference)
            program = ["/bin/sh", "-c", 'exec "$SHELL" -l']
            if target.container and not requested.get("host"):
                await cluster.submitter.prepare()
                program = [_PYTHON, "-ISu", cluster.submitter.runner_path(_CONTAINER_SHELL), target.container]
            words = [target.job, target.name, target.node, *target.step, *program]
        size = [str(requested["columns"]), str(requested["rows"])]
        return terminal_to_api(await self._ask(cluster, "start", *size, *words))

    async def list_to_api(self, name: str) -> list[api.Terminal]:
        """Return the terminals on the login node of a cluster."""
        cluster = self._cluster(name)
        found = await self._ask(cluster, "list")
        if not isinstance(found, list):
            raise unreadable()
        terminals = [terminal_to_api(one) for one in found[:_MAX_TERMINALS]]
        for one in terminals:
            if one["job"] and not one["node"]:
                one["node"] = node_of(cluster, one["job"])
        return terminals

    async def attach(self, name: str, terminal: str) -> api.TerminalSocket:
        """Return a socket of this computer for one viewer of the terminal."""
        cluster = self._cluster(name)
        await cluster.submitter.prepare()
        return await self._threads.call(lambda: self._open(cluster, terminal))

    async def close(self, name: str, terminal: str) -> list[api.Terminal]:
        """Hang up a terminal, which ends its shell; return the others."""
        cluster = self._cluster(name)
        await cluster.submitter.prepare()
        hung_up = asyncio.create_task(asyncio.to_thread(self._hang_up, cluster, terminal))
        done, _ = await asyncio.wait({hung_up}, timeout=_HANG_UP_TIMEOUT_S)  # a program may ignore SIGHUP
        if done:
            hung_up.result()
        return [one for one in await self.list_to_api(name) if one["id"] != terminal]

    def _open(self, cluster: TerminalCluster, terminal: str) -> api.TerminalSocket:
        """Return a socket that leads to a terminal; blocks. The caller is told why a connection is refused."""
        stream = self._dial(cluster, terminal)
        try:
            return {"has_files": has_files(stream), "socket": self.sockets.open(stream)}
        except BaseException:
            stream.close()
            raise

    def _hang_up(self, cluster: TerminalCluster, terminal: str) -> None:
        stream = self._dial(cluster, terminal)
        timer = threading.Timer(_HANG_UP_TIMEOUT_S, stream.close)  # else thread and session stay with the program
        timer.daemon = True
        timer.start()
        with contextlib.suppress(OSError):
            stream.sendall(HEAD.pack(b"k", 0))
            while stream.recv(1 << 16):  # until the shell has ended
                pass
        timer.cancel()
        stream.close()

    async def _ask(self, cluster: TerminalCluster, *words: str) -> object:
        await cluster.submitter.prepare()
        argv = [_PYTHON, "-ISu", cluster.submitter.runner_path("terminal/access.py"), *words]
        done = await cluster.client.transport.run(argv, context=Context(env=cluster.location.environment))
        if done.exit_code:
            said = "".join(c if c.isprintable() else " " for c in done.stderr[-400:].decode("utf-8", "replace"))
            raise TransportError(
                f"The terminals on {cluster.location.host} cannot be used: {said.strip()}",
                hint="Check `ls -ld /tmp/jupyter-slurm-terminals-*` on the login node: it must be yours alone.",
            )
        try:
            return parse_json(done.stdout[-_MAX_GREETING_BYTES:].strip().rpartition(b"\n")[2])
        except ValueError as error:
            raise unreadable() from error

    def _dial(self, cluster: TerminalCluster, terminal: str) -> Stream:
        """Connect to a terminal; blocks. Output of start-up files is left out."""
        mark = secrets.token_hex(16)
        argv = [_PYTHON, "-ISu", cluster.submitter.runner_path("terminal/access.py"), "attach", terminal, mark]
        stream = cluster.client.transport.pipe(argv, _ATTACH_TIMEOUT_S, env=cluster.location.environment)
        timer = threading.Timer(_ATTACH_TIMEOUT_S, stream.close)  # the host may never send anything
        timer.daemon = True
        timer.start()
        try:
            greeting, sign = b"", mark.encode("ascii") + b"\n"
            while not greeting.endswith(sign):
                greeting += (data := stream.recv(1))
                if not data or len(greeting) > _MAX_GREETING_BYTES:
                    raise OSError("the host does not answer as expected")
        except OSError as error:
            stream.close()
            raise TransportError(f"The terminal cannot be reached: {error}", hint="Attach to it again.") from error
        finally:
            timer.cancel()
        return stream
