"""Routes through the login node itself: to its own ports, and to nodes over the network of the cluster."""

from __future__ import annotations

import asyncio
import secrets
from dataclasses import dataclass

from jupyter_slurm.errors import TransportError, TunnelError, TunnelUnproven
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobs.session_server import SessionListener, read_door
from jupyter_slurm.transport.base import Stream, Transport
from jupyter_slurm.transport.tunnel.listener_proof import proof_command, proven_address

__all__ = ["DirectRoute", "LoginNodeRoute", "RouteTarget", "no_route"]

_PROOF_S = 60.0  # to find the owner of a port


@dataclass(frozen=True)
class RouteTarget:
    """Destination of a tunnel: a node of a job, or (without job) a host on the route; without a name, the login node.

    ``folder`` is the job directory of a session, whose runner may have a TLS entrance; ``python`` runs the job on the
    node.
    """

    node: str = ""
    job: str = ""
    folder: JobFolder | None = None
    python: str = ""


class LoginNodeRoute:
    """Route to ports of the login node itself."""

    is_alive = True
    proof_lasts = False

    def __init__(self, transport: Transport, name: str, loop: asyncio.AbstractEventLoop) -> None:
        self._transport, self._name, self._loop = transport, name, loop
        self._found: dict[int, int] = {}  # port: connection over which its owner was checked

    def find(self, port: int) -> str:
        """Return the address at which a program of the user listens on a port."""
        mark, generation = secrets.token_hex(16), self._transport.generation
        asking = self._transport.run(["/bin/sh", "-c", proof_command(mark, port)], timeout=_PROOF_S)
        done = asyncio.run_coroutine_threadsafe(asking, self._loop).result()
        address = proven_address(done.stdout, mark, self._name, port)
        self._found[port] = generation
        return address

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect to a port."""
        stream = self._transport.dial(address, port, timeout)
        if self._found.get(port) != self._transport.generation:
            # with several login nodes behind one name, this may be another one, with another owner of the port
            stream.close()
            raise TransportError(f"The connection to {self._name} was lost and made again.", hint="Try again.")
        return stream

    def close(self) -> None:
        """Do nothing: the login stays."""


class DirectRoute:
    """Route from the login node over the cluster's network. Without a TLS entrance the owner of a port is unknown."""

    is_alive = True

    def __init__(
        self,
        transport: Transport,
        goal: RouteTarget,
        address: str,
        loop: asyncio.AbstractEventLoop,
        failed: dict[str, str],
    ) -> None:
        self._transport, self._goal, self._address, self._loop = transport, goal, address, loop
        self._failed = failed
        self._doors: dict[int, SessionListener | None] = {}
        self.proof_lasts = goal.folder is not None  # a TLS entrance proves its identity to each connection

    def find(self, port: int) -> str:
        """Return the address at which a program of the user listens on a port."""
        folder = self._goal.folder
        if folder is not None:
            reading = asyncio.run_coroutine_threadsafe(read_door(self._transport, folder, port), self._loop)
            self._doors[port] = reading.result()
        try:
            self.dial(self._address, port, 10.0).close()
        except TunnelError as error:
            if error.details.get("why") == "forbidden":  # not the only reason: other reasons may be easier to fix
                raise no_route(self._goal, {**self._failed, "direct": error.message}) from error
            if self._failed and error.details.get("why") == "refused" and self._doors.get(port) is None:
                raise self._unreachable(port) from error
            raise
        if self._doors.get(port) is not None:
            return self._address
        reasons = _reasons(self._failed) or "the node accepts neither ssh nor a job step"
        raise TunnelUnproven(
            f"The user who listens on port {port} of {self._goal.node} cannot be identified: {reasons}.",
            hint="Sessions work with `node_ports = [FIRST, LAST]` under [tunnels] in the profile (on the "
            "login node itself: c.JupyterSlurm.node_ports). To connect without proof, set `unproven = "
            "true` under [tunnels].",
            why="unproven",
        )

    def _unreachable(self, port: int) -> TunnelError:
        """Return the error for a port that only the login node has tried: the usual program listens on the loopback."""
        node = self._goal.node
        reasons = _reasons(self._failed)
        return TunnelError(
            f"Port {port} of {node} cannot be reached. A program that listens on the loopback of the node is reached "
            f"only on the node itself, and no route leads to it: {reasons}.",
            hint=f"Find the cause with `ssh {node}` on the login node, or with `srun --jobid={self._goal.job} "
            "--overlap hostname`. Otherwise, let the program listen on the node's network address, with a password.",
            why="refused",
        )

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect to a port."""
        door = self._doors.get(port)
        if door is None:
            return self._transport.dial(self._address, port, timeout)
        from jupyter_slurm.transport.tunnel.accepted_peer import enter

        stream = self._transport.dial(self._address, door.port, timeout)
        return enter(stream, door.pem, timeout, f"port {door.port} of {self._goal.node}")

    def close(self) -> None:
        """Do nothing: the login stays."""


def no_route(goal: RouteTarget, failed: dict[str, str]) -> TunnelError:
    """Return the error of a node without a route, with the reason for each."""
    return TunnelError(
        f"No connection to {goal.node} works: {_reasons(failed)}.",
        hint=f"Run `ssh {goal.node}` on the login node, or `srun --jobid={goal.job} --overlap "
        "hostname`, to see the cause.",
        **failed,
    )


def _reasons(failed: dict[str, str]) -> str:
    return "; ".join(f"{kind}: {why.rstrip('.')}" for kind, why in failed.items())
