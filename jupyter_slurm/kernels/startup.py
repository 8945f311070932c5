"""From what a kernelspec asks for to a kernel on a node: log-in, allocation, step, and the way there."""

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
from jupyter_slurm.client.kernels.kernel import WORDS, KernelStep, ask, start
from jupyter_slurm.client.render.job_card import sentences
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
from jupyter_slurm.kernels import end_reason
from jupyter_slurm.kernels.allocation import KernelAllocation
from jupyter_slurm.kernels.channels.placeholder import KernelPlaceholder
from jupyter_slurm.kernels.proxy import KernelStartError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.kernels.state_file import KernelState


__all__ = ["KernelStartup", "is_of_same_allocation"]

_WAIT = 1.0  # seconds after which it is looked again why it does not begin
_LOOK = 1.0  # seconds between two attempts, where nobody answers
_LOGS_IN = 5.0  # seconds between two looks whether somebody has answered, or the link is back
_CONNECTS_WITHIN = 10.0
_REQUEUED_WITHIN = 120.0  # seconds; Slurm waits KillWait for what runs there, half a minute by itself
_SECRET = 32


class KernelStartup(KernelAllocation):
    """The way of one kernel to its node; the parameters are those of :class:`KernelAllocation`."""

    secret: bytes = b""
    is_known = False
    received = 0
    _tunnel: Tunnel | None = None

    # On the way up ----------------------------------------------------------------------------------------------

    async def climb(self, standin: KernelPlaceholder) -> None:
        """Have the kernel begin; say on the way what it waits for.

        Raises
        ------
        KernelStartError
            It cannot.
        """
        try:
            if self._words:
                standin.say(f"Asks for a kernel: {shlex.join(self._words)}")
            while True:
                try:
                    await self._set_out(standin)
                    break
                except SlurmError as error:
                    if not self._passes(error):
                        raise
                    standin.say(str(error))
                    await asyncio.sleep(_LOGS_IN)
            await self._wait(standin)
        except (SlurmError, OSError) as error:
            raise KernelStartError(str(error)) from error

    async def _set_out(self, standin: KernelPlaceholder) -> None:
        """Come to the cluster, and find the kernel or ask for one."""
        parsed = await self._do(self._entrance.arrive)
        await self._requeued(standin)
        if not await self._do(self._find):
            await self._do(lambda: self._ask(parsed))

    def _passes(self, error: SlurmError) -> bool:
        """Tell whether an error is waited out: somebody answers at another front door, or a kernel is there already."""
        if type(error) is SlurmError:  # what is not ours to answer has no class of its own
            return True
        left = self._signpost.data
        if not left.get("step"):
            return False
        is_there = left.get("state") == "running"  # nothing of it is given up, however long the way to it is closed
        unknown, closed = (AgentUnreachable, SubmissionUnknown), (ControllerError, TransportError)
        return isinstance(error, unknown) or (is_there and isinstance(error, closed))

    async def _requeued(self, standin: KernelPlaceholder) -> None:
        """Wait for an allocation that Slurm is putting back into the queue: until then nothing starts in it."""
        until = asyncio.get_running_loop().time() + _REQUEUED_WITHIN
        while asyncio.get_running_loop().time() < until and await self._do(self._is_being_requeued):
            standin.say("Slurm is putting its allocation back into the queue …")
            await asyncio.sleep(_LOOK)

    def _is_being_requeued(self) -> bool:
        cluster, key = self._there, self._signpost.data.get("allocation")
        with contextlib.suppress(JobNotFound):
            told = cluster.client.get(cluster.path("jobs", str(key))) if key else None
            if told and end_reason.is_ending(told) and told.get("restarts"):
                cluster.client.get(cluster.path("jobs"), params={"state": "active"})  # has the queue looked at
                return True
        return False

    def _find(self) -> bool:
        """Find what an earlier front has left; tell whether that is a kernel."""
        left, cluster = self._signpost.data, self._there
        if not left.get("allocation"):
            self._find_left()  # of a front that was killed as it asked
            if self._allocation is not None:
                self._signpost.write(allocation=self._allocation.key)
            return False
        with contextlib.suppress(JobNotFound):
            allocation = Allocation(cluster, cluster.client.get(cluster.path("jobs", str(left["allocation"]))))
            if allocation.is_open:
                self._allocation = allocation
                return self._is_attachable(left)
        return False

    def _is_attachable(self, left: KernelState) -> bool:
        cluster = self._there
        if not left.get("step"):
            return False
        try:
            step = KernelStep(cluster, cluster.client.get(cluster.path("jobs", str(left["step"]))))
        except JobNotFound:
            return False  # of a front that was killed before it asked: it is asked for under the same key
        if step.is_finished or left.get("state") not in ("starting", "running"):
            if not step.is_finished:
                step.cancel()  # what it was to end has not heard it, perhaps
                self._former = step.key
            self._signpost.write(step=None)
            return False
        self._step, self.secret = step, bytes.fromhex(str(left["secret"]))
        self.is_known, self.received = left["state"] == "running", int(left.get("received") or 0)
        return True

    def _ask(self, parsed: MagicLine) -> None:
        """Ask for a kernel, in an allocation that is there or in a new one."""
        cluster, post, words = self._there, self._signpost, parsed.words
        whose = {"owner": post.owner, "name": self._name, "display_name": words.get("name") or self._shown_as}
        if self._allocation is not None and not is_of_same_allocation(post.data.get("words") or [], parsed, cluster):
            self._end(restart=False)
            self._allocation = None
        if self._allocation is None:
            label = f"kernel-{secrets.token_hex(4)}"
            post.write(
                words=self._words,
                cluster=cluster.name,
                shared="on" in words,
                state="starting",
                label=label,
                allocation=None,
                step=None,
            )
            self._allocation = ask(cluster, parsed, **whose, label=label)
            post.write(allocation=self._allocation.key)
        self._allocation._follow()  # whoever follows it uses it, and is told what becomes of it
        if not (post.data.get("step") and post.data.get("state") == "starting"):
            # First: whoever comes after a front that was killed as it asked finds the step, or asks for the same one.
            secret = secrets.token_bytes(_SECRET).hex()
            post.write(words=self._words, step=new_key(), secret=secret, state="starting", received=0)
        key, self.secret = str(post.data["step"]), bytes.fromhex(str(post.data["secret"]))
        self._step = start(cluster, self._allocation, parsed, secret=self.secret, key=key, **whose)

    async def _wait(self, standin: KernelPlaceholder) -> None:
        """Wait until the keeper listens; say what for, one line a change."""
        while True:
            try:
                where = await self._do(lambda: self._kernel.where(_WAIT))
            except (AgentError, ControllerError, TransportError) as error:
                standin.say(str(error))
                if isinstance(error, NotConnected):
                    await self._log_in_again()
                await asyncio.sleep(_LOOK)
                continue
            if where["port"]:
                self._restarts = int((await self._do(lambda: self._granted.refresh()._data)).get("restarts") or 0)
                return
            if where["finished"]:
                raise KernelStartError(await self.ended(wait=True) or "The kernel is over before it began.")
            standin.say(_shown(where) or await self._do(self._waits_for))

    async def stage(self) -> str:
        """Return how far the image of its container is; empty: nobody knows, or it has none."""
        with contextlib.suppress(SlurmError):
            return _shown(await self._do(self._kernel.where))
        return ""

    def _waits_for(self) -> str:
        """Return what a kernel that has not begun waits for."""
        data = self._granted.data
        if data["state"] == "RUNNING":
            return f"Starts on {data.get('nodes') or 'its node'} …"
        if data["finished"]:
            return f"Its allocation is over ({data['state']})."
        error = data.get("error")
        trouble = error.get("detail") if error else None
        return sentences(
            f"Waits for its allocation ({data['state']})", data.get("reason_text"), trouble, start_note(data)
        )

    async def connect(self) -> socket.socket:
        """Return a connection to the keeper.

        Raises
        ------
        SlurmError, OSError
            No way leads there now.
        """
        if self._tunnel is None:
            try:
                self._tunnel = await self._do(self._open_tunnel)
            except NotConnected:
                await self._log_in_again()
                raise
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.setblocking(False)
            async with asyncio.timeout(_CONNECTS_WITHIN):
                await asyncio.get_running_loop().sock_connect(connection, str(self._tunnel.socket))
        except BaseException:
            connection.close()
            self._tunnel = None  # an agent that has ended took it along; the next one has it again
            raise
        return connection

    async def _log_in_again(self) -> None:
        with contextlib.suppress(AgentError):
            await self._do(self._there.log_in_again)

    def _open_tunnel(self) -> Tunnel:
        where = self._kernel.where(_WAIT)
        if not where["port"]:
            raise TunnelError("Where the kernel listens is not known now.")
        return open_tunnel(self._there, str(self._granted.key), where["port"], node=where["node"], socket=True)


def _shown(where: api.KernelPlace) -> str:
    return f"{where['stage']} …" if where["stage"] else ""


_OF_ALLOCATION = ("on", "lease")


def is_of_same_allocation(before: Sequence[str], now: MagicLine, cluster: Cluster) -> bool:
    """Tell whether words ask for such an allocation as a line does: a kernelspec may change, and be restarted.

    Parameters
    ----------
    before : sequence of str
        The words of a kernelspec.
    now : MagicLine
        Those of another one.
    cluster : Cluster
        Where.
    """
    _, line = named_in(shlex.join(before))
    parsed = parse_cell_line(line, option_table(cluster, "sbatch"), WORDS)
    asked = [
        (
            [(option.name, option.value) for option in one.parsed.options],
            [one.words.get(word) for word in _OF_ALLOCATION],
        )
        for one in (parsed, now)
    ]
    return asked[0] == asked[1]
