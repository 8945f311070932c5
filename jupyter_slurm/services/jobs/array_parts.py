"""Arrays beyond MaxArraySize: several arrays of Slurm, the parts, shown to the user as one job.

Task N of the request is task ``N % size`` of part ``N // size``. Each part is a submission with its own job directory,
so that all rules for submissions hold for each part. The first part represents the job. The keys of the others follow
from its key, so that a repeated submission finds the existing parts.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_slurm.domain.ids import MAX_TRACKED_TASKS, JobId, TaskRange
from jupyter_slurm.domain.records import JobRecord, state_rank
from jupyter_slurm.errors import JobError, JobNotFound, OptionError, ParseError, UsageError
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import PartRecord
from jupyter_slurm.services.jobs.job import NOT_SUBMITTED, SUBMITTING, TrackedJob

__all__ = [
    "ArrayPart",
    "check_task",
    "divided",
    "joined",
    "list_parts",
    "part_keys",
    "shared_folder",
    "task_index",
    "with_task",
]


@dataclass(frozen=True)
class ArrayPart:
    """One part of an array.

    Attributes
    ----------
    of : str
        Key of the first part.
    tasks : str
        All requested tasks.
    size : int
        Number of indices in a part.
    numbers : tuple of int
        Numbers of all parts.
    number : int
        Number of this part.
    before : str or None
        ID of the part that must end before this one starts: so a throttle holds for all of them.
    """

    array_key: str
    tasks: str
    size: int
    numbers: tuple[int, ...]
    number: int
    before: str | None = None

    @property
    def key(self) -> str:
        """Return the submission key."""
        return _key(self.array_key, self.number, self.numbers)

    @property
    def offset(self) -> int:
        """Return the difference between the user's index of a task and Slurm's."""
        return self.number * self.size

    @property
    def is_throttled(self) -> bool:
        """Return whether the number of concurrent tasks is limited."""
        return TaskRange.requested(self.tasks).limit is not None

    def part_tasks(self) -> str:
        """Return the tasks of this part in the form of --array."""
        return str(TaskRange.requested(self.tasks).split(self.size)[self.number].shifted(-self.offset))

    def options(self, chosen: Mapping[str, str | None]) -> list[str]:
        """Return the options of this part, which replace earlier ones."""
        said = [f"--array={self.part_tasks()}"]
        if self.before is not None:
            conditions = [*([chosen["dependency"]] if chosen.get("dependency") else []), f"afterany:{self.before}"]
            said.append(f"--dependency={','.join(map(str, conditions))}")
        return said

    def as_record(self) -> PartRecord:
        """Return the part's entry in its record."""
        return PartRecord(
            of=self.array_key, tasks=self.tasks, size=self.size, numbers=list(self.numbers), number=self.number
        )

    def named(self) -> str:
        """Return the part's tasks by the user's indices."""
        return str(replace(TaskRange.requested(self.tasks).split(self.size)[self.number], limit=None))


def divided(
    key: str, tasks: str | None, chosen: Mapping[str, str | None], limits: tuple[int, float]
) -> list[ArrayPart]:
    """Return the parts of an array to submit; none if Slurm accepts the array as it is.

    Parameters
    ----------
    key : str
        Key of the submission.
    tasks : str or None
        Tasks in the form of --array.
    chosen : mapping
        Options in force, by long name.
    limits : (int, number)
        MaxArraySize, MaxJobCount.

    Raises
    ------
    OptionError, UsageError
        The array cannot be submitted in parts.
    """
    size, most = limits
    try:
        asked = TaskRange.requested(tasks or "")
    except ParseError:
        return []  # sbatch reports the error
    if size < 2 or max((last for _, last, _ in asked.ranges), default=0) < size:
        return []
    if asked.count() >= most:
        raise UsageError(
            f"--array={_shortened(str(tasks))} asks for {asked.count():,} tasks, but this cluster "
            f"holds at most {most - 1:,.0f} jobs at a time (MaxJobCount).",
            hint="Submit fewer tasks at a time, or do more in each task.",
        )
    numbers = tuple(asked.split(size))
    if len(numbers) > 1:
        _check_options(
            asked,
            chosen,
            f"Arrays on this cluster have at most {size:,} tasks (MaxArraySize). In an array of several parts,",
        )
    return [ArrayPart(key, str(tasks), size, numbers, number) for number in numbers]


