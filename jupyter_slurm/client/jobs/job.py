"""Handle of a job, returned by a cell and found again after a restart of the kernel."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, ClassVar

from jupyter_slurm.client import interrupts
from jupyter_slurm.client.card_controls import controls_of
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.clusters.tunnel import Tunnel, open_tunnel
from jupyter_slurm.client.jobs import wait as waiting
from jupyter_slurm.client.jobs.actions import JobActionsMixin
from jupyter_slurm.client.jobs.attributes import JobAttributesMixin
from jupyter_slurm.client.jobs.failure import failure, values_missing, without_log
from jupyter_slurm.client.jobs.record_and_resubmission import RecordMixin, repeat
from jupyter_slurm.client.jobs.report import Report
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.reader import OutputReader
from jupyter_slurm.client.render.job_card import headline, is_finished, output_path, title
from jupyter_slurm.client.render.table import CommandText
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import JobEndUnknown, JobFailed, JobOutputMissing, SlurmError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.jobs.returned_values import Outputs
    from jupyter_slurm.domain import api_types as api

__all__ = ["Job"]

_CACHE_AGE_S = 1.0  # seconds for which an answer of the agent is reused


class Job(JobAttributesMixin, RecordMixin, JobActionsMixin):
    """One job of a cluster; of an array, see :class:`jupyter_slurm.ArrayJob`.

    Returned by ``%%sbatch``, :func:`jupyter_slurm.job` and :func:`jupyter_slurm.jobs`. Times are seconds since the
    epoch. A value that is not (yet) known is None. An attribute asks the agent, not Slurm, and takes about a
    millisecond. ``str(job)`` is its Slurm id, so that ``%scancel {job}`` works.
    """

    _kind_of_array: ClassVar[type[Job] | None] = None

    def __init_subclass__(cls, *, is_array: bool = False, **more: Any) -> None:
        """Register the handle of arrays: a subclass, which this module cannot import."""
        super().__init_subclass__(**more)
        if is_array:
            Job._kind_of_array = cls

    def __init__(self, cluster: Cluster, data: api.Job, *, from_start: bool = False, task: int | None = None) -> None:
        self._cluster = cluster
        self._data: api.Job = {**data}
        self._task = task
        self._updated_at = time.monotonic()
        self._from_start = from_start
        self._follower: Follower | None = None
        self._views: list[live_view.LiveView] = []
        self._is_shown = False
        self._submitted_in = live_view.cell_name(live_view.notebook()) if from_start else None
        self._outputs: Outputs | None = None
        self._listener: Callable[[dict[str, object]], None] | None = None

    @property
    def data(self) -> api.Job:
        """Return the API object of the job; see the schema ``Job`` of the API."""
        if not self._receive() and not is_finished(self._data) and time.monotonic() - self._updated_at > _CACHE_AGE_S:
            self.refresh()
        return self._data

    def _receive(self) -> bool:
        """Store an API object that arrived without a request; return whether a listener exists."""
        follower = self._follower
        if follower is None or not follower.started or follower.trouble or follower.error:
            return False
        if not (follower.ended.is_set() and is_finished(self._data)):
            self._data = follower.data
        return True

    @property
    def key(self) -> str | None:
        """Return the name of the submission; None for a job that jupyter_slurm did not submit."""
        return self._data.get("key")

    @property
    def id(self) -> str | None:
        """Return the Slurm id; None until sbatch has answered."""
        number: str | None = self._data.get("id") or self.data.get("id")
        return number if self._task is None or number is None or "_" in number else f"{number}_{self._task}"

    @property
    def cluster(self) -> str:
        """Return the cluster's name."""
        return self._cluster.name

    @property
    def title(self) -> str:
        """Return the name of the job in messages: number and name."""
        return title(self._data)

    @property
    def script(self) -> str:
        """Return the batch script, as Slurm has it."""
        content, _ = self._cluster.client.get_bytes(self._path("script"))
        return CommandText(content.decode("utf-8", "replace"))

    @property
    def source(self) -> str | None:
        """Return the typed text if Slurm has another script (cell, sweep, array in parts, `resume`); else None."""
        try:
            content, _ = self._cluster.client.get_bytes(self._path("source"))
        except UsageError:
            return None
        return CommandText(content.decode("utf-8", "surrogateescape"))

    @property
    def stdout(self) -> str:
        """Return the whole standard output so far; see :meth:`tail` for the end of a large one."""
        return self._written.text("stdout")

    @property
    def stderr(self) -> str:
        """Return the whole standard error so far."""
        return self._written.text("stderr")

    def refresh(self) -> Job:
        """Request the current state from the agent."""
        self._apply_data(self._cluster.client.get(self._path()))
        return self

    def wait(self, timeout: float | None = None, *, check: bool = True) -> Job:
        """Wait for the end of the job.

        Parameters
        ----------
        timeout : float, optional
            Seconds; by default without end.
        check : bool
            Whether to raise if the job failed.

        Raises
        ------
        JobFailed
            The job failed: state, reason, exit code and the last lines of the log.
        JobEndUnknown
            The job is over, and it is not known how it ended (state UNKNOWN): the last lines of the log.
        TimeoutError
            The timeout is over; the job continues.
        WaitInterrupted
            The wait was interrupted; the message gives the state of the job.
        """
        return self._wait(timeout, check=check, echo=False)

    def _wait(self, timeout: float | None, *, check: bool, echo: bool, is_requested: bool = False) -> Job:
        """Wait for the job. With ``is_asked``, wait for its values: a missing value becomes an error."""
        follower = self._follow()
        waiting.wait_and_print(self, follower, timeout, echo=echo)
        return self._over(follower, check, echo=echo, is_requested=is_requested)

    def __await__(self) -> Generator[Any, None, Job]:
        """Wait in a coroutine; raise as :meth:`wait` does."""
        return self._await().__await__()

    async def _await(self) -> Job:
        follower = self._follow()
        await waiting.wait_async(self, follower)
        return self._over(follower, check=True)

    def cancel(self, signal: str | int | None = None) -> Job:
        """Cancel the job, or send it a signal (``"USR1"``, ``10``) as scancel(1) does."""
        body = {"signal": None if signal is None else str(signal).upper()}
        try:
            self._apply_data(self._cluster.client.post(self._path("cancel"), json=body))
        except KeyboardInterrupt:
            raise interrupts.WaitInterrupted(
                f"Interrupted: it is unknown whether Slurm received the command. {self.title} may still be "
                "running. Use job.refresh() to check."
            ) from None
        return self

    def resubmit(self, **options: Any) -> Job:
        """Submit the job again: same text, options, arguments, environment, values of ``in=`` and directory.

        The environment variables are the current ones. A task of an array is submitted as an array of that one task.

        Parameters
        ----------
        **options
            Options of sbatch to change: ``time="4:00:00"``, ``mem_per_gpu="40G"``, ``p="long"``; True for an option
            without a value, None to remove one.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        if self._task is not None:
            options.setdefault("array", self._task)
        data = repeat(self._cluster, self._path, self.record, options)
        return self._handle_of(self._cluster, data, from_start=True)

    @staticmethod
    def _handle_of(cluster: Cluster, data: api.Job, *, from_start: bool = False) -> Job:
        """Return the handle of a job; an array gets a handle with its tasks."""
        kind = Job if data.get("array") is None else Job._kind_of_array or Job
        return kind(cluster, data, from_start=from_start)

    def tail(self, lines: int = 10, stream: str = "stdout") -> str:
        """Return the last lines of the output as a terminal shows them; ``stream`` is "stdout" or "stderr"."""
        return self._written.tail(lines, stream)

    def tunnel(
        self, port: int, *, local_port: int | None = None, node: str | None = None, socket: bool = False
    ) -> Tunnel:
        """Forward a port of this job to this machine; see :class:`Tunnel`.

        Parameters
        ----------
        port : int
            Port on the job's node, best on its loopback.
        local_port : int, optional
            Port on this machine; by default the first free port of the profile.
        node : str, optional
            Node of the port; by default the job's first.
        socket : bool
            Listen on a Unix socket instead of a port.

        Raises
        ------
        JobError
            The job is not running.
        TunnelError
            No program, or that of another user, listens on the port, or no route exists.
        """
        return open_tunnel(self._cluster, self._reference, port, local_port=local_port, node=node, socket=socket)

    def report(self) -> Report:
        """Return the job's use of its resources: time, CPU, memory, GPUs, each with its source; see :class:`Report`.

        For a running job, the report covers its use so far, and a step queries its GPUs.
        """
        return Report(self._cluster.client.get(self._path("report")))

    @property
    def outputs(self) -> Outputs:
        """Return the variables of ``out=`` after the end of the job; see :class:`Outputs`.

        Raises
        ------
        JobOutputMissing
            No values exist: none were requested, the job is not finished, or it ended without writing them.
        """
        if self._outputs is None:
            content = self._written.values()
            if not content:
                raise values_missing(self.title, is_finished=self.is_finished)
            from jupyter_slurm.client.jobs.returned_values import (
                read_outputs,  # imports pickle and more; few jobs have values
            )

            self._outputs = read_outputs(content, self._cluster.name)
        return self._outputs

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the end and return the values: that of the one name in ``out=``, or all of them by name.

        Raises
        ------
        JobFailed, JobEndUnknown, TimeoutError, WaitInterrupted
            As :meth:`wait` does.
        JobError
            A value is missing; the message says why.
        """
        outputs = self._wait(timeout, check=True, echo=False, is_requested=True).outputs
        return outputs[next(iter([*outputs, *outputs.errors]))] if outputs.is_single else outputs

    def raise_for_state(self) -> Job:
        """Raise JobFailed if the job failed, JobEndUnknown if it is not known how it ended."""
        if self.is_finished and self.data["state"] != "COMPLETED":
            text, stream = self._written.log(ranks=self.data.get("ranks"))
            raise failure(self.data, text, output_path(self._data, stream or "stdout"))
        return self

    def __str__(self) -> str:
        return self.id or self.key or ""

    def __repr__(self) -> str:
        with contextlib.suppress(SlurmError):  # a repr must not raise
            _ = self.data
        return headline(self._data)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Job) and (self.cluster, self._reference) == (other.cluster, other._reference)

    def __hash__(self) -> int:
        return hash((self.cluster, self._reference))

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        with contextlib.suppress(SlurmError):
            _ = self.data
        return live_view.bundle(self._data)

    def _ipython_display_(self) -> None:
        """Show the job with its live output and its controls under the running cell.

        The submitting cell gets no controls at first: the widgets would take as much time as the submission.
        """
        self._is_shown = True
        shell = live_view.notebook()
        if shell is None:
            raise NotImplementedError  # a terminal cannot redraw: the text form is shown
        self._show(shell, with_controls=self._submitted_in != live_view.cell_name(shell))

    def _show(self, shell: Any, *, with_controls: bool = False) -> None:
        """Make a view under this cell, unless the cell has one."""
        if any(shown.cell == live_view.cell_name(shell) for shown in self._views):
            return
        live = settings().live_output
        follower = self._follow(start=live or is_finished(self._data))
        if is_finished(self._data):
            follower.ended.wait(5.0)  # the output of a finished job arrives in a moment
        controls = (lambda: controls_of(self)) if with_controls and not is_finished(self._data) else None
        shown = live_view.LiveView(shell, follower, settings().output_limit, controls)
        self._views.append(shown)
        shown.open(live=live)

    def _follow(self, *, start: bool = True) -> Follower:
        if self._follower is None:
            limits = {"limit": settings().output_limit, "display_limit": settings().display_limit}
            self._follower = Follower(self._cluster, self._reference, self._data, from_start=self._from_start, **limits)
        if start:
            self._follower.start()
        return self._follower

    def _over(self, follower: Follower, check: bool, *, echo: bool = False, is_requested: bool = False) -> Job:
        if follower.error is not None:
            raise follower.error
        self._data = follower.data
        for shown in self._views:
            shown.finish()
        heard = follower.printed("stderr") if echo or live_view.is_under_cell(self._views) else ""
        failed: JobFailed | JobEndUnknown | None = None
        try:
            if check:
                self.raise_for_state()
        except (JobFailed, JobEndUnknown) as error:
            failed, heard = error, heard + str(error.details["log"])
        try:
            self._restore_variables(heard, is_requested=is_requested)
        except SlurmError as error:
            if failed is None:
                raise
            sys.stderr.write(printable(str(error)) + "\n")
        if failed is not None:
            raise self._without_shown_log(failed, follower, echo=echo)
        return self

    def _without_shown_log(
        self, error: JobFailed | JobEndUnknown, follower: Follower, *, echo: bool
    ) -> JobFailed | JobEndUnknown:
        """Return the error without its log if the output stands above it already: printed, or in the card."""
        has_card = live_view.is_under_cell(self._views) and live_view.is_visible()
        if not (echo or has_card) or not (follower.printed("stdout") + follower.printed("stderr")).strip():
            return error  # as for an array, whose card shows no log of its tasks
        return without_log(error, self._data, has_card=has_card)

    def _restore_variables(self, printed: str, *, is_requested: bool = False) -> None:
        """Store the returned variables, once, and report missing ones unless already reported; not for arrays."""
        wanted = self._listener
        if wanted is not None and not self._data.get("tasks"):
            with contextlib.suppress(JobOutputMissing):
                wanted(dict(self.outputs))
                if not (is_requested and self.outputs.is_single):  # the caller of `result` gets the reason as an error
                    for said in self.outputs.troubles(printed):
                        sys.stderr.write(printable(said) + "\n")
        self._listener = None  # after an error or an interrupt, the next wait tries again

    @property
    def _reference(self) -> str:
        if self._task is not None:
            return str(self.id)
        return str(self._data.get("key") or self._data["id"])

    def _path(self, *parts: str) -> str:
        return self._cluster.path("jobs", self._reference, *parts)

    @property
    def _written(self) -> OutputReader:
        is_array = bool(self._data.get("tasks")) and self._task is None
        return OutputReader(self._cluster.client, self._path("output"), self._data, is_array=is_array)
