"""How a job is told to front doors: the ``Job`` of openapi.yaml."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from jupyter_slurm.domain.advice.endings import exit_code_of
from jupyter_slurm.domain.advice.reasons import explain
from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.services.jobs.job import HAD, NOT_SUBMITTED, UNKNOWN, TrackedJob
from jupyter_slurm.services.jobs.notebook_process import process_of
from jupyter_slurm.services.jobs.session_state import session_dict, warnings_of

__all__ = ["job_dict"]

_NOT_FOUND = 127
_BY_SIGNAL = 128  # exit codes of programs that were killed are above
_PYTHON = "Say python=PATH with a Python that the nodes see: /usr/bin/python3, or one in your home folder."
_FORGOTTEN = (
    "Slurm tells nothing of it any more, as of all tasks that are cancelled before they begin. Its resubmit() runs it."
)


def job_dict(entry: TrackedJob) -> dict[str, Any]:
    """Return the job as the API tells it."""
    record, latest = entry.record or {}, entry.latest or _killed(entry)
    reason = latest.reason if latest and latest.reason != "None" else ""
    if latest and latest.state.is_pending and not (entry.state.is_pending or entry.state.is_finished):
        reason = ""  # it has begun since, as its runner says: why it waited holds no longer
    told = replace(latest, state=entry.state, exit_code=entry.exit_code, signal=entry.signal) if latest else None
    lease = record.get("lease") or {}
    advised = (record.get("advised") or {}).get("memory")
    words, step = explain(reason, told, advised) if reason or entry.state.is_finished else ("", "")
    python = None if process_of(entry) else (record.get("cell") or {}).get("python")
    if entry.kind == "session" and not record["session"].get("command"):
        python = record["asked"].get("python")
    if python and entry.exit_code == _NOT_FOUND and entry.state.is_finished:
        words, step = f"The node has no {python}, as it seems (exit code {_NOT_FOUND}).", _PYTHON
    if entry.state == UNKNOWN and entry.id is not None and entry.id.task is not None:
        step = _FORGOTTEN
    return {
        "key": entry.key,
        "cluster": entry.cluster,
        "id": str(entry.id) if entry.id else entry.number,
        "kind": entry.kind,
        "label": record.get("label"),
        "state": entry.state.name,
        "sending": entry.sending.as_dict() if entry.sending else None,
        "state_since": entry.state_since,
        "finished": entry.is_finished,
        "known": entry.known,
        "unknown_since": entry.unknown_since,
        "reason": reason,
        "reason_text": f"{words} {entry.blame}".strip() if "Dependency" in reason else words,
        "next_step": step,
        "name": record.get("name") or (latest.name if latest else None),
        **{name: getattr(latest, name, None) or entry.had.get(name) for name in HAD},
        "nodes": (latest.nodes if latest else None) or entry.told_nodes,
        "allocation": entry.allocation,
        "process": process_of(entry),
        "kernel": record.get("kernel"),
        "gpus": (record.get("granted") or {}).get("gpus"),
        "lease": None if lease.get("once") else lease.get("seconds"),
        "keep": bool(lease.get("keep")) if lease else None,
        "released": record.get("released"),
        "session": session_dict(entry),
        # Before the first look at the queue, and where that tells none: what was asked for.
        "time_limit": (latest.time_limit if latest else None) or record.get("time_limit"),
        "restarts": entry.restarts,
        "launcher": record.get("launcher"),
        "ranks": entry.ranks,
        "submit_time": entry.submit_time,
        "start_time": entry.start_time,
        "estimated_start": latest.start_time if latest and entry.state.is_pending else None,
        "end_time": entry.end_time,
        "exit_code": exit_code_of(entry.state, entry.exit_code, entry.signal),
        "signal": entry.signal,
        "tasks": _tally(entry),
        "components": entry.components(),
        "array": str(entry.all_tasks or "") if entry.is_array and (entry.id is None or entry.id.task is None) else None,
        "task": entry.id.task + entry.offset if entry.id and entry.id.task is not None else None,
        "parts": [_part(offset, part) for offset, part in entry.members] or None,
        "sweep": (record.get("sweep") or {}).get("names"),
        "stage": _stage(entry),
        **entry.paths(),
        "folder": entry.folder.path if entry.folder else None,
        "script_path": entry.script_path,
        "work_dir": record.get("work_dir") or (latest.work_dir if latest else None),
        "argv": record.get("argv"),
        "warnings": [*entry.warnings, *warnings_of(entry)],
        "error": entry.error.to_problem() if entry.error else None,
    }


def _tally(entry: TrackedJob) -> dict[str, int] | None:
    """Return the tasks of an array by state, also of one whose tasks were not read again since they ended."""
    counts = Counter(entry.counts())
    for part in [part for _, part in entry.members] or [entry]:
        if part is not None and not part.tasks and not part.rest:
            counts.update(((part.record or {}).get("end") or {}).get("tasks") or {})
    return dict(counts) if counts and (entry.id is None or entry.id.task is None) else None


def _stage(entry: TrackedJob) -> dict[str, Any] | None:
    """Return where the folders of a job are, and what of them came back."""
    stage = (entry.record or {}).get("stage")
    if not stage or (entry.id is not None and entry.id.task is not None):
        return None
    back, is_over = stage.get("back") or {}, entry.is_finished
    is_back = is_over and back.get("restarts") == entry.restarts
    state = "back" if is_back else "elsewhere" if entry.is_staged_elsewhere else "coming" if entry.is_owed else "there"
    done, total = entry.bringing or (0, 0)
    return {
        "folders": [{"source": folder["source"], "dest": folder["dest"]} for folder in stage["folders"]],
        "local": stage.get("local"),
        "state": state if is_over else "there",
        "done": done,
        "total": total,
        "files": back.get("files") if is_back else None,
        "bytes": back.get("bytes") if is_back else None,
        "left": (back.get("left") or []) if is_back else [],
        "error": back.get("error") if is_back else None,
        "given_up": bool(back.get("given_up")) if is_back else False,
    }


def _part(offset: int, part: TrackedJob | None) -> dict[str, Any]:
    return {
        "offset": offset,
        "id": str(part.id) if part and part.id else None,
        "state": part.state.name if part else NOT_SUBMITTED.name,
    }


def _killed(entry: TrackedJob) -> JobRecord | None:
    """Return what Slurm will say of a cell that had no time for last words, where its runner has told the end alone."""
    if entry.id is None or not entry.is_finished or (entry.exit_code or 0) <= _BY_SIGNAL:
        return None
    return JobRecord(entry.id, entry.state, reason="NonZeroExitCode")
