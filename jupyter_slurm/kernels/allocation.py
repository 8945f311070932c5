"""Allocation and step of a remote kernel, and their ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.kernels.kernel import KernelStep
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.domain.advice.endings import is_near_limit
from jupyter_slurm.domain.slurm_values import format_duration
from jupyter_slurm.errors import JobNotFound, SlurmError
from jupyter_slurm.kernels import notices
from jupyter_slurm.kernels import state_file as signposts
from jupyter_slurm.kernels.login import ClusterLogin, start_in_background
from jupyter_slurm.kernels.release import schedule_release
from jupyter_slurm.kernels.state_file import KernelStateFile

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster

__all__ = ["KernelAllocation", "release_leftover"]

log = logging.getLogger(__name__)

_T = TypeVar("_T")
_RETRY_INTERVAL_S = 1.0  # seconds between two attempts without an answer
_END_NOTICE_TIMEOUT_S = 15.0  # seconds in which Slurm reports how a job ended
_LAST_REQUEST_TIMEOUT_S = 30.0  # seconds for a pending request whose result is no longer wanted
_TAKEOVER_TIMEOUT_S = 15.0  # seconds for another proxy to take over the kernel of a proxy without provisioner
# Seconds between attempts of a release; after an hour, the lease has ended the allocation or soon will.
_RELEASE_RETRY_DELAYS_S = (2.0, 5.0, 10.0, 30.0, 60.0, 60.0, 120.0, *[300.0] * 12)


class KernelAllocation:
    """The allocation and the step of one kernel.

    Parameters
    ----------
    arguments : sequence of str
        Request of the kernelspec: cluster, options of sbatch, keywords.
    signpost : KernelStateFile
        State file for the next proxy.
    name, display_name : str
        The kernelspec, and its displayed name.
    is_alone : bool
        Whether the parent of the proxy does not use the Slurm provisioner: the proxy gets only a signal when its client
        ends or restarts the kernel, and the next proxy has another connection file.
    is_lost : bool
        Whether nobody can find the kernel again after the end of the proxy's parent, as without a notebook.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        signpost: KernelStateFile,
        *,
        name: str = "",
        display_name: str = "",
        is_alone: bool = False,
        is_lost: bool = False,
    ) -> None:
        self._is_alone, self._is_lost = is_alone, is_lost
        self._arguments, self._signpost, self._name, self._display_name = list(arguments), signpost, name, display_name
        self._entrance = ClusterLogin(arguments)
        self._allocation: Allocation | None = None
        self._step: KernelStep | None = None
        self._former: str | None = None  # a step that is ending
        self._restarts = 0  # restarts of the allocation, when the kernel started
        self._calls: set[asyncio.Future[Any]] = set()

    # The end ----------------------------------------------------------------------------------------------------

    async def ended(self, *, wait: bool = False) -> str | None:
        """Return why the kernel has ended; None if it has not, or the reason is unknown."""
        loop = asyncio.get_running_loop()
        until, why = loop.time() + _END_NOTICE_TIMEOUT_S, None
        while True:
            with contextlib.suppress(SlurmError):
                if (told := await self._do(self._end_state)) is not None:
                    why, is_settled = told
                    if is_settled:
                        return why
            if not wait or loop.time() >= until:
                return why
            await asyncio.sleep(_RETRY_INTERVAL_S)

    def _end_state(self) -> tuple[str, bool] | None:
        """Return why the step, or the whole allocation, has ended, and whether this reason is final."""
        told = self._kernel.refresh()._data, self._granted.refresh()._data, self._restarts
        if not notices.is_over(*told):
            return None
        is_settled = notices.is_settled(*told)
        if not is_settled:
            # makes the agent query the queue
            self._cluster.client.get(self._cluster.path("jobs"), params={"state": "active"})
        has_failed = told[1]["finished"] and told[1]["state"] == "FAILED"
        said = sentences(*self._granted.tail(2, "stderr").splitlines()) if has_failed else ""
        return notices.why(*told, said), is_settled

    async def unused_event(self) -> str:
        """Return the event of a keeper that ended the kernel because nobody used it; empty otherwise."""
        with contextlib.suppress(SlurmError):
            return str((await self._do(self._kernel.connection_data)).get("unused") or "")
        return ""

    async def end_warning(self) -> str:
        """Return a warning that the allocation will end soon; empty otherwise."""
        with contextlib.suppress(SlurmError):
            data = await self._do(lambda: self._granted.data)
            left = allocation_card.remaining_time(data)
            if left is not None and is_near_limit(left, data["time_limit"] or 0):
                return f"Warning: this kernel's allocation ends in {format_duration(left)}, and its variables with it."
        return ""

    async def trouble(self) -> str:
        """Return the cause of a connection outage; empty if it is unknown, or the user cannot remove it."""
        return await self._do(self._entrance.trouble)

    async def is_over(self) -> bool:
        """Return whether the allocation has ended."""
        with contextlib.suppress(SlurmError):
            step = None if self._step is None else await self._do(lambda: self._kernel.refresh()._data)
            return notices.is_allocation_over(
                step, await self._do(lambda: self._granted.refresh()._data), self._restarts
            )
        return False

    async def retention_text(self) -> str:
        """Return a note that the allocation exists without a kernel, and for how long; empty otherwise."""
        with contextlib.suppress(SlurmError):
            if self._allocation is not None:
                return await self._do(lambda: notices.retained_allocation_text(self._granted.refresh()._data))
        return ""

    def mark(self, state: str) -> None:
        """Write the state for the next proxy; ``over``: the kernel cannot be resumed, and its remains will be ended."""
        if state == "over" or self._signpost.data:
            self._signpost.write(state=state)

    def record_progress(self, received: int) -> None:
        """Write the number of the last keeper message that was passed on."""
        if self._signpost.data:
            self._signpost.write(received=received)

    async def release(self, *, restart: bool) -> None:
        """End the step and, without ``restart``, the allocation, unless others use it."""
        if self._calls:  # their results must be known for the release
            await asyncio.wait(self._calls, timeout=_LAST_REQUEST_TIMEOUT_S)
        await self._do(lambda: self._end(restart))
        if not restart:
            self._signpost.remove()
        elif self._is_alone:
            self.leave()

    async def abandon(self) -> bool:
        """Release the remains of an earlier proxy, once the cluster answers; return whether this was done."""
        for pause in (0.0, *_RELEASE_RETRY_DELAYS_S):
            await asyncio.sleep(pause)
            try:
                await self._do(self._entrance.arrive)
                await self._do(self._find_existing)
                await self.release(restart=False)
            except (SlurmError, OSError) as error:
                log.warning("what is left of a kernel cannot be given back yet: %s", error)
                continue
            return True
        return False

    def _find_existing(self) -> None:
        """Find the allocation by key or by label: its proxy may have been killed before it received the key."""
        left, cluster = self._signpost.data, self._cluster
        key, label = left.get("allocation"), left.get("label")
        if not (key or label):
            return  # the proxy had not requested an allocation
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
        """Let the kernel continue; if nobody can find it again, only until the limit for a take-over."""
        if self._is_lost and self._signpost.data:
            self._signpost.write(state="restarting")
            schedule_release(self._signpost.path.removesuffix(signposts.STATE_FILE_SUFFIX), after=_TAKEOVER_TIMEOUT_S)

    # Helpers ----------------------------------------------------------------------------------------------------

    @property
    def _cluster(self) -> Cluster:
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
        """Run a blocking call in a thread; it continues if the awaiting task is cancelled.

        It does not delay the end of this process: the next proxy waits for the lock of the state file.
        """
        made = asyncio.wrap_future(start_in_background(call))
        self._calls.add(made)
        made.add_done_callback(self._calls.discard)
        # retrieves the exception of a call that is no longer awaited
        made.add_done_callback(lambda done: done.cancelled() or done.exception())
        return await asyncio.shield(made)


def release_leftover(connection_file: str, *, is_detached: bool = False) -> int:
    """Release the remains of a kernel whose proxy was killed, or left it; return the exit code."""
    if not signposts.read(connection_file):
        return 0
    signpost = KernelStateFile(connection_file)
    if not signpost.data:  # another proxy has taken the kernel over meanwhile
        signpost.remove()
        return 0
    if is_detached and signpost.data.get("state") != "restarting":  # or has it again
        return 0
    return 0 if asyncio.run(KernelAllocation(signpost.data.get("words") or [], signpost).abandon()) else 1
