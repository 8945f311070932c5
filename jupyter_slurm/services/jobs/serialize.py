"""Serialization of jobs: the ``Job`` of openapi.yaml."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.domain.advice.endings import explain_failed_tasks, own_exit_code
from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.services.jobs.array_tasks import first_failed
from jupyter_slurm.services.jobs.job import ALLOCATED_FIELDS, NOT_SUBMITTED, UNKNOWN, TrackedJob
from jupyter_slurm.services.jobs.job_views import WaitingNumbers
from jupyter_slurm.services.jobs.notebook_process import process_key
from jupyter_slurm.services.jobs.session_state import server_warnings, session_dict

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["is_listed", "job_dict"]

_Fields = dict[str, Any]  # some of the fields of ``api.Job``

_NOT_FOUND_EXIT_CODE = 127
_SIGNAL_EXIT_CODE_BASE = 128  # exit codes of programs killed by a signal are higher
_PYTHON_HINT = "Give python=PATH with a Python that the nodes see: /usr/bin/python3, or one in your home directory."
_HELD = "JobHeldUser"
_FORGOTTEN_TEXT = (
    "Slurm keeps no record of tasks that were cancelled before they started. Run the task with its resubmit()."
)


def is_listed(entry: TrackedJob) -> bool:
    """Return whether lists of jobs show a job: steps belong to their allocation, except sessions."""
    return not entry.is_step or entry.kind == "session"


def job_dict(entry: TrackedJob) -> api.Job:
    """Return the job in the form of the API."""
    latest = entry.latest or _killed(entry)
    job = {
        **_identity(entry, latest),
        **_state(entry, latest),
        **_resources(entry, latest),
        **_allocation(entry),
        **_times(entry, latest),
        **_array(entry),
        **_files(entry, latest),
        "session": session_dict(entry),
        "stage": _stage(entry),
        "warnings": [*entry.warnings, *server_warnings(entry)],
        "environment_offer": entry.submission.environment_offer or None,
        "error": entry.error.to_problem() if entry.error else None,
    }
    return cast("api.Job", job)


def _identity(entry: TrackedJob, latest: JobRecord | None) -> _Fields:
    """Return identity and name of the job."""
    record = entry.record
    return {
        "key": entry.key,
        "cluster": entry.cluster,
        "id": str(entry.id) if entry.id else entry.number,
        "kind": entry.kind,
        "label": record.label if record else None,
        "name": (record.name if record else None) or (latest.name if latest else None),
    }


def _state(entry: TrackedJob, latest: JobRecord | None) -> _Fields:
    """Return the state, its reason, and the next step."""
    if latest is None and entry.id and entry.record and entry.record.hold and entry.state.is_pending:
        latest = JobRecord(entry.id, entry.state, reason=_HELD)  # Slurm has not been asked yet
    reason = latest.reason if latest and latest.reason != "None" else ""
    if latest and latest.state.is_pending and not (entry.state.is_pending or entry.state.is_finished):
        reason = ""  # the runner reports the start: the reason for waiting no longer holds
    words, step = _explanation(entry, latest, reason)
    return {
        "state": entry.state.name,
        "sending": entry.submission.upload.as_dict() if entry.submission.upload else None,
        "state_since": entry.state_since,
        "finished": entry.is_finished,
        "known": entry.is_current,
        "unknown_since": entry.slurm.unknown_since,
        "reason": reason,
        "reason_text": f"{words} {entry.slurm.blame}".strip() if "Dependency" in reason else words,
        "next_step": step,
        "next_end": numbers.next_end if (numbers := _numbers(entry, reason)) else None,
        "restarts": entry.restarts,
        "exit_code": own_exit_code(entry.state, entry.exit_code, entry.signal),
        "signal": entry.signal,
        "ranks": entry.runner.ranks,
    }


def _explanation(entry: TrackedJob, latest: JobRecord | None, reason: str) -> tuple[str, str]:
    """Return the explanation of a reason or an end, and the next step."""
    words, step = "", ""
    if reason or entry.state.is_finished:
        ended = replace(latest, state=entry.state, exit_code=entry.exit_code, signal=entry.signal) if latest else None
        words, step = explain(reason, ended)
    failed, tasks = first_failed(entry), _tally(entry)
    if failed is not None and tasks and entry.state.is_finished:
        words, step = explain_failed_tasks(tasks, failed["task"], failed["exit_code"], failed["signal"]), ""
    numbers = _numbers(entry, reason)
    if numbers is not None:
        words, step = numbers.words, numbers.next_step or step
    python = _python(entry)
    if python and entry.exit_code == _NOT_FOUND_EXIT_CODE and entry.state.is_finished:
        words, step = f"The node seems to have no {python} (exit code {_NOT_FOUND_EXIT_CODE}).", _PYTHON_HINT
    if entry.state == UNKNOWN and entry.id is not None and entry.id.task is not None:
        step = _FORGOTTEN_TEXT
    elif entry.state == UNKNOWN and entry.error is not None:
        words, step = entry.error.message, entry.error.hint
    return words, step


def _numbers(entry: TrackedJob, reason: str) -> WaitingNumbers | None:
    """Return the numbers of a waiting job, if they belong to its present reason."""
    numbers = entry.slurm.numbers
    return numbers if numbers is not None and entry.state.is_pending and numbers.reason == reason else None


def _python(entry: TrackedJob) -> str | None:
    """Return the Python that starts the job on its node."""
    record = entry.record
    if record is None:
        return None
    if record.session is not None and not record.session.command:
        return record.request.python if record.request else None
    return record.cell.python if record.cell and not process_key(entry) else None


def _resources(entry: TrackedJob, latest: JobRecord | None) -> _Fields:
    """Return the requested and the allocated resources."""
    record = entry.record
    return {
        **{name: getattr(latest, name, None) or entry.runner.had.get(name) for name in ALLOCATED_FIELDS},
        "nodes": (latest.nodes if latest else None) or entry.reported_nodes,
        "gpus": record.granted.gpus if record and record.granted else None,
        # The requested limit, before the first query of the queue and if the queue shows none.
        "time_limit": (latest.time_limit if latest else None) or (record.time_limit if record else None),
        "launcher": record.launcher if record else None,
        "components": entry.components(),
    }


def _allocation(entry: TrackedJob) -> _Fields:
    """Return the allocation of a step, or the lease of an allocation."""
    record = entry.record
    lease = record.lease if record else None
    return {
        "allocation": entry.allocation,
        "joined": entry.joined,
        "process": process_key(entry),
        "kernel": record.kernel.to_json() if record and record.kernel else None,
        "lease": lease.seconds if lease and not lease.once else None,
        "keep": bool(lease.keep) if lease else None,
        "kept_for": lease.notebook if lease and lease.keep else None,
        "released": record.released if record else None,
    }


def _times(entry: TrackedJob, latest: JobRecord | None) -> _Fields:
    return {
        "submit_time": entry.submit_time,
        "start_time": entry.start_time,
        "estimated_start": latest.start_time if latest and entry.state.is_pending else None,
        "end_time": entry.end_time,
        # Before Slurm has shown or started the job, its only time is of the agent.
        "clock_offset": entry.slurm.clock_offset if entry.slurm.submitted or entry.start_time else 0.0,
    }


def _array(entry: TrackedJob) -> _Fields:
    """Return the tasks of an array, or the index of a task."""
    record = entry.record
    return {
        "tasks": _tally(entry),
        "failed_task": first_failed(entry),
        "array": str(entry.all_tasks or "") if entry.is_array and (entry.id is None or entry.id.task is None) else None,
        "task": entry.id.task + entry.offset if entry.id and entry.id.task is not None else None,
        "parts": [_part(offset, part) for offset, part in entry.members] or None,
        "sweep": record.sweep.names if record and record.sweep else None,
    }


def _files(entry: TrackedJob, latest: JobRecord | None) -> _Fields:
    """Return the paths of the job's files, and the submission."""
    record = entry.record
    return {
        **entry.paths(),
        "folder": entry.folder.path if entry.folder else None,
        "script_path": entry.script_path,
        "work_dir": (record.work_dir if record else None) or (latest.work_dir if latest else None) or None,
        "argv": record.argv if record else None,
    }