def _check_options(requested: TaskRange, chosen: Mapping[str, str | None], why: str) -> None:
    """Refuse options that are impossible for several arrays."""
    for option in ("output", "error"):
        pattern = (chosen.get(option) or "").replace("%%", "")
        if re.search("%[0-9]*a", pattern) and not re.search("%[0-9]*[Aj]", pattern):
            raise OptionError(
                f"{why} with --{option}={chosen[option]}, the tasks would write into the same files.",
                hint=f"Use %A_%a (the IDs of array and task) in --{option}, or leave --{option} out.",
                option=option,
            )
    if requested.limit is not None and "?" in (chosen.get("dependency") or ""):
        raise OptionError(
            f"{why} none can have both a throttle (%) and a dependency with `?`.",
            hint="Leave out the throttle or the dependency.",
            option="dependency",
        )


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


def _key(array_key: str, number: int, numbers: Sequence[int]) -> str:
    if number == numbers[0]:
        return array_key
    return array_key[: len("20000101-000000-")] + hashlib.sha256(f"{array_key}.{number}".encode()).hexdigest()[:16]


def part_keys(entry: TrackedJob) -> dict[int, str]:
    """Return the keys of all parts by number; for a job without parts, its own key."""
    part = entry.part
    if part is None:
        return {0: entry.key or ""}
    return {number: _key(part.of, number, part.numbers) for number in part.numbers}


def list_parts(entry: TrackedJob, entries: Mapping[str, TrackedJob]) -> list[TrackedJob]:
    """Return the known parts of an array in order; for any other job, the job itself."""
    return [entry] if entry.part is None else [entries[key] for key in part_keys(entry).values() if key in entries]


