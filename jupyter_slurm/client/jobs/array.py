"""Arrays: a job of many tasks, each of which is also a job."""

from __future__ import annotations

import base64
import contextlib
import functools
import time
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict, cast, overload

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.render.job_card import has_run, headline, output_path
from jupyter_slurm.client.render.table import Table
from jupyter_slurm.domain.ids import TaskRange
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import JobNotFound, ParseError, SlurmError, UsageError
from jupyter_slurm.runner.cell.sweep_parameters import value_of

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ArrayJob", "Task", "TaskList", "handle"]

# The rows of all tasks omit these fields: they are requested when needed.
_DETAIL_KEYS = ("stdout", "stderr", "reason_text", "next_step")

Parameters = dict[str, Any]
"""A row of a sweep: the values by the names of the parameters."""


class _TaskRow(TypedDict):
    """A row of the API's ``Tasks`` by the names of its columns."""

    task: int
    state: str
    exit_code: int | None
    signal: int | None
    start_time: float | None
    end_time: float | None
    nodes: str | None
    reason: str | None


class Task(Job):
    """One task of an array, with all attributes of a :class:`Job`, for this task alone."""

    def __init__(
        self,
        cluster: Cluster,
        data: api.Job,
        index: int,
        *,
        from_start: bool = False,
        array: ArrayJob | None = None,
    ) -> None:
        super().__init__(cluster, data, from_start=from_start, task=index)
        self.index, self.array = index, array
        self._parameters: Parameters | None = None

    @property
    def parameters(self) -> Parameters:
        """Return the row of the sweep, by name; empty without a sweep."""
        if self._parameters is None:
            whole = self.array or handle(
                self._cluster, {**self._data, "id": str(self.id).partition("_")[0], "array": ""}
            )
            self._parameters = whole._parameters.get(self.index, {}) if isinstance(whole, ArrayJob) else {}
        return dict(self._parameters)

    @property
    def stdout_path(self) -> str | None:
        """Return the path of the standard output."""
        self._request_details()
        return super().stdout_path

    @property
    def stderr_path(self) -> str | None:
        """Return the path of the standard error."""
        self._request_details()
        return super().stderr_path

    @property
    def reason_text(self) -> str | None:
        """Return the reason in words."""
        self._request_details()
        return super().reason_text

    @property
    def next_step(self) -> str | None:
        """Return the suggested next step."""
        self._request_details()
        return super().next_step

    def raise_for_state(self) -> Job:
        """Raise JobFailed if the task failed, JobEndUnknown if it is not known how it ended."""
        self._request_details()
        return super().raise_for_state()

    def _log(self) -> tuple[str, str | None]:
        """Return the last lines of the log, and their stream; None without a log."""
        self._request_details()
        return self._written.log(ranks=self._data.get("ranks"))

    def _request_details(self) -> None:
        """Request the fields that the rows of all tasks omit."""
        if any(name not in self._data for name in _DETAIL_KEYS):
            self.refresh()


