"""What a kernel on a node holds, its allocation and its step, and how they end."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.kernels.kernel import KernelStep
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.job_card import duration, sentences
from jupyter_slurm.domain.advice.endings import is_near
from jupyter_slurm.errors import JobNotFound, SlurmError
from jupyter_slurm.kernels import end_reason
from jupyter_slurm.kernels import state_file as signposts
from jupyter_slurm.kernels.login import ClusterLogin
from jupyter_slurm.kernels.release import give_back_later
from jupyter_slurm.kernels.state_file import KernelStateFile

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster

__all__ = ["KernelAllocation", "give_back"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_LOOK = 1.0  # seconds between two attempts, where nobody answers
_TOLD_WITHIN = 15.0  # seconds in which Slurm tells how something ended
_LAST_CALL = 30.0  # seconds for a request that is under way, when what it asks for is not wanted any more
_RESTARTS_WITHIN = 15.0  # seconds for another front to take over what one had that is alone
# Seconds between attempts to give something back; after an hour, the lease has done it or is about to.
_PAUSES = (2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 120.0, *[300.0] * 12)


class KernelAllocation:
    """The allocation and the step of one kernel.

    Parameters
    ----------
    words : sequence of str
        What the kernelspec asks for: cluster, options of sbatch, our words.
    signpost : KernelStateFile
        What is left for who comes next.
    name, display_name : str
        The kernelspec, and how that is shown.
    is_alone : bool
        Whoever has started the front knows nothing of our provisioner: a signal is all that it hears when its client
        ends or restarts the kernel, and the next one has another connection file.
    is_lost : bool
        When whoever has started the front is gone, nobody will find the kernel again, as without a notebook.
    """

    def __init__(
        self,
        words: Sequence[str],
        signpost: KernelStateFile,
        *,
        name: str = "",
        display_name: str = "",
        is_alone: bool = False,
        is_lost: bool = False,
    ) -> None:
        self._is_alone, self._is_lost = is_alone, is_lost
        self._words, self._signpost, self._name, self._shown_as = list(words), signpost, name, display_name
        self._entrance = ClusterLogin(words)
        self._allocation: Allocation | None = None
        self._step: KernelStep | None = None
        self._former: str | None = None  # a step that is being ended
        self._restarts = 0  # of the allocation, when the kernel began
        self._calls: set[asyncio.Future[Any]] = set()

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
        if not end_reason.is_over(*told):
            return None
        is_settled = end_reason.is_settled(*told)
        if not is_settled:
            self._there.client.get(self._there.path("jobs"), params={"state": "active"})  # has the queue looked at
        has_failed = told[1]["finished"] and told[1]["state"] == "FAILED"
        said = sentences(*self._granted.tail(2, "stderr").splitlines()) if has_failed else ""
        return end_reason.why(*told, said), is_settled

    async def near_end(self) -> str:
        """Return a warning that the allocation is about to end; empty while it is not, or nobody knows."""
        with contextlib.suppress(SlurmError):
            data = await self._do(lambda: self._granted.data)
            left = allocation_card.time_left(data)
            if left is not None and is_near(left, data["time_limit"] or 0):
                return f"Warning: this kernel's allocation ends in {duration(left)}, and its variables with it."
        return ""

    async def trouble(self) -> str:
        """Return what the way to the cluster waits for; empty: nobody knows, or nothing can be done about it."""
        return await self._do(self._entrance.trouble)

    async def is_gone(self) -> bool:
        """Tell whether the allocation is over."""
        with contextlib.suppress(SlurmError):
            step = None if self._step is None else await self._do(lambda: self._kernel.refresh()._data)
            return end_reason.is_gone(step, await self._do(lambda: self._granted.refresh()._data), self._restarts)
        return False

    async def kept(self) -> str:
        """Return that the allocation is there without a kernel, and for how long; empty: it is not."""
        with contextlib.suppress(SlurmError):
            if self._allocation is not None:
                return await self._do(lambda: end_reason.kept(self._granted.refresh()._data))
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
                self._step = KernelStep(cluster, cluster.client.get(cluster.path("jobs", str(left["step"]))))

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


def give_back(connection_file: str, *, is_left: bool = False) -> int:
    """Give back what a kernel has left whose front was killed, or has left it; return the exit code."""
    if not signposts.read(connection_file):
        return 0
    signpost = KernelStateFile(connection_file)
    if not signpost.data:  # a front has taken it over meanwhile
        signpost.remove()
        return 0
    if is_left and signpost.data.get("state") != "restarting":  # or had it again
        return 0
    return 0 if asyncio.run(KernelAllocation(signpost.data.get("words") or [], signpost).abandon()) else 1
