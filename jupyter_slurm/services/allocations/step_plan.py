"""Plan of a step of an allocation: data for its holder, record and script."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NotRequired, TypedDict

from jupyter_slurm._version import __version__
from jupyter_slurm.domain.environment_variables import submission_environment
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.step_options import step_options
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.environments.resolver import PreparedEnvironment
from jupyter_slurm.services.jobdir.job_directory import FORMAT, ClusterFolder
from jupyter_slurm.services.jobdir.job_json_model import (
    CellRecord,
    JobRecordFile,
    OutputsRecord,
    StepRecord,
    ValuesRecord,
)
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.notebook_process import process_key
from jupyter_slurm.services.slurm.client import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["KernelStepFile", "StepFile", "is_alone", "plan_step", "ran_before_requeue", "record_step"]

_SHARED = {"exact", "exclusive", "overlap", "whole"}
_GPUS = {"gres", "gpus", "gpus-per-node", "gpus-per-socket", "gpus-per-task", "tres-per-task"}
_ONE_TASK = ("--nodes=1", "--ntasks=1")
_OF_ONE_TASK = ("process", "kernel", "session")


class KernelStepFile(TypedDict):
    """Fields of step.json that a kernel sets."""

    python: str
    wrapper: Sequence[str]
    variables: Mapping[str, str]
    cwd: NotRequired[str]


class StepFile(TypedDict):
    """Content of step.json, which the holder of the allocation reads."""

    options: Sequence[str]
    args: Sequence[str]
    python: str | None
    has_cpus: bool
    has_gpus: bool
    has_output: bool
    cwd: str | None
    env: Mapping[str, str] | None
    umask: int | None
    node_variables: NotRequired[Sequence[Sequence[int]]]
    wrapper: NotRequired[Sequence[str]]
    variables: NotRequired[Mapping[str, str]]


def plan_step(
    asked: api.Step, table: OptionTable, allocation: TrackedJob, prepared: PreparedEnvironment | None = None
) -> StepFile:
    """Return the data that the holder needs.

    Raises
    ------
    UsageError
        A step cannot have one of the options, or an option keeps its environment from the step.
    """
    options, is_one_task = list(asked.get("options") or []), asked["kind"] in _OF_ONE_TASK
    names = step_options(table, options, is_process=is_one_task)
    if is_one_task:
        options[:0] = _ONE_TASK
    if not names & _SHARED:
        options.insert(0, "--overlap")  # without it, a step waits for the end of the previous one
    context = asked.get("context") or {}
    env = None if asked.get("process") else context.get("env")  # the cell uses the environment of its process
    step: StepFile = {
        "options": options,
        "args": list(asked.get("args") or []),
        "python": _step_python(asked, prepared),
        "has_cpus": "cpus-per-task" in names,
        "has_gpus": bool(names & _GPUS),
        "has_output": bool(names & {"output", "error"}),
        "cwd": context.get("cwd") or (allocation.record.work_dir if allocation.record else None),
        "env": None if env is None else submission_environment(env),
        "umask": context.get("umask"),
    }
    if places := asked.get("node_variables"):
        step["node_variables"] = places
    if prepared is not None:
        chosen = {option.name: option.value for option in table.split(options).options}
        prepared.check(chosen.get("export") or (context.get("env") or {}).get("SLURM_EXPORT_ENV"), asked["kind"])
        step["wrapper"], step["variables"] = list(prepared.wrapper()), dict(prepared.environment.variables)
    return step


def _step_python(asked: api.Step, prepared: PreparedEnvironment | None) -> str | None:
    """Return the Python of a cell or a process; a command or a script needs none of the environment."""
    if prepared is not None and asked["kind"] in ("python", "process", "session"):
        return prepared.python
    return asked.get("python") or asked.get("default_python")


def record_step(
    asked: api.Step, step: StepFile, allocation: TrackedJob, cluster: ClusterFolder, now: float
) -> tuple[JobRecordFile, bytes]:
    """Return the record of a step and its script.

    Raises
    ------
    UsageError
        A command or a Python interpreter is missing.
    """
    folder = cluster.job(asked["key"])
    kind, args = asked["kind"], step["args"]
    text, name = asked.get("text") or "", "cell.sh"
    if kind == "command":
        if not args:
            raise UsageError("The line has no command.", hint="Write %srun [keywords] [options] COMMAND [arguments].")
        text, name = f"{shlex.join(args)}\n", "command"
    elif kind in ("python", *_OF_ONE_TASK):
        name = "cell.py" if kind == "python" else kind
        if not (step["python"] or asked.get("process")):
            raise UsageError("The request names no Python for the cell.", hint="Name it with python=PATH.")
    out = None if step["has_output"] else folder.file("stdout")
    record = JobRecordFile(
        format=FORMAT,
        key=folder.key,
        kind=kind,
        created=now,
        writer=__version__,
        name=printable(shlex.join(args))[:80] if kind == "command" else name,
        script=name,
        argv=["srun", *step["options"], *_run_by(asked, name, step["python"])],
        work_dir=step["cwd"],
        events=cluster.events,
        outputs=OutputsRecord(stdout=out, stderr=out and folder.file("stderr")),
        step=StepRecord(allocation=str(allocation.key), process=asked.get("process")),
        given=frozenset({"label", "work_dir", "end"}),
    )
    if asked.get("process"):
        record = replace(record, name=asked.get("filename") or name)
    if kind == "session":
        from jupyter_slurm.services.allocations.session_steps import record_session

        record = record_session(record, asked, allocation)
    if kind == "python":
        record = _record_cell(record, asked, text, step["python"])
    return record, text.encode("utf-8", "surrogateescape")


def _record_cell(record: JobRecordFile, asked: api.Step, text: str, python: str | None) -> JobRecordFile:
    """Return the record of a step with its Python cell, and the names of its variables."""
    record = replace(
        record, cell=CellRecord(source=text, filename=asked.get("filename") or "<cell>", python=python or None)
    )
    if values := asked.get("values"):
        sent = ValuesRecord(inputs=values["in"], outputs=values["out"], limit=values["limit"])
        record = replace(record, values=sent)
    return record


def _run_by(requested: api.Step, name: str, python: str | None) -> list[str]:
    """Return the command that srun runs, as requested."""
    args = list(requested.get("args") or [])
    if requested["kind"] in _OF_ONE_TASK:
        return [python or ""]
    return args if requested["kind"] == "command" else [name, *args]


def is_alone(step: TrackedJob) -> bool:
    """Return whether srun was asked for an exclusive step; a cell in a process does not involve srun."""
    return process_key(step) is None and "--overlap" not in (step.record.argv if step.record else [])


def ran_before_requeue(step: TrackedJob, allocation: TrackedJob) -> bool:
    """Return whether a step began before its allocation was requeued: after a node failure its end is not recorded."""
    run = step.record.step.restarts if step.record and step.record.step else None
    return run is not None and allocation.restarts > run