class ArrayJob(Job, is_array=True):
    """An array of tasks, or a sweep, as one job.

    ``len(job)``, ``job[3]`` (the task with that index), ``job[-1]`` (the last), ``job[2:5]``, ``for task in job``. A
    query of all tasks is one request to the agent and none to Slurm, for any number of tasks.
    """

    @functools.cached_property
    def _parameters(self) -> dict[int, Parameters]:
        """Return the rows of the sweep by task; they never change."""
        return _Rows(self._cluster, self._reference, parameters=True).parameters if self._data.get("sweep") else {}

    def __getattr__(self, name: str) -> NoReturn:
        if name == "parameters":
            raise AttributeError(
                "An array has no parameters. Use job[3].parameters for one task, or job.table() for all."
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __bool__(self) -> bool:
        return True

    def __str__(self) -> str:
        return ",".join(self.numbers) or super().__str__()

    @property
    def numbers(self) -> list[str]:
        """Return the Slurm ids: one, or several for an array that is larger than the cluster allows."""
        parts = self._data.get("parts")
        numbers = [part["id"] for part in parts] if parts else [self.id]
        return [number for number in numbers if number]

    def __len__(self) -> int:
        known = self._range()
        return known.count() if known is not None else len(_Rows(self._cluster, self._reference).rows)

    @overload
    def __getitem__(self, index: int) -> Task: ...
    @overload
    def __getitem__(self, index: slice) -> TaskList: ...
    def __getitem__(self, index: int | slice) -> Task | TaskList:
        """Return one task by its index, or counted from the last; for a slice, the slice of the list of all tasks.

        Raises
        ------
        JobNotFound
            The array has no such task; the hint names its tasks.
        UsageError
            A slice of an array whose tasks are not 0, 1, 2 …: it could mean indices or positions.
        """
        if isinstance(index, slice):
            return self._slice(index)
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"{index!r} is not an index of a task. Use for example job[3].")
        if self.id is None:
            raise JobNotFound(
                "This job has no job ID yet: sbatch has not answered.", hint="Use job.refresh() to ask again."
            )
        if index < 0:
            return self._from_the_end(index)
        data = self._cluster.client.get(self._cluster.path("jobs", f"{self.id}_{index}"))
        return Task(self._cluster, data, index, from_start=self._from_start, array=self)

    def _from_the_end(self, index: int) -> Task:
        tasks = self.tasks()
        if -index > len(tasks):
            raise JobNotFound(
                f"Job {self.id} has no task {index}.", hint=f"It has {len(tasks)} tasks. Use job[-1] for the last one."
            )
        return tasks[index]

    def _slice(self, places: slice) -> TaskList:
        tasks = self.tasks()
        if any(task.index != place for place, task in enumerate(tasks)):
            raise UsageError(
                f"The tasks of job {self.id} are {TaskRange.from_tasks(task.index for task in tasks)}: "
                f"a slice could mean their indices or their positions.",
                hint="Use list(job)[:2] for the first two tasks, or [job[n] for n in …] for indices.",
            )
        return TaskList(self, tasks[places])

    def __iter__(self) -> Iterator[Task]:
        """Yield all tasks in their current state."""
        return iter(self.tasks())

    def tasks(self) -> TaskList:
        """Return all tasks in their current state."""
        _ = self.data  # refreshes fields that the rows omit, such as the partition
        rows = _Rows(self._cluster, self._reference)
        return TaskList(self, (self._with_row(row) for row in rows.rows))

    def update(self, tasks: Iterable[Task]) -> None:
        """Update handles of tasks, with one request to the agent for all."""
        known = {row["task"]: row for row in _Rows(self._cluster, self._reference).rows}
        for task in tasks:
            if task.index in known:
                task._data = self._task_data(known[task.index])
                task._updated_at = time.monotonic()

    def failed(self) -> TaskList:
        """Return the finished tasks without a known success; the end of those in state UNKNOWN is not known."""
        return TaskList(self, (task for task in self.tasks() if task.is_finished and task.state != "COMPLETED"))

    def raise_for_state(self) -> Job:
        """Raise JobFailed if the array is finished without success: the first failed task, and the end of its log."""
        if self.is_finished and self.state != "COMPLETED":
            text, path, whose = "", None, ""
            with contextlib.suppress(SlurmError):
                task = min(self.failed(), key=lambda task: (not has_run(task.data), task.index), default=None)
                if task is not None:
                    whose, (text, stream) = headline(task.data), task._log()
                    path = output_path(task._data, stream or "stdout")
            # The warnings were shown at the submission.
            raise failure({**self.data, "warnings": []}, text, path, owner=whose)
        return self

    def table(self) -> Table:
        """Return a table with a row for each task: parameters, state, exit code, elapsed seconds, and returned values.

        ``table["lr"]`` is a column, ``table.to_pandas()`` a DataFrame. A missing returned value is None.
        """
        rows = _Rows(self._cluster, self._reference, parameters=True)
        results = self._results() if self._data.get("kind") == "python" else {}
        outputs = list(dict.fromkeys(name for found in results.values() for name in found))
        names = [name for name in rows.names if name not in outputs]
        body = []
        for row in rows.rows:
            task = row["task"]
            given, got = rows.parameters.get(task, {}), results.get(task, {})
            facts = [row["state"], row["exit_code"], _elapsed(row)]
            body.append([task, *map(given.get, names), *facts, *map(got.get, outputs)])
        return Table(["task", *names, "state", "exit_code", "elapsed", *outputs], body, with_none=names)

    def _results(self) -> dict[int, dict[str, object]]:
        """Return the values that tasks returned to the notebook, without files that cannot be read."""
        from jupyter_slurm.client.jobs.returned_values import (
            read_outputs,  # imports pickle and more; few jobs have values
        )

        results: dict[int, dict[str, object]] = {}
        first: int | None = 0
        while first is not None:
            told = self._cluster.client.get(self._path("values"), params={"first": first})
            for task, content in told["values"]:
                try:
                    found = (
                        read_outputs(bytearray(base64.b64decode(content)), self._cluster.name)
                        if content
                        else self[task].outputs
                    )
                except SlurmError:
                    continue
                results[task] = {**dict.fromkeys(found.errors), **found}
            first = told["next"]
        return results

    def _with_row(self, row: _TaskRow) -> Task:
        return Task(self._cluster, self._task_data(row), row["task"], from_start=self._from_start, array=self)

    def _task_data(self, row: _TaskRow) -> api.Job:
        """Convert a row of a task to the API object of a job."""
        whole = {name: value for name, value in self._data.items() if name not in _DETAIL_KEYS}
        own = {name: value for name, value in row.items() if name != "task"}
        own |= {"id": self._task_id(row["task"]), "task": row["task"], "tasks": None, "array": None, "parts": None}
        return cast("api.Job", {**whole, **own, "finished": _is_over(row["state"])})

    def _task_id(self, task: int) -> str:
        """Return Slurm's id of a task; a task that was never submitted has its index after the first number."""
        parts = [part for part in self._data.get("parts") or () if part["offset"] <= task]
        if not parts or parts[-1]["id"] is None:
            return f"{self._data.get('id')}_{task}"
        return f"{parts[-1]['id']}_{task - parts[-1]['offset']}"

    def _range(self) -> TaskRange | None:
        try:
            return TaskRange.parse(str(self._data.get("array") or ""))
        except ParseError:
            return None


