"""Allocations that stay open under a notebook, and their steps."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, cast

from jupyter_slurm.client.allocations import kernel_end
from jupyter_slurm.client.allocations.unrepeatable_job import UnrepeatableJob
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.jobs import array, wait
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import AllocationList, JobList
from jupyter_slurm.client.jobs.request import report_warnings
from jupyter_slurm.client.jobs.upload import submit_once
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.render import allocation_card
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.client.sessions.session import Session
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.errors import JobError, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "Allocation",
    "KernelCell",
    "RemoteCell",
    "Step",
    "allocate",
    "allocations",
    "handle",
    "open_allocations",
    "start_step",
]

# The state of a step or a cell that was interrupted before its allocation has started.
STILL_WAITS_TEXT = "still waits, and is dropped when it could start"

_KERNEL_END_TIMEOUT_S = 3.0  # seconds for the request of a kernel that ends; the agent continues alone
_START_NOTICE_TIMEOUT_S = 3.0  # seconds within which the start of an allocation is known
_INTERRUPT_TIMEOUT_S = 10.0  # seconds for an interrupted step
_PYTHON_KEYS = ("python", "default_python", "env")
_COMMAND_KEYS = ("options", "args", "node_variables")
_STEP_KEYS = (*_PYTHON_KEYS, *_COMMAND_KEYS, "key", "kind", "text", "filename", "values", "context")
_mine: list[Allocation] = []  # of this kernel, the latest last


class Allocation(UnrepeatableJob):
    """Resources that Slurm keeps for you: ``%srun`` and ``%%srun`` use them.

    Returned by ``%salloc``, :func:`jupyter_slurm.allocations` and :func:`jupyter_slurm.job`. In addition to the
    attributes of every :class:`Job`:
    """

    @property
    def label(self) -> str | None:
        """Return the name that ``as=`` gave."""
        return self._data.get("label")

    @property
    def keep(self) -> bool:
        """Return whether the allocation outlives the kernel that requested it."""
        return bool(self._data.get("keep"))

    @property
    def lease(self) -> float | None:
        """Return the seconds of disuse after which the allocation ends; None: it ends with its first step."""
        return self._data.get("lease")

    @property
    def gpus(self) -> int | None:
        """Return the number of GPUs; None before the allocation has started."""
        return self.data.get("gpus")

    @property
    def time_left(self) -> float | None:
        """Return the seconds until the time limit; None without a limit, and while the allocation is not running."""
        return allocation_card.remaining_time(self.data)

    @property
    def is_open(self) -> bool:
        """Return whether steps can be started. Steps wait until the allocation has started."""
        return allocation_card.is_open(self.data)

    @property
    def steps(self) -> JobList[Step]:
        """Return the steps that this kernel has started in the allocation, the first one first."""
        found = self._cluster.client.get(self._path("steps"))
        return JobList(step for data in found if isinstance(step := handle(self._cluster, data), Step))

    def release(self) -> Allocation:
        """Release the allocation, with every step in it."""
        self.cancel()
        return self

    def wait_granted(self, timeout: float | None = None) -> Allocation:
        """Wait until the allocation has started.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default without end.

        Raises
        ------
        JobError
            The allocation ended before its start.
        TimeoutError
            The timeout is over; the request continues.
        WaitInterrupted
            The wait was interrupted; the request continues.
        """
        deadline, follower = None if timeout is None else time.monotonic() + timeout, self._follow()
        try:
            while not self.is_finished and self.state != "RUNNING":
                if deadline is not None and time.monotonic() >= deadline:
                    raise TimeoutError(f"{self.title} has not started after {timeout:g} s: {self.state}.")
                follower.ended.wait(0.2)
        except KeyboardInterrupt:
            raise WaitInterrupted(
                f"Stopped waiting. {self.title} is still requested. Use .release() to cancel the request."
            ) from None
        for shown in self._views:  # at once: the waiting user looks now
            shown.draw()
        if self.is_finished:
            other = "Name a running job with on=." if self._data.get("joined") else "Request another one with %salloc."
            raise JobError(f"{self.title} has ended: {self.state}.", hint=self.reason_text or other)
        return self


class Step(UnrepeatableJob):
    """A step of an allocation. An interrupted wait, and :meth:`interrupt`, interrupt it; the allocation continues."""

    _survivor_text, _in_any_case = "its allocation stays open", ".cancel() ends the step in any case"

    @property
    def allocation(self) -> Allocation:
        """Return the allocation of the step."""
        path = self._cluster.path("jobs", str(self._data["allocation"]))
        return Allocation(self._cluster, self._cluster.client.get(path))

    def interrupt(self) -> Step:
        """Interrupt the step as Ctrl-C does; :meth:`cancel` ends it in any case."""
        self.cancel("INT")
        return self

    def _wait(self, timeout: float | None, *, check: bool, echo: bool, is_requested: bool = False) -> Job:
        follower = self._follow()
        try:
            wait.wait_and_print(self, follower, timeout, echo=echo, on_interrupt=lambda _: self._interrupted(follower))
        except WaitInterrupted:
            for shown in self._views:
                shown.finish()
            raise
        return self._over(follower, check, echo=echo, is_requested=is_requested)

    def _is_queued(self) -> bool:
        place = self.allocation
        return place.state == "PENDING" and place.lease is not None

    def _interrupted(self, follower: Follower) -> WaitInterrupted:
        """Interrupt the step; a second interrupt ends it."""
        self._data = follower.data  # with the number of the step
        try:
            try:
                answers_within = _KERNEL_END_TIMEOUT_S if follower.trouble else _INTERRUPT_TIMEOUT_S
                self._cluster.client.post(self._path("cancel"), json={"signal": "INT"}, timeout=answers_within)
                if self._is_queued() and not follower.ended.wait(_START_NOTICE_TIMEOUT_S) and self._is_queued():
                    return WaitInterrupted(f"{self.title} {STILL_WAITS_TEXT}.")
                if follower.ended.wait(_INTERRUPT_TIMEOUT_S):
                    if follower.data.get("id") is None:
                        return WaitInterrupted(f"{self.title} was cancelled before it started, as srun does.")
                    return WaitInterrupted(f"{self.title} was interrupted; {self._survivor_text}.")
            except KeyboardInterrupt:
                self.cancel()
                if follower.ended.wait(_INTERRUPT_TIMEOUT_S):
                    return WaitInterrupted(f"{self.title} was ended; {self._survivor_text}.")
        except KeyboardInterrupt:
            pass
        except SlurmError as error:
            why = sentences(follower.trouble or error.message)
            return WaitInterrupted(
                f"{self.title} could NOT be interrupted and may keep running. {why} Use .interrupt() to try again."
            )
        return WaitInterrupted(f"{self.title} was interrupted and has not ended yet; {self._in_any_case}.")


class RemoteCell(Step):
    """A cell that runs in a process of an allocation (``%%remote``). :meth:`cancel` interrupts the cell, too."""

    _survivor_text = "its process keeps running, with all variables"
    _in_any_case = "`%remote restart` ends its process and deletes all variables"

    @property
    def process(self) -> Step:
        """Return the process that runs the cell."""
        return Step(self._cluster, self._cluster.client.get(self._cluster.path("jobs", str(self._data["process"]))))


class KernelCell(RemoteCell):
    """A cell that runs in the kernel of another notebook (``%%remote kernel``)."""

    _survivor_text = "the kernel keeps running, with all variables"
    _in_any_case = "Restarting the kernel in its notebook ends the cell and deletes all variables"


def handle(cluster: Cluster, data: api.Job) -> Job:
    """Return the handle of a job, an array, an allocation or a step from its API object."""
    if data.get("allocation"):
        return _step_class(data)(cluster, data)
    if data.get("kind") == "allocation":
        return Allocation(cluster, data)
    if data.get("kind") == "session":
        return Session(cluster, data)
    return array.handle(cluster, data)


def allocate(
    cluster: Cluster,
    submission: Submission,
    *,
    lease: float,
    label: str | None = None,
    keep: bool = False,
    once: bool = False,
    kernel: api.Kernel | None = None,
) -> Allocation:
    """Request an allocation, once.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the allocation.
    submission : Submission
        The options of sbatch, and the Python on the node that holds the allocation.
    lease : float
        Seconds without use after which the allocation ends.
    label : str, optional
        Name of the allocation.
    keep : bool
        Whether the allocation outlives this kernel.
    once : bool
        Whether the allocation ends with its first step.
    kernel : mapping, optional
        The kernel of a notebook that the allocation is for.
    """
    with submission.body(cluster) as body:
        asked: api.Submission = {**body, "lease": {"seconds": lease, "once": once, "keep": keep}, "label": label}
        if kernel is not None:
            asked["kernel"] = {**kernel}
        try:
            data = cluster.client.post(cluster.path("jobs"), json=asked)
        except KeyboardInterrupt:
            if once:
                _release_unanswered(cluster, asked)
            raise WaitInterrupted(
                f"Interrupted while sbatch was running: the allocation may or may not exist. Find it with "
                f"jupyter_slurm.job({body['key']!r}), and use .release() to release it."
            ) from None
    report_warnings(data)
    allocation = Allocation(cluster, data, from_start=True)
    if not once:
        allocation._follow()  # following counts as use, even if nothing is drawn
        _mine.append(allocation)
        if not keep:
            kernel_end.release_at_exit(allocation)
    return allocation


def _release_unanswered(cluster: Cluster, requested: api.Submission) -> None:
    """Release a request without an answer: the same request again returns the same job."""
    with contextlib.suppress(SlurmError, KeyboardInterrupt):
        Allocation(cluster, cluster.client.post(cluster.path("jobs"), json=requested)).release()


def start_step(cluster: Cluster, allocation: Allocation, submission: Submission, *, process: str | None = None) -> Step:
    """Start a step in an allocation, once. With the key of a ``process`` or a kernel, start a cell in it."""
    # A cell that uses the kernel of a notebook does not keep the kernel's allocation after the shutdown of that kernel.
    is_kept_by_use = allocation.label or allocation in _mine or allocation._data.get("joined")
    if is_kept_by_use and not allocation._data.get("kernel"):
        allocation._follow()
    with submission.body(cluster) as body:
        try:
            asked = cast("api.Step", {name: value for name, value in body.items() if name in _STEP_KEYS})
            if process is not None:
                asked["process"] = process
            data = submit_once(cluster, allocation._path("steps"), asked)
        except WaitInterrupted:
            raise
        except KeyboardInterrupt:
            raise WaitInterrupted(
                f"Interrupted while the step was started: it may or may not exist. Find it with "
                f"jupyter_slurm.job({body['key']!r})."
            ) from None
    return _step_class(data)(cluster, data, from_start=True)


def _step_class(data: api.Job) -> type[Step]:
    if not data.get("process"):
        return Step
    return KernelCell if data.get("kernel") else RemoteCell


def allocations() -> AllocationList[Allocation]:
    """Return your unfinished allocations, of every kernel, the latest first.

    Allocations that ``%srun`` requested for one step are included.
    """
    return AllocationList(open_allocations(current()))


def open_allocations(cluster: Cluster) -> list[Allocation]:
    """Return the unfinished allocations of every kernel."""
    told = cluster.client.get(cluster.path("jobs"), params={"state": "active"})
    held = [data for data in told if data.get("kind") == "allocation" and allocation_card.is_open(data)]
    return [Allocation(cluster, data) for data in held]
