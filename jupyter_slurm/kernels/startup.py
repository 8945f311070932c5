"""Startup of a remote kernel from the request of a kernelspec: login, allocation, step, and connection."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shlex
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.clusters.tunnel import Tunnel, open_tunnel
from jupyter_slurm.client.jobs.request import new_key
from jupyter_slurm.client.kernels.kernel import KEYWORDS, KernelStep, request_kernel, start
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.render.session_card import start_note
from jupyter_slurm.client.sessions.launch import named_in
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.errors import (
    AgentError,
    AgentUnreachable,
    ControllerError,
    JobNotFound,
    NotConnected,
    SlurmError,
    SubmissionUnknown,
    TransportError,
    TunnelError,
)
from jupyter_slurm.kernels import notices
from jupyter_slurm.kernels.allocation import KernelAllocation
from jupyter_slurm.kernels.channels.placeholder import KernelPlaceholder
from jupyter_slurm.kernels.proxy import KernelStartError
from jupyter_slurm.kernels.release import schedule_release
from jupyter_slurm.kernels.state_file import STATE_FILE_SUFFIX

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.kernels.state_file import KernelState


__all__ = ["KernelStartup", "is_same_allocation"]

_REASON_CHECK_INTERVAL_S = 1.0  # seconds until the cause of the wait is checked again
_RETRY_INTERVAL_S = 1.0  # seconds between two attempts without an answer
_MAX_REFUSALS = 60  # of the agent about a kernel that is resumed; its store may be read again
_LOGIN_CHECK_INTERVAL_S = 5.0  # seconds between two checks whether a prompt was answered, or the link is up
_CONNECT_TIMEOUT_S = 10.0
_REQUEUE_TIMEOUT_S = 120.0  # seconds; Slurm waits KillWait for running processes, 30 s by default
_SECRET_BYTES = 32


class KernelStartup(KernelAllocation):
    """Startup of one kernel; the parameters are those of :class:`KernelAllocation`."""

    secret: bytes = b""
    is_resumed = False
    received = 0
    _tunnel: Tunnel | None = None
    _opened: Tunnel | None = None  # as the agent knows it, also without a connection
    _is_looked_up = False  # whether it is known what became of the kernel of an earlier proxy

    # Startup ----------------------------------------------------------------------------------------------------

    async def climb(self, standin: KernelPlaceholder) -> None:
        """Start the kernel, and report the causes of each wait.

        Raises
        ------
        KernelStartError
            The kernel cannot start.
        """
        if self._signpost.data.get("state") == "unknown":
            self.mark("running")
        try:
            if self._arguments:
                standin.print_status(f"Requesting a kernel: {shlex.join(self._arguments)}")
            while True:
                try:
                    await self._set_out(standin)
                    break
                except SlurmError as error:
                    if not self._passes(error):
                        raise
                    standin.print_status(str(error))
                    await asyncio.sleep(_LOGIN_CHECK_INTERVAL_S)
            await self._wait(standin)
        except (SlurmError, OSError) as error:
            raise KernelStartError(str(error)) from error

    async def _set_out(self, standin: KernelPlaceholder) -> None:
        """Log in to the cluster, and find the kernel or request one."""
        parsed = await self._do(self._entrance.arrive)
        await self._requeued(standin)
        is_found = await self._do(self._find)
        self._is_looked_up = True
        if not is_found:
            await self._do(lambda: self._request_kernel(parsed))

    def _passes(self, error: SlurmError) -> bool:
        """Return whether to wait after an error: a user answers at another front end, or a kernel exists already."""
        if type(error) is SlurmError:  # a prompt for another front end raises no subclass
            return True
        if self._may_run:  # it is kept, however long it cannot be looked up
            return True
        return bool(self._signpost.data.get("step")) and isinstance(error, (AgentUnreachable, SubmissionUnknown))

    @property
    def _may_run(self) -> bool:
        """Return whether the kernel of an earlier proxy may run, which this proxy has not looked up yet."""
        left = self._signpost.data
        return bool(left.get("step")) and left.get("state") in ("running", "unknown") and not self._is_looked_up

    def mark(self, state: str) -> None:
        """Write the state for the next proxy, which looks a kernel up again if this proxy could not."""
        is_refused = state == "over" or (state, self._signpost.data.get("state")) == ("restarting", "unknown")
        super().mark("unknown" if is_refused and self._may_run else state)

    async def _requeued(self, standin: KernelPlaceholder) -> None:
        """Wait for an allocation that Slurm is requeuing: no step can start before."""
        until = asyncio.get_running_loop().time() + _REQUEUE_TIMEOUT_S
        while asyncio.get_running_loop().time() < until and await self._do(self._is_being_requeued):
            standin.print_status("Slurm is requeuing its allocation …")
            await asyncio.sleep(_RETRY_INTERVAL_S)

    def _is_being_requeued(self) -> bool:
        cluster, key = self._cluster, self._signpost.data.get("allocation")
        with contextlib.suppress(JobNotFound):
            told = cluster.client.get(cluster.path("jobs", str(key))) if key else None
            if told and notices.is_ending(told) and told.get("restarts"):
                cluster.client.get(cluster.path("jobs"), params={"state": "active"})  # makes the agent query the queue
                return True
        return False

    def _find(self) -> bool:
        """Find the remains of an earlier proxy; return whether they are a kernel."""
        left, cluster = self._signpost.data, self._cluster
        if not left.get("allocation"):
            self._find_existing()  # of a proxy that was killed during its request
            if self._allocation is not None:
                self._signpost.write(allocation=self._allocation.key)
            return False
        with contextlib.suppress(JobNotFound):
            allocation = Allocation(cluster, cluster.client.get(cluster.path("jobs", str(left["allocation"]))))
            if allocation.is_open:
                self._allocation = allocation
                return self._is_attachable(left)
        return False

    def _is_attachable(self, state: KernelState) -> bool:
        cluster = self._cluster
        if not state.get("step"):
            return False
        try:
            step = KernelStep(cluster, cluster.client.get(cluster.path("jobs", str(state["step"]))))
        except JobNotFound:
            return False  # of a proxy that was killed before its request: the same key is used again
        if step.is_finished or state.get("state") not in ("starting", "running"):
            if not step.is_finished:
                step.cancel()  # an earlier cancel may have been lost
                self._former = step.key
            self._signpost.write(step=None)
            return False
        self._step, self.secret = step, bytes.fromhex(str(state["secret"]))
        self.is_resumed, self.received = state["state"] == "running", int(state.get("received") or 0)
        return True

    def _request_kernel(self, parsed: MagicLine) -> None:
        """Request a kernel, in an existing allocation or a new one."""
        cluster, post, words = self._cluster, self._signpost, parsed.keywords
        whose = {"owner": post.owner, "name": self._name, "display_name": words.get("name") or self._display_name}
        if self._allocation is not None and not is_same_allocation(post.data.get("words") or [], parsed, cluster):
            self._end(restart=False)
            self._allocation = None
        if self._allocation is None:
            label = f"kernel-{secrets.token_hex(4)}"
            post.write(
                words=self._arguments,
                cluster=cluster.name,
                shared="on" in words,
                state="starting",
                label=label,
                allocation=None,
                step=None,
            )
            self._allocation = request_kernel(cluster, parsed, **whose, label=label)
            post.write(allocation=self._allocation.key)
        self._allocation._follow()  # following counts as use, and brings the events of the allocation
        if not (post.data.get("step") and post.data.get("state") == "starting"):
            # Written first: after a kill during the request, the next proxy finds the step, or requests the same one.
            secret = secrets.token_bytes(_SECRET_BYTES).hex()
            post.write(words=self._arguments, step=new_key(), secret=secret, state="starting", received=0)
        key, self.secret = str(post.data["step"]), bytes.fromhex(str(post.data["secret"]))
        self._step = start(cluster, self._allocation, parsed, secret=self.secret, key=key, **whose)

    async def _wait(self, standin: KernelPlaceholder) -> None:
        """Wait until the keeper listens; show the cause, one line for each change."""
        refusals = 0
        while True:
            try:
                if await self._is_listening(standin):
                    return
                refusals = 0
            except SlurmError as error:
                refusals += not isinstance(error, (AgentError, ControllerError, TransportError))
                if refusals > (_MAX_REFUSALS if self.is_resumed else 0):
                    raise
                standin.print_status(str(error))
                if isinstance(error, NotConnected):
                    await self._log_in_retry()
                await asyncio.sleep(_RETRY_INTERVAL_S)

    async def _is_listening(self, standin: KernelPlaceholder) -> bool:
        """Return whether the keeper listens; else show the cause of the wait."""
        where = await self._do(lambda: self._kernel.connection_data(_REASON_CHECK_INTERVAL_S))
        if where["port"]:
            self._restarts = int((await self._do(lambda: self._granted.refresh()._data)).get("restarts") or 0)
            return True
        if where["finished"]:
            raise KernelStartError(await self.ended(wait=True) or "The kernel has ended before it started.")
        standin.print_status(_display_text(where) or await self._do(self._waits_for))
        return False

    async def stage(self) -> str:
        """Return the progress of the container image; empty if unknown or without an image."""
        with contextlib.suppress(SlurmError):
            return _display_text(await self._do(self._kernel.connection_data))
        return ""

    def _waits_for(self) -> str:
        """Return the cause of the wait of a kernel that has not started."""
        data = self._granted.data
        if data["state"] == "RUNNING":
            return f"Starting on {data.get('nodes') or 'its node'} …"
        if data["finished"]:
            return f"Its allocation has ended ({data['state']})."
        error = data.get("error")
        trouble = error.get("detail") if error else None
        return sentences(
            f"Waiting for its allocation ({data['state']})", data.get("reason_text"), trouble, start_note(data)
        )

    async def connect(self) -> socket.socket:
        """Return a connection to the keeper.

        Raises
        ------
        SlurmError, OSError
            No route to the keeper exists now.
        """
        if self._tunnel is None:
            try:
                self._tunnel = await self._do(self._open_tunnel)
            except NotConnected:
                await self._log_in_retry()
                raise
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(_CONNECT_TIMEOUT_S):
                await asyncio.get_running_loop().sock_connect(connection, str(self._tunnel.socket))
        except BaseException:
            connection.close()
            self._tunnel = None  # an agent that has ended closed the tunnel; the next agent opens it again
            raise
        return connection

    async def ended(self, *, wait: bool = False) -> str | None:
        """Return why the kernel has ended; None if it has not, or the reason is unknown."""
        why = await super().ended(wait=wait)
        if why is not None:
            await self._close_tunnel()
        return why

    async def release(self, *, restart: bool) -> None:
        """End the step and, without ``restart``, the allocation, unless others use it.

        A kernel that could not be looked up is released by another process, once the cluster answers.
        """
        if not (restart or self._is_looked_up or self._step) and self._signpost.data.get("step"):
            schedule_release(self._signpost.path.removesuffix(STATE_FILE_SUFFIX))
            return
        try:
            await super().release(restart=restart)
        finally:
            await self._close_tunnel()

    async def _close_tunnel(self) -> None:
        """Close the tunnel of a kernel that has ended: the next kernel in its allocation has another port."""
        tunnel, self._opened, self._tunnel = self._opened, None, None
        if tunnel is not None:
            with contextlib.suppress(SlurmError):
                await self._do(tunnel.close)

    async def _log_in_retry(self) -> None:
        with contextlib.suppress(AgentError):
            await self._do(self._cluster.start_relogin)

    def _open_tunnel(self) -> Tunnel:
        where = self._kernel.connection_data(_REASON_CHECK_INTERVAL_S)
        if not where["port"]:
            raise TunnelError("The port of the kernel is not known yet.", hint="Wait: the connection is tried again.")
        job, node = str(self._granted.key), where["node"]
        self._opened = open_tunnel(self._cluster, job, where["port"], node=node, socket=True)
        return self._opened


def _display_text(connection: api.KernelPlace) -> str:
    return f"{connection['stage']} …" if connection["stage"] else ""


_ALLOCATION_KEYWORDS = ("on", "lease")


def is_same_allocation(before: Sequence[str], now: MagicLine, cluster: Cluster) -> bool:
    """Return whether two requests ask for the same kind of allocation: a kernelspec may change before a restart.

    Parameters
    ----------
    before : sequence of str
        Words of the old kernelspec.
    now : MagicLine
        The parsed new request.
    cluster : Cluster
        Cluster of the allocation.
    """
    _, line = named_in(shlex.join(before))
    parsed = parse_cell_line(line, option_table(cluster, "sbatch"), KEYWORDS)
    asked = [
        (
            [(option.name, option.value) for option in one.parsed.options],
            [one.keywords.get(word) for word in _ALLOCATION_KEYWORDS],
        )
        for one in (parsed, now)
    ]
    return asked[0] == asked[1]
