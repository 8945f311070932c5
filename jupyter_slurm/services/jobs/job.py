"""Tracked job: the agent's knowledge of one job, from all sources."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from jupyter_slurm.domain.ids import JobId, TaskRange, tracked_tasks
from jupyter_slurm.domain.queries.queue import runs_script
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import SlurmError, from_problem
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile, PartRecord, StageRecord
from jupyter_slurm.services.jobdir.output_paths import STREAMS, output_path, runner_path
from jupyter_slurm.services.jobs.job_views import RunnerView, SessionView, SlurmView, StagingView, SubmissionView

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ALLOCATED_FIELDS", "NOT_SUBMITTED", "SUBMITTING", "UNKNOWN", "TrackedJob"]

ALLOCATED_FIELDS = ("nodes", "partition", "account", "qos")
"""Resources of a job that are kept after its end."""

SUBMITTING = JobState("SUBMITTING")
"""sbatch has been started; its answer is not known yet."""

NOT_SUBMITTED = JobState("NOT_SUBMITTED")
"""sbatch refused the job, or a search did not find it."""

UNKNOWN = JobState("UNKNOWN")
"""The job is over, and its outcome is unknown."""

_FINAL_STATES = {NOT_SUBMITTED.name, UNKNOWN.name}


@dataclass
class TrackedJob:
    """One job (an array counts as one). Times are seconds since the epoch.

    Attributes
    ----------
    record : JobRecordFile or None
        Content of job.json; None for a job that was not submitted by jupyter_slurm.
    submission, slurm, runner, staging, session
        Views of the job, each with a writer of its own (services/jobs/job_views.py).
    number : str or None
        ID of a step, such as ``12.0``, once started.
    members : list of (int, TrackedJob or None)
        Parts of an array as a whole, each with the user's index of its index 0.
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
        """Return the latest record from Slurm."""
        return self.slurm.latest

    @property
    def submitted(self) -> int | None:
        """Return Slurm's time of submission."""
        return self.slurm.submitted

    @property
    def is_current(self) -> bool:
        """Return whether the state is current; False while the controller does not answer."""
        return self.slurm.known

    @property
    def key(self) -> str | None:
        """Return the submission key of a job of jupyter_slurm."""
        return self.folder.key if self.folder else None

    @property
    def kind(self) -> str | None:
        """Return ``script``, ``python``, ``allocation`` or ``session``; for a step also ``command``, ``process``,
        ``kernel``.
        """
        return self.record.kind if self.record else None

    @property
    def is_step(self) -> bool:
        """Return whether the job is a step of an allocation or of a joined job, which the queue does not show."""
        return self.allocation is not None or self.joined is not None

    @property
    def joined(self) -> str | None:
        """Return the ID of the job that this step holds open (services/allocations/joined_jobs.py)."""
        return self.record.joined.job if self.record and self.record.joined else None

    @property
    def allocation(self) -> str | None:
        """Return the key of a step's allocation."""
        return self.record.step.allocation if self.record and self.record.step else None

    @property
    def part(self) -> PartRecord | None:
        """Return the position in an array in parts, and its parts (services/jobs/array_parts.py)."""
        return self.record.part if self.record else None

    @property
    def offset(self) -> int:
        """Return the difference between the user's index of a task and Slurm's."""
        part = self.part
        return part.number * part.size if part else 0

    @property
    def reported_nodes(self) -> str | None:
        """Return the nodes reported by a runner, perhaps before the queue shows them."""
        record = self.record
        given = (record.step or (record.granted if self.state.is_running else None)) if record else None
        return (given.nodes if given else None) or self.runner.had.get("nodes")

    @property
    def reports_events(self) -> bool:
        """Return whether a runner reports the start and the end of the job."""
        is_ours = bool((own := self.record) and (own.run or own.image or own.environment_build or own.copies_to))
        return self.is_step or self.kind in ("python", "allocation", "session") or is_ours

    @property
    def is_to_be_cancelled(self) -> bool:
        """Return whether the job is cancelled as soon as its ID is known, or the controller answers."""
        return bool(self.record and self.record.cancel)

    @property
    def folders(self) -> StageRecord | None:
        """Return the folders staged with the job."""
        return self.record.stage if self.record else None

    @property
    def is_copy_back_due(self) -> bool:
        """Return whether the job is over and its results are still to be copied back
        (services/staging/job_staging.py).
        """
        if self.folders is None or not self.is_finished or self.state == NOT_SUBMITTED or self.staging.is_elsewhere:
            return False
        return not self.folders.is_back(self.restarts) and not (self.id and self.id.task is not None)

    @property
    def has_remote_results(self) -> bool:
        """Return whether results are only on the cluster: still to be copied back, or given up."""
        if self.folders is None or self.state == NOT_SUBMITTED or (self.id is not None and self.id.task is not None):
            return False
        back = self.folders.back
        return not self.folders.is_back(self.restarts) or bool(back and back.given_up)

    @property
    def script_path(self) -> str | None:
        """Return the path of the batch script, which is unique to the job; None for jobs from outside jupyter_slurm."""
        return self.folder.file(self.record.script) if self.folder and self.record else None

    @property
    def is_finished(self) -> bool:
        """Return whether the job has reached its final state."""
        return self.state.is_finished or self.state.name in _FINAL_STATES

    def recall(self, record: JobRecordFile, now: float) -> None:
        """Load a record from disk: the knowledge of this or another agent at the time of writing.

        Raises
        ------
        SlurmError
            The record cannot be understood.
        """
        self.record, self.submit_time = record, record.created
        job, end = record.job, record.end
        if record.joined is not None:
            self.id = JobId.parse(record.joined.job)
            self.state = JobState("PENDING" if record.granted is None else "RUNNING")
        elif record.step is not None:
            self.state = JobState("PENDING" if record.step.id is None else "RUNNING")
        elif job:
            self.id = JobId.parse(job.id)
            self.slurm.submitted = job.submit_time
            self.submit_time = job.submit_time or self.submit_time
            self.slurm.seen_running = record.seen_running
            self.state, self.error = JobState("PENDING"), None
            self.slurm.lose_sight(now)
        if end:
            self.state = JobState(end.state)
            self.slurm.regain_sight()
            self.exit_code, self.signal, self.restarts = end.exit_code, end.signal, end.restarts or 0
            self.start_time, self.end_time = end.start_time, end.end_time
            self.runner.ranks = end.ranks
            self.error = from_problem(end.error) if end.error else None
        if end and self.id is not None:
            had: dict[str, Any] = {name: getattr(end, name) or "" for name in (*ALLOCATED_FIELDS, "reason")}
            self.slurm.latest = JobRecord(id=self.id, state=self.state, restarts=self.restarts, **had)

    def is_described_by(self, records: Iterable[JobRecord]) -> bool:
        """Return whether records with the job's ID are certainly of this job, not of a later one with the same ID."""
        records, path = list(records), self.script_path
        if self.slurm.submitted is not None and any(record.submit_time == self.slurm.submitted for record in records):
            return True
        if path is not None and any(record.command is not None for record in records):
            return any(runs_script(record, path) for record in records)
        if self.slurm.submitted is None:
            return self.is_current and self.state != UNKNOWN  # sbatch has just returned the ID
        return path is None and any((record.restarts or 0) > self.restarts for record in records)

    def owns_id_before(self, other: TrackedJob) -> bool:
        """Return whether the ID of both belongs to this job: IDs restart after a controller lost its state."""
        if other.folder is None:
            return not self.is_finished or (other.latest is not None and self._is_shown_as(other.latest))
        return (self.submit_time or 0) >= (other.submit_time or 0)

    def _is_shown_as(self, record: JobRecord) -> bool:
        """Return whether the queue's record with the ID of this finished job is of this job, not of a later one."""
        if self.slurm.submitted is not None or record.submit_time is None:
            return record.submit_time == self.slurm.submitted
        return (self.submit_time or float("inf")) - 60 <= record.submit_time <= (self.end_time or 0) + 60

    def set_state(self, state: JobState, now: float) -> bool:
        """Set a state; return whether the state has changed."""
        if state == self.state:
            return False
        self.state, self.state_since = state, now
        return True

    def update_from_slurm(self, records: Iterable[JobRecord], now: float) -> bool:
        """Update the job from Slurm's record; return whether a visible field changed."""
        before = self.visible_fields()
        records = list(records)
        self.slurm.take_rows(records)
        chosen = self.slurm.representative(records)
        if chosen is not None:
            self._apply_record(chosen, now)
        return self.visible_fields() != before

    def lose_sight(self, now: float) -> bool:
        """Record that the controller does not answer."""
        return not self.is_finished and self.slurm.lose_sight(now)

    def started(self, now: float) -> bool:
        """Update the job from the runner's start sign."""
        if self.is_finished or self.state.is_running:
            return False
        self.start_time = self.start_time or now + self.slurm.clock_offset
        return self.set_state(JobState("RUNNING"), now)

    def note_running(self, *, again: bool = False) -> bool:
        """Note in the record that a job runs whose end only the queue shows; return whether it has to be written."""
        record, seen = self.record, self.slurm.seen_running
        if record is None or seen is None or self.reports_events:
            return False
        if record.seen_running is not None and (not again or record.seen_running == seen):
            return False
        self.record = replace(record, seen_running=seen)
        return True

    def ended(self, exit_code: int, end_time: float, now: float, *, interrupted: bool = False) -> bool:
        """Update the job from the runner's end marker, which comes first but does not see everything."""
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
        is_late = self.state.is_finished and not chosen.state.is_finished and self.exit_code is not None
        if (chosen.restarts or 0) > self.restarts:
            self._reset_run(chosen.restarts or 0)
        elif self.state == UNKNOWN != chosen.state:  # Slurm shows it again
            self._reset_run(self.restarts)
        elif is_late and self.reports_events:
            return  # the runner's end marker came first; the queue follows in a moment
        if chosen.state.is_running:
            self.slurm.seen_running = now
        if not chosen.state.is_pending and not self.slurm.tasks:
            self.start_time = chosen.start_time or self.start_time
        if chosen.state.is_finished:
            self._apply_end(chosen)
        self.set_state(chosen.state, now)
        self.start_time, self.end_time = self.slurm.times(self.start_time, self.end_time, is_over=self.is_finished)

    def _apply_end(self, chosen: JobRecord) -> None:
        """Record the end of a job: Slurm's word takes precedence over the runner's, which sees less."""
        agrees = chosen.exit_code is None or (self.exit_code, self.signal) == (chosen.exit_code, chosen.signal or None)
        if not agrees:
            self.exit_code, self.signal = chosen.exit_code, chosen.signal or None
        if self.end_time is None or not agrees:
            self.end_time = chosen.end_time or self.end_time
        self.runner.unverified = False

    def _reset_run(self, restarts: int) -> None:
        """Forget the end of an earlier run: the job was requeued."""
        self.restarts, self.error = restarts, None if self.state == UNKNOWN else self.error
        self.start_time = self.end_time = self.exit_code = self.signal = None
        self.runner = RunnerView()
        if self.record is not None:
            stage = self.record.stage and replace(self.record.stage, back=None)
            is_same_run = self.state == UNKNOWN
            self.record = replace(self.record, end=None, stage=stage if is_same_run else self.record.stage)

    def visible_fields(self) -> tuple[object, ...]:
        """Return the fields whose change is worth another query soon."""
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
        """Return the state of each component of a heterogeneous job; None for any other job."""
        if self.slurm.parts:
            return self.slurm.components()
        end = self.record.end if self.record else None
        return list(end.components) if end and end.components is not None else None

    def counts(self) -> dict[str, int]:
        """Return the number of array tasks by state, with pending ones counted."""
        return self.slurm.counts(self.all_tasks)

    @property
    def is_array(self) -> bool:
        """Return whether the job is an array, or a task of one."""
        latest = self.latest
        seen = latest is not None and latest.id.task is not None
        return bool(self.slurm.tasks or self.slurm.rest or seen or (self.record and self.record.array))

    @property
    def all_tasks(self) -> TaskRange | None:
        """Return the tasks with which an array was submitted; None if unknown, or too many."""
        given = self.record.array_tasks if self.record else None
        return tracked_tasks(given) if given else None

    def paths(self) -> dict[str, str | None]:
        """Return the file of each stream; see :func:`jupyter_slurm.services.jobdir.output_paths.output_path`."""

        def path(stream: str) -> str | None:
            return output_path(
                stream, job=self.id, folder=self.folder, record=self.record, latest=self.latest, is_array=self.is_array
            )

        return {stream: path(stream) for stream in STREAMS}

    def path(self, stream: str) -> str | None:
        """Return the file of a stream, including a Python cell's display data and values."""
        if stream in STREAMS:
            return self.paths()[stream]
        return runner_path(stream, self.id, self.folder, self.kind, is_array=self.is_array)

    def task_state(self, row: JobRecord | None) -> JobState | None:
        """Return the state of a task from its row; None: no task has been seen yet.

        A task that is no longer listed is over: Slurm forgets tasks at once that are cancelled before they start.
        """
        if row is not None and (not self.is_finished or row.state.is_finished or row.state.name in _FINAL_STATES):
            return row.state
        return UNKNOWN if self.is_finished or self.latest is not None else None

    def task_view(self, task: int | None) -> TrackedJob:
        """Return one task of an array as a job of its own; None: the whole job."""
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
