"""From what a kernelspec asks for to a kernel on a node: log-in, allocation, step, and the way there."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import shlex
import socket
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.domain.endings import is_near
from jupyter_slurm.domain.line import MagicLine
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
from jupyter_slurm.handles import held
from jupyter_slurm.handles.allocation import Allocation
from jupyter_slurm.handles.card import duration, sentences
from jupyter_slurm.handles.kernel import KernelStep, ask, start
from jupyter_slurm.handles.serving import start_note
from jupyter_slurm.handles.submitting import new_key
from jupyter_slurm.handles.tunnel import Tunnel, open_tunnel
from jupyter_slurm.kernels import fate
from jupyter_slurm.kernels import signpost as signposts
from jupyter_slurm.kernels.asked import is_of_same_allocation
from jupyter_slurm.kernels.entrance import Entrance
from jupyter_slurm.kernels.front import CannotBegin
from jupyter_slurm.kernels.giving_back import give_back_later
from jupyter_slurm.kernels.signpost import Signpost
from jupyter_slurm.kernels.standin import StandIn

if TYPE_CHECKING:
    from jupyter_slurm.handles.cluster import Cluster

__all__ = ["Ascent"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_WAIT = 1.0  # seconds after which it is looked again why it does not begin
_LOOK = 1.0  # seconds between two attempts, where nobody answers
_LOGS_IN = 5.0  # seconds between two looks whether somebody has answered, or the link is back
_CONNECTS_WITHIN = 10.0
_TOLD_WITHIN = 15.0  # seconds in which Slurm tells how something ended
_REQUEUED_WITHIN = 120.0  # seconds; Slurm waits KillWait for what runs there, half a minute by itself
_LAST_CALL = 30.0  # seconds for a request that is under way, when what it asks for is not wanted any more
_SECRET = 32
_RESTARTS_WITHIN = 15.0  # seconds for another front to take over what one had that is alone
# Seconds between attempts to give something back; after an hour, the lease has done it or is about to.
_PAUSES = (2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 120.0, *[300.0] * 12)


class Ascent:
    """The allocation and the step of one kernel.

    Parameters
    ----------
    words : sequence of str
        What the kernelspec asks for: cluster, options of sbatch, our words.
    signpost : Signpost
        What is left for who comes next.
    name, display_name : str
        The kernelspec, and how that is shown.
    is_alone : bool
        Whoever has started the front knows nothing of our provisioner: a signal is all that it hears when its client
        ends or restarts the kernel, and the next one has another connection file.
    is_lost : bool
        When whoever has started the front is gone, nobody will find the kernel again, as without a notebook.
    """

    secret: bytes = b""
    is_known = False
    received = 0

    def __init__(
        self,
        words: Sequence[str],
        signpost: Signpost,
        *,
        name: str = "",
        display_name: str = "",
        is_alone: bool = False,
        is_lost: bool = False,
    ) -> None:
        self._is_alone, self._is_lost = is_alone, is_lost
        self._words, self._signpost, self._name, self._shown_as = list(words), signpost, name, display_name
        self._entrance = Entrance(words)
        self._allocation: Allocation | None = None
        self._step: KernelStep | None = None
        self._tunnel: Tunnel | None = None
        self._former: str | None = None  # a step that is being ended
        self._restarts = 0  # of the allocation, when the kernel began
        self._calls: set[asyncio.Future[Any]] = set()

    # On the way up ----------------------------------------------------------------------------------------------

    async def climb(self, standin: StandIn) -> None:
        """Have the kernel begin; say on the way what it waits for.

        Raises
        ------
        CannotBegin
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
            raise CannotBegin(str(error)) from error

    async def _set_out(self, standin: StandIn) -> None:
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

    async def _requeued(self, standin: StandIn) -> None:
        """Wait for an allocation that Slurm is putting back into the queue: until then nothing starts in it."""
        until = asyncio.get_running_loop().time() + _REQUEUED_WITHIN
        while asyncio.get_running_loop().time() < until and await self._do(self._is_being_requeued):
            standin.say("Slurm is putting its allocation back into the queue …")
            await asyncio.sleep(_LOOK)

    def _is_being_requeued(self) -> bool:
        cluster, key = self._there, self._signpost.data.get("allocation")
        with contextlib.suppress(JobNotFound):
            told = cluster.client.get(cluster.path("jobs", str(key))) if key else None
            if told and fate.is_ending(told) and told.get("restarts"):
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

    def _is_attachable(self, left: Mapping[str, Any]) -> bool:
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
            known = {"words": self._words, "cluster": cluster.name, "shared": "on" in words}
            post.write(**known, state="starting", label=label, allocation=None, step=None)
            self._allocation = ask(cluster, parsed, **whose, label=label)
            post.write(allocation=self._allocation.key)
        self._allocation._follow()  # whoever follows it uses it, and is told what becomes of it
        if not (post.data.get("step") and post.data.get("state") == "starting"):
            # First: whoever comes after a front that was killed as it asked finds the step, or asks for the same one.
            secret = secrets.token_bytes(_SECRET).hex()
            post.write(words=self._words, step=new_key(), secret=secret, state="starting", received=0)
        key, self.secret = str(post.data["step"]), bytes.fromhex(str(post.data["secret"]))
        self._step = start(cluster, self._allocation, parsed, secret=self.secret, key=key, **whose)

    async def _wait(self, standin: StandIn) -> None:
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
                raise CannotBegin(await self.ended(wait=True) or "The kernel is over before it began.")
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
        trouble = (data.get("error") or {}).get("detail")
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

    # The end ----------------------------------------------------------------------------------------------------

    async def ended(self, *, wait: bool = False) -> str | None:
        """Return why the kernel is over; None: it is not, or nobody knows."""
        loop = asyncio.get_running_loop()
        until, why = loop.time() + _TOLD_WITHIN, None
        while True:
            with contextlib.suppress(SlurmError):
                if (told := await self._do(self._look)) is not None:
                    why, is_settled = told
                    if is_settled:
                        return why
            if not wait or loop.time() >= until:
                return why
            await asyncio.sleep(_LOOK)

    def _look(self) -> tuple[str, bool] | None:
        """Return why the step, or all of the allocation, is over, and whether there will be no better words."""
        told = self._kernel.refresh()._data, self._granted.refresh()._data, self._restarts
        if not fate.is_over(*told):
            return None
        is_settled = fate.is_settled(*told)
        if not is_settled:
            self._there.client.get(self._there.path("jobs"), params={"state": "active"})  # has the queue looked at
        has_failed = told[1]["finished"] and told[1]["state"] == "FAILED"
        said = " ".join(self._granted.tail(2, "stderr").split()) if has_failed else ""
        return sentences(fate.why(*told), said), is_settled

    async def near_end(self) -> str:
        """Return a warning that the allocation is about to end; empty while it is not, or nobody knows."""
        with contextlib.suppress(SlurmError):
            data = await self._do(lambda: self._granted.data)
            left = held.time_left(data)
            if left is not None and is_near(left, data["time_limit"]):
                return f"Warning: this kernel's allocation ends in {duration(left)}, and its variables with it."
        return ""

    async def trouble(self) -> str:
        """Return what the way to the cluster waits for; empty: nobody knows, or nothing can be done about it."""
        return await self._do(self._entrance.trouble)

    async def is_gone(self) -> bool:
        """Tell whether the allocation is over."""
        with contextlib.suppress(SlurmError):
            step = None if self._step is None else await self._do(lambda: self._kernel.refresh()._data)
            return fate.is_gone(step, await self._do(lambda: self._granted.refresh()._data), self._restarts)
        return False

    async def kept(self) -> str:
        """Return that the allocation is there without a kernel, and for how long; empty: it is not."""
        with contextlib.suppress(SlurmError):
            if self._allocation is not None:
                return await self._do(lambda: fate.kept(self._granted.refresh()._data))
        return ""

    def mark(self, state: str) -> None:
        """Leave word for who comes next; ``over``: there is nothing to come back to, and what runs still is ended."""
        if state == "over" or self._signpost.data:
            self._signpost.write(state=state)

    def took(self, received: int) -> None:
        """Leave word of how far the messages of the keeper were passed on."""
        if self._signpost.data:
            self._signpost.write(received=received)

    async def give_back(self, *, restart: bool) -> None:
        """End the step and, without ``restart``, the allocation, unless somebody else uses it."""
        if self._calls:  # what they ask for is to be known, to be given back
            await asyncio.wait(self._calls, timeout=_LAST_CALL)
        await self._do(lambda: self._end(restart))
        if not restart:
            self._signpost.remove()
        elif self._is_alone:
            self.leave()

    async def abandon(self) -> bool:
        """Give back what an earlier front has left, as soon as somebody listens; tell whether that was done."""
        for pause in (0.0, *_PAUSES):
            await asyncio.sleep(pause)
            try:
                await self._do(self._entrance.arrive)
                await self._do(self._find_left)
                await self.give_back(restart=False)
            except (SlurmError, OSError) as error:
                log.warning("what is left of a kernel cannot be given back yet: %s", error)
                continue
            return True
        return False

    def _find_left(self) -> None:
        """Find the allocation, also by its label: its front may have been killed before it heard the key."""
        left, cluster = self._signpost.data, self._there
        key, label = left.get("allocation"), left.get("label")
        if not (key or label):
            return  # it had not asked for one
        for told in cluster.client.get(cluster.path("jobs"), params={"state": "active"}):
            is_ours = told["kind"] == "allocation" and told["label"] == label
            if (told["key"] == key) if key else is_ours:
                self._allocation = Allocation(cluster, told)
        if left.get("step"):
            with contextlib.suppress(JobNotFound):
                self._step = KernelStep(cluster, cluster.client.get(cluster.path("jobs", left["step"])))

    def _end(self, restart: bool) -> None:
        if self._step is not None:
            self._step.cancel()
        if restart or self._allocation is None or self._signpost.data.get("shared"):
            return
        own = {self._former, self._step.key if self._step is not None else None, self._signpost.data.get("step")}
        # Cells of other notebooks in this kernel end with it.
        beside = [one for one in self._allocation.steps if own.isdisjoint((one.key, one._data["process"]))]
        others = [one for one in beside if not one.is_finished]
        if not others:
            self._allocation.release()

    def leave(self) -> None:
        """Let the kernel go on; where nobody could find it again, only until a restart would have taken it over."""
        if self._is_lost and self._signpost.data:
            self._signpost.write(state="restarting")
            give_back_later(self._signpost.path.removesuffix(signposts.ENDING), after=_RESTARTS_WITHIN)

    # Beneath ----------------------------------------------------------------------------------------------------

    @property
    def _there(self) -> Cluster:
        return self._entrance.cluster

    @property
    def _granted(self) -> Allocation:
        assert self._allocation is not None
        return self._allocation

    @property
    def _kernel(self) -> KernelStep:
        assert self._step is not None
        return self._step

    async def _do(self, call: Callable[[], _T]) -> _T:
        """Make a call that blocks; it goes on when nobody waits for it any more."""
        made = asyncio.ensure_future(asyncio.to_thread(call))
        self._calls.add(made)
        made.add_done_callback(self._calls.discard)
        made.add_done_callback(lambda done: done.exception())  # of one that nobody waits for any more, too
        return await asyncio.shield(made)


def _shown(where: Mapping[str, Any]) -> str:
    return f"{where['stage']} …" if where["stage"] else ""


def give_back(connection_file: str, *, is_left: bool = False) -> int:
    """Give back what a kernel has left whose front was killed, or has left it; return the exit code."""
    if not signposts.read(connection_file):
        return 0
    signpost = Signpost(connection_file)
    if not signpost.data:  # a front has taken it over meanwhile
        signpost.remove()
        return 0
    if is_left and signpost.data.get("state") != "restarting":  # or had it again
        return 0
    return 0 if asyncio.run(Ascent(signpost.data.get("words") or [], signpost).abandon()) else 1
