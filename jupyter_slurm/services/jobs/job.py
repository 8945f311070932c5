"""What the agent knows of one job, from whichever side it learned it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.ids import JobId, TaskRange
from jupyter_slurm.domain.queries.queue import runs_script
from jupyter_slurm.domain.records import JobRecord, representative
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import ParseError, SlurmError, from_problem
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json import JobRecordFile, PartRecord, StageRecord
from jupyter_slurm.services.jobdir.output_paths import STREAMS, output_path, runner_path
from jupyter_slurm.services.jobs.job_views import RunnerView, SessionView, SlurmView, StagingView, SubmissionView

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ALLOCATED_FIELDS", "NOT_SUBMITTED", "SUBMITTING", "UNKNOWN", "TrackedJob"]

ALLOCATED_FIELDS = ("nodes", "partition", "account", "qos")
"""What is kept of what a job had, once it is over."""

SUBMITTING = JobState("SUBMITTING")
"""sbatch has been started; its answer is not known yet."""

NOT_SUBMITTED = JobState("NOT_SUBMITTED")
"""sbatch refused, or the job was looked for and is not there."""

UNKNOWN = JobState("UNKNOWN")
"""The job is over and nobody remembers how it ended."""

_FINAL_STATES = {NOT_SUBMITTED.name, UNKNOWN.name}


@dataclass
class TrackedJob:
    """One job (an array counts as one). Times are seconds since the epoch.

    Attributes
    ----------
    record : JobRecordFile or None
        The content of job.json; None for a job that was not submitted by us.
    submission, slurm, runner, staging, session
        What each side knows of it, each with a writer of its own (services/jobs/job_views.py).
    number : str or None
        Of a step: ``12.0``, once it has begun.
    members : list of (int, TrackedJob or None)
        Of an array in parts, as a whole: the parts, each with the index of the person's that is its index 0.
    """

    cluster: str
    folder: JobFolder | None = None
    record: JobRecordFile | None = None
    id: JobId | None = None
    state: JobState = SUBMITTING
    submission: SubmissionView = field(default_factory=SubmissionView)
    slurm: SlurmView = field(default_factory=SlurmView)
    runner: RunnerView = field(default_factory=RunnerView)
    staging: StagingView = field(default_factory=StagingView)
    session: SessionView = field(default_factory=SessionView)
    number: str | None = None
    submit_time: float | None = None
    start_time: float | None = None
    end_time: float | None = None
    exit_code: int | None = None
    signal: int | None = None
    state_since: float | None = None
    restarts: int = 0
    error: SlurmError | None = None
    warnings: list[str] = field(default_factory=list)
    members: list[tuple[int, TrackedJob | None]] = field(default_factory=list)

    @property
    def latest(self) -> JobRecord | None:
        """What Slurm said last."""
        return self.slurm.latest

    @property
    def submitted(self) -> int | None:
        """Slurm's own time of submission."""
        return self.slurm.submitted

    @property
    def is_current(self) -> bool:
        """Return whether the state is current; False while the controller does not answer."""
        return self.slurm.known

    @property
    def key(self) -> str | None:
        """The submission key, for a job of ours."""
        return self.folder.key if self.folder else None

    @property
    def kind(self) -> str | None:
        """``script``, ``python``, ``allocation``, ``session``; of a step also ``command``, ``process``, ``kernel``."""
        return self.record.kind if self.record else None

    @property
    def is_step(self) -> bool:
        """Whether it is a step of an allocation, of which the queue tells nothing."""
        return self.allocation is not None

    @property
    def allocation(self) -> str | None:
        """Of a step, the key of its allocation."""
        return self.record.step.allocation if self.record and self.record.step else None

    @property
    def part(self) -> PartRecord | None:
        """Of an array in parts: which of them it is, and what there are (services/jobs/array_parts.py)."""
        return self.record.part if self.record else None

    @property
    def offset(self) -> int:
        """What the index of a task, as a person knows it, is larger by than Slurm's."""
        part = self.part
        return part.number * part.size if part else 0

    @property
    def reported_nodes(self) -> str | None:
        """The nodes that a runner has told, which may be before the queue does."""
        record = self.record
        given = (record.step or (record.granted if self.state.is_running else None)) if record else None
        return (given.nodes if given else None) or self.runner.had.get("nodes")

    @property
    def reports_events(self) -> bool:
        """Whether a runner of ours tells its start and its end."""
        is_ours = self.record is not None and not (self.record.run is None and self.record.image is None)
        return self.is_step or self.kind in ("python", "allocation", "session") or is_ours

    @property
    def is_to_be_cancelled(self) -> bool:
        """Whether it is cancelled as soon as its number is known, or the controller answers."""
        return bool(self.record and self.record.cancel)

    @property
    def folders(self) -> StageRecord | None:
        """The folders that travel with it."""
        return self.record.stage if self.record else None

    @property
    def is_copy_back_due(self) -> bool:
        """Whether it is over and what is new in its folders is still to come back (services/staging/manager.py)."""
        if self.folders is None or not self.is_finished or self.state == NOT_SUBMITTED or self.staging.is_elsewhere:
            return False
        return not self.folders.is_back(self.restarts) and not (self.id and self.id.task is not None)

    @property
    def has_remote_results(self) -> bool:
        """Whether what is new in its folders is on the cluster alone: still to come back, or that was given up."""
        if self.folders is None or self.state == NOT_SUBMITTED or (self.id is not None and self.id.task is not None):
            return False
        back = self.folders.back
        return not self.folders.is_back(self.restarts) or bool(back and back.given_up)

    @property
    def script_path(self) -> str | None:
        """Where the batch script lies: for a job of ours only, and the path of no other."""
        return self.folder.file(self.record.script) if self.folder and self.record else None

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will happen."""
        return self.state.is_finished or self.state.name in _FINAL_STATES

    def recall(self, record: JobRecordFile, now: float) -> None:
        """Take in a record from disk: what we, or another agent, knew when it was written.

        Raises
        ------
        SlurmError
            It cannot be understood.
        """
        self.record, self.submit_time = record, record.created
        job, end = record.job, record.end
        if record.step is not None:
            self.state = JobState("PENDING" if record.step.id is None else "RUNNING")
        elif job:
            self.id = JobId.parse(job.id)
            self.slurm.submitted = job.submit_time
            self.submit_time = job.submit_time or self.submit_time
            self.state, self.error = JobState("PENDING"), None
            self.slurm.lose_sight(now)
        if end:
            self.state = JobState(end.state)
            self.slurm.regain_sight()
            self.exit_code, self.signal = end.exit_code, end.signal
            self.start_time, self.end_time = end.start_time, end.end_time
            self.runner.ranks = end.ranks
            self.error = from_problem(end.error) if end.error else None
        if end and self.id is not None:
            had: dict[str, Any] = {name: getattr(end, name) or "" for name in ALLOCATED_FIELDS}
            self.slurm.latest = JobRecord(id=self.id, state=self.state, reason=end.reason or "", **had)

    def is_described_by(self, records: Iterable[JobRecord]) -> bool:
        """Tell whether records that bear our number are certainly of this job, and not of one that got it later."""
        records, path = list(records), self.script_path
        if self.slurm.submitted is not None and any(record.submit_time == self.slurm.submitted for record in records):
            return True
        if path is not None and any(record.command is not None for record in records):
            return any(runs_script(record, path) for record in records)
        if self.slurm.submitted is None:
            return self.is_current  # sbatch has just given us the number
        return path is None and any((record.restarts or 0) > self.restarts for record in records)

    def set_state(self, state: JobState, now: float) -> bool:
        """Note a state; return whether it is another one than before."""
        if state == self.state:
            return False
        self.state, self.state_since = state, now
        return True

    def update_from_slurm(self, records: Iterable[JobRecord], now: float) -> bool:
        """Take in what Slurm says; return whether something changed that a person would notice."""
        before = self._visible()
        records = list(records)
        self.slurm.take_rows(records)
        chosen = representative([*self.slurm.tasks.values(), *(r for r in records if r.id.task is None)])
        if chosen is not None:
            self._apply_record(chosen, now)
        return self._visible() != before

    def lose_sight(self, now: float) -> bool:
        """Note that the controller does not answer."""
        if not self.is_current or self.is_finished:
            return False
        self.slurm.lose_sight(now)
        return True

    def started(self, now: float) -> bool:
        """Take in the runner's sign that it began."""
        if self.is_finished or self.state.is_running:
            return False
        self.start_time = self.start_time or now
        return self.set_state(JobState("RUNNING"), now)

    def ended(self, exit_code: int, end_time: float, now: float, *, interrupted: bool = False) -> bool:
        """Take in the runner's end marker: it comes first, but of a job it does not see everything."""
        self.exit_code, self.end_time, self.runner.unverified = exit_code, end_time, not self.is_step
        self.slurm.regain_sight()
        return self.set_state(
            JobState("COMPLETED" if exit_code == 0 else "CANCELLED" if interrupted else "FAILED"), now
        )

    def _apply_record(self, chosen: JobRecord, now: float) -> None:
        self.slurm.take_latest(chosen)
        if self.id is None:
            self.id = JobId(chosen.id.job)
        self.submit_time = self.slurm.submitted or self.submit_time
        if (chosen.restarts or 0) > self.restarts:
            self._reset_run(chosen.restarts or 0)
        elif (
            self.state.is_finished
            and not chosen.state.is_finished
            and self.exit_code is not None
            and self.reports_events
        ):
            return  # the runner's end marker came first; the queue follows in a moment
        if not chosen.state.is_pending:
            self.start_time = chosen.start_time or self.start_time
        if chosen.state.is_finished:
            self._apply_end(chosen)
        self.set_state(chosen.state, now)

    def _apply_end(self, chosen: JobRecord) -> None:
        """Take in how a job ended: what Slurm says holds also where the runner, which saw less, said something else."""
        agrees = chosen.exit_code is None or (self.exit_code, self.signal) == (chosen.exit_code, chosen.signal or None)
        if not agrees:
            self.exit_code, self.signal = chosen.exit_code, chosen.signal or None
        if self.end_time is None or not agrees:
            self.end_time = chosen.end_time or self.end_time
        self.runner.unverified = False

    def _reset_run(self, restarts: int) -> None:
        """Forget how an earlier run ended: the job was requeued."""
        self.restarts = restarts
        self.start_time = self.end_time = self.exit_code = self.signal = None
        self.runner = RunnerView()
        if self.record is not None:
            self.record = replace(self.record, end=None)

    def _visible(self) -> tuple[object, ...]:
        latest = self.latest
        return (
            self.id,
            self.state,
            self.is_current,
            latest and (latest.reason, latest.nodes, latest.start_time, latest.time_limit, latest.partition),
            self.exit_code,
            tuple(sorted(self.counts().items())),
            str(self.components()),
        )

    def components(self) -> list[api.JobComponent] | None:
        """Return how the components of a heterogeneous job stand; None for a job of one piece."""
        if self.slurm.parts:
            return self.slurm.components()
        end = self.record.end if self.record else None
        return list(end.components) if end and end.components is not None else None

    def counts(self) -> dict[str, int]:
        """Array tasks by state, pending ones by their number."""
        return self.slurm.counts(self.all_tasks)

    @property
    def is_array(self) -> bool:
        """Whether it is an array of jobs, or a task of one."""
        latest = self.latest
        seen = latest is not None and latest.id.task is not None
        return bool(self.slurm.tasks or self.slurm.rest or seen or (self.record and self.record.array))

    @property
    def all_tasks(self) -> TaskRange | None:
        """The tasks that an array of ours was submitted with; None where that is not known."""
        given = self.record.array_tasks if self.record else None
        try:
            return TaskRange.parse(given) if given else None
        except ParseError:
            return None

    def paths(self) -> dict[str, str | None]:
        """Return the file of each stream; see :func:`jupyter_slurm.services.jobdir.output_paths.output_path`."""

        def path(stream: str) -> str | None:
            return output_path(
                stream,
                job=self.id,
                folder=self.folder,
                record=self.record,
                latest=self.latest,
                is_array=self.is_array,
            )

        return {stream: path(stream) for stream in STREAMS}

    def path(self, stream: str) -> str | None:
        """Return the file of a stream, also of what a Python cell shows beside text, and of its values."""
        if stream in STREAMS:
            return self.paths()[stream]
        return runner_path(stream, self.id, self.folder, self.kind, is_array=self.is_array)

    def task_state(self, row: JobRecord | None) -> JobState | None:
        """Return the state of a task from the row that tells of it; None: nobody has told of any yet.

        One that is not told of any more is over: Slurm forgets at once what is cancelled before it begins.
        """
        if row is not None and (not self.is_finished or row.state.is_finished or row.state.name in _FINAL_STATES):
            return row.state
        return UNKNOWN if self.is_finished or self.latest is not None else None

    def task_view(self, task: int | None) -> TrackedJob:
        """Return what is known of one task of an array, in the form of a job of its own; None: the whole job."""
        if task is None or self.id is None:
            return self
        seen = self.slurm.tasks.get(task)
        latest = seen or self.slurm.row_of_rest(task)
        return replace(
            self,
            id=JobId(self.id.job, task),
            state=self.task_state(latest) or self.state,
            slurm=replace(self.slurm, latest=latest, tasks={}, rest=[]),
            start_time=seen.start_time if seen else None,
            end_time=seen.end_time if seen and seen.state.is_finished else None,
            exit_code=seen.exit_code if seen else None,
            signal=(seen.signal or None) if seen else None,
        )