def _tally(entry: TrackedJob) -> dict[str, int] | None:
    """Return the tasks of an array by state, even if they were not read again after their end."""
    counts = Counter(entry.counts())
    for part in [part for _, part in entry.members] or [entry]:
        if part is not None and not part.slurm.tasks and not part.slurm.rest:
            end = part.record.end if part.record else None
            counts.update((end.tasks if end else None) or {})
    return dict(counts) if counts and (entry.id is None or entry.id.task is None) else None


def _stage(entry: TrackedJob) -> api.JobStage | None:
    """Return the folders of a job, and the files copied back."""
    stage = entry.folders
    if stage is None or (entry.id is not None and entry.id.task is not None):
        return None
    is_over = entry.is_finished
    back = stage.back if is_over and stage.is_back(entry.restarts) else None
    state = (
        "back"
        if back
        else "elsewhere"
        if entry.staging.is_elsewhere
        else "coming"
        if entry.is_copy_back_due
        else "there"
    )
    done, total = entry.staging.progress or (0, 0)
    return {
        "folders": [{"source": folder.source, "dest": folder.dest} for folder in stage.folders],
        "local": stage.local,
        "state": state if is_over else "there",
        "done": done,
        "total": total,
        "files": back.files if back else None,
        "bytes": back.bytes if back else None,
        "left": (back.left or []) if back else [],
        "held": (back.held or []) if back else [],
        "refused": (back.refused or []) if back else [],
        "error": back.error if back else None,
        "given_up": bool(back and back.given_up),
    }


def _part(offset: int, part: TrackedJob | None) -> api.JobPart:
    return {
        "offset": offset,
        "id": str(part.id) if part and part.id else None,
        "state": part.state.name if part else NOT_SUBMITTED.name,
    }


def _killed(entry: TrackedJob) -> JobRecord | None:
    """Return Slurm's expected state of a cell that was killed at once, while only its runner has reported the end."""
    if entry.id is None or not entry.is_finished or (entry.exit_code or 0) <= _SIGNAL_EXIT_CODE_BASE:
        return None
    return JobRecord(entry.id, entry.state, reason="NonZeroExitCode")