class TaskList(JobList[Task]):
    """Some tasks of an array, shown as a table; ``job.failed()`` is an example."""

    def __init__(self, array: ArrayJob, tasks: Iterable[Task] = ()) -> None:
        super().__init__(tasks)
        self.array = array

    def resubmit(self, **options: Any) -> Job:
        """Submit only these tasks again, with the same text and parameters; see :meth:`Job.resubmit`.

        Returns
        -------
        ArrayJob
            A new array, with tasks of the same numbers; ``job.record["resubmitted_from"]`` names the first array.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        if not self:
            raise UsageError(
                "There is no task to resubmit.", hint="Check job.table(): job.failed() is empty if all tasks succeeded."
            )
        known = self.array._range()
        tasks = TaskRange.from_tasks((task.index for task in self), limit=known.limit if known else None)
        return self.array.resubmit(array=str(tasks), **options)


class _Rows:
    """The agent's rows of all tasks, in one answer."""

    def __init__(self, cluster: Cluster, reference: str, *, parameters: bool = False) -> None:
        asked = {"parameters": "true" if parameters else "false"}
        told = cluster.client.get(cluster.path("jobs", reference, "tasks"), params=asked)
        self.rows = [cast("_TaskRow", dict(zip(told["columns"], row, strict=True))) for row in told["rows"]]
        self.names: list[str] = told["names"]
        self.parameters: dict[int, Parameters] = {
            row["task"]: dict(zip(self.names, map(value_of, literals), strict=True))
            for row, literals in zip(self.rows, told["parameters"], strict=False)
        }


def handle(cluster: Cluster, data: api.Job, *, from_start: bool = False) -> Job:
    """Return the handle of a job; an array gets a handle with its tasks."""
    return Job._handle_of(cluster, data, from_start=from_start)


def _is_over(state: str) -> bool:
    return JobState(state).is_finished or state in ("UNKNOWN", "NOT_SUBMITTED")


def _elapsed(row: _TaskRow) -> float | None:
    start, end = row["start_time"], row["end_time"]
    return round(end - start) if start and end else None
