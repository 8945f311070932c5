"""What several records of one job say together."""

from __future__ import annotations

from dataclasses import replace

from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.states import JobState

__all__ = ["rank_of", "representative", "with_what_was_told"]


def with_what_was_told(record: JobRecord, before: JobRecord) -> JobRecord:
    """Keep what only a question about this one job tells: the poller asks for nothing with free text."""
    kept = {name: getattr(before, name) for name in ("name", "stdout", "stderr", "work_dir", "command")}
    return replace(record, **{name: value for name, value in kept.items() if getattr(record, name) is None})


def representative(records: list[JobRecord]) -> JobRecord | None:
    """Return the record that speaks for a job: running before pending before the worst end."""
    return min(records, key=lambda record: rank_of(record.state, is_finished=record.state.is_finished), default=None)


def rank_of(state: JobState, *, is_finished: bool) -> int:
    """Return which of several speaks for all of them: what runs, before what waits, before the worst end."""
    if state.is_running:
        return 0
    if not is_finished:
        return 1
    return 3 if state.name == "COMPLETED" else 2