def with_task(entry: TrackedJob, task: int | None, entries: Mapping[str, TrackedJob]) -> TrackedJob:
    """Return the part with a task of the user's index; the same job if this is Slurm's index."""
    part = entry.part
    if part is None or task is None or task < part.size:
        return entry
    return entries.get(part_keys(entry).get(task // part.size, ""), entry)


def _local(entry: TrackedJob, task: int) -> int | None:
    """Return Slurm's index of a task of a part, from this index or the user's; None: no such task."""
    part, own = entry.part, entry.all_tasks
    local = task if part is None else task % part.size
    is_here = part is None or task < part.size or task // part.size == part.number
    return local if is_here and (own is None or local in own) else None


def task_index(reference: str, entry: TrackedJob) -> int | None:
    """Return Slurm's index of the task that a reference names; None: the whole job."""
    task = _reported_exit_code(reference, entry)
    local = None if task is None else _local(entry, task)
    return task if local is None else local


def check_task(reference: str, entry: TrackedJob) -> None:
    """Refuse a task that the array was not submitted with.

    Raises
    ------
    JobNotFound
        There is no such task.
    """
    task, tasks = _reported_exit_code(reference, entry), entry.all_tasks
    if task is not None and tasks is None and entry.record is not None and entry.record.array_tasks:
        _check_seen(task, entry)
    if task is not None and tasks is not None and _local(entry, task) is None:
        named = entry.part.tasks if entry.part else str(replace(tasks, limit=None))
        raise JobNotFound(f"Job {reference.partition('_')[0]} has no task {task}.", hint=f"Its tasks are {named}.")


def _check_seen(task: int, entry: TrackedJob) -> None:
    """Refuse a task that Slurm has not shown, for a form of --array that is not known."""
    if task not in entry.slurm.tasks and entry.slurm.row_of_rest(task) is None:
        raise JobNotFound(
            f"Slurm shows no task {task} of job {entry.id}.",
            hint="The tasks are read from the queue. Try again in a few seconds, or check --array.",
        )


def _reported_exit_code(reference: str, entry: TrackedJob) -> int | None:
    if reference == entry.key:
        return None
    try:
        return JobId.parse(reference).task
    except ParseError:
        return None


def shared_folder(entry: TrackedJob) -> JobFolder | None:
    """Return the folder shared by all parts, that of the first: values, parameters and script."""
    part = entry.part
    if entry.folder is None or part is None:
        return entry.folder
    return JobFolder(posixpath.join(posixpath.dirname(entry.folder.path), part.of))


def joined(entry: TrackedJob, find: Callable[[str], TrackedJob | None]) -> TrackedJob:
    """Return the state of all parts of an array as one job.

    Parameters
    ----------
    entry : TrackedJob
        One of the parts; any other job is returned unchanged.
    find : callable
        Returns the part with a key, if known.
    """
    about = entry.part
    if about is None:
        return entry
    known = {number: find(key) for number, key in part_keys(entry).items()}
    first = known[about.numbers[0]] or entry
    absent = TrackedJob(entry.cluster, state=SUBMITTING if first.submission.is_growing else NOT_SUBMITTED)
    asked = TaskRange.requested(about.tasks).split(about.size)
    rest: list[JobRecord] = []
    for number, part in known.items():
        rest += _rest(part or absent, asked[number], number * about.size)
    there = [part for part in known.values() if part is not None]
    speaker = min([*there, *([absent] if len(there) < len(known) else [])], key=_rank)
    missing = [asked[number] for number, part in known.items() if part is None]
    slurm = replace(
        first.slurm,
        latest=speaker.latest or first.latest,
        tasks=_tasks(known, about.size),
        rest=rest,
        known=all(part.is_current for part in there),
        unknown_since=min((part.slurm.unknown_since for part in there if part.slurm.unknown_since), default=None),
        blame=speaker.slurm.blame,
        tasks_read=True,
    )
    is_over = not first.submission.is_growing
    return replace(
        first,
        record=replace(first.record, array_tasks=about.tasks) if first.record else None,
        slurm=slurm,
        state=speaker.state,
        state_since=speaker.state_since,
        exit_code=speaker.exit_code,
        signal=speaker.signal,
        start_time=min((part.start_time for part in there if part.start_time), default=None),
        end_time=max((part.end_time for part in there if part.end_time), default=None) if speaker.is_finished else None,
        error=next((part.error for part in there if part.error), None) or _missing_part_error(missing, is_over=is_over),
        warnings=list(dict.fromkeys(warning for part in there for warning in part.warnings)),
        members=[(number * about.size, part) for number, part in known.items()],
    )


def _tasks(known: Mapping[int, TrackedJob | None], size: int) -> dict[int, JobRecord]:
    """Return the tasks of all parts by the user's indices."""
    return {
        task + number * size: record
        for number, part in known.items()
        if part is not None
        for task, record in part.slurm.tasks.items()
        if _is_current(record, part)
    }


def _rank(part: TrackedJob) -> int:
    return state_rank(part.state, is_finished=part.is_finished)


def _rest(part: TrackedJob, requested: TaskRange, offset: int) -> list[JobRecord]:
    """Return the rows of a part that stand for several tasks, by the user's indices."""
    if not part.slurm.tasks and not part.slurm.rest and (part.id is None or not part.is_finished):
        return [
            JobRecord(id=part.id or JobId(0), state=part.state, tasks=replace(requested, limit=None))
        ]  # no row has been seen yet
    rows = []
    for record in part.slurm.rest:
        if record.tasks is not None and _is_current(record, part):
            named = record.tasks.shifted(offset)
            if named.truncated and requested.count() <= MAX_TRACKED_TASKS:
                # Slurm cut the list: the row stands for all tasks without a row of their own.
                named = TaskRange.from_tasks(
                    task for task in requested.tasks() if task - offset not in part.slurm.tasks
                )
            rows.append(replace(record, tasks=named))
    return rows


def _is_current(record: JobRecord, part: TrackedJob) -> bool:
    """Return whether the last seen state of a task is still valid: nothing waits in a finished part."""
    return not part.is_finished or record.state.is_finished


def _missing_part_error(missing: Sequence[TaskRange], *, is_over: bool) -> JobError | None:
    if not missing or not is_over:
        return None
    named = ",".join(str(replace(tasks, limit=None)) for tasks in missing)
    return JobError(
        f"Tasks {_shortened(named)} were not submitted, because the submission ended before.",
        hint="Submit the missing tasks with job.failed().resubmit().",
    )
