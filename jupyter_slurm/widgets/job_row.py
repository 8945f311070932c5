"""Row of a job: text in columns, and its progress, all escaped."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.render.allocation_card import job_name
from jupyter_slurm.client.render.job_card import is_finished, state_as_html, tally
from jupyter_slurm.client.render.present_time import present_time, time_limit
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.domain.slurm_values import format_duration
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.widgets.base import calm

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["HEAD", "progress", "row", "runs"]


_CELL = "overflow:hidden;text-overflow:ellipsis;white-space:nowrap"
_GRID = (
    "display:grid;grid-template-columns:6em minmax(6em,2fr) 9em 6em minmax(13em,2fr) minmax(5em,2fr);gap:0 .8em;"
    "align-items:center;line-height:1.6;color:var(--jp-ui-font-color1,CanvasText)"
)
_BAR = "width:3.5em;vertical-align:middle"
_COLUMNS = ("Job", "Name", "State", "Partition", "Time", "Where, why")


def _cells(values: tuple[str, ...]) -> str:
    return "".join(f'<span style="{_CELL}">{value}</span>' for value in values)


HEAD = f'<div style="{_GRID};font-weight:bold">{_cells(_COLUMNS)}</div>'
"""The headings of the columns."""


def runs(data: api.Job) -> bool:
    """Return whether the clock of a job is running."""
    return bool(data.get("start_time")) and not is_finished(data) and JobState(str(data["state"])).is_running


def row(data: api.Job) -> str:
    """Return a job as a row of HTML."""
    why = data.get("nodes") or ("" if is_finished(data) else data.get("reason_text") or data.get("reason"))
    if data.get("known") is False and not is_finished(data):
        why = "Slurm does not answer. The last known state is shown."
    tasks = tally(data)
    ended = f"exit code {data['exit_code']}" if is_finished(data) and data.get("exit_code") and not tasks else ""
    values = (
        escape(str(data.get("id") or "…")),
        _titled(job_name(data)),
        state_as_html(data),
        escape(str(data.get("partition") or "")),
        progress(data),
        _titled(" · ".join(filter(None, (tasks, ended or why)))),
    )
    return f'<div class="jupyter-slurm-row" style="{_GRID}">{_cells(values)}</div>'


def progress(data: api.Job) -> str:
    """Return the used share of a job's time."""
    start, end, limit = data.get("start_time"), data.get("end_time"), time_limit(data)
    said = ""
    if runs(data) and start:
        used = max(0.0, present_time(data) - start)
        if limit:
            said = f'<progress style="{_BAR}" aria-label="time used" value="{min(used, limit):.0f}" max="{limit}">'
            said += "</progress> "
        said += _titled(format_duration(used) + (f" of {format_duration(limit)}" if limit else ""))
    elif start and end and is_finished(data):
        said = escape(f"ran {format_duration(end - start)}")
    elif limit and not is_finished(data):
        said = calm(f"up to {format_duration(limit)}")
    return said


def _titled(text: str) -> str:
    return f'<span title="{escape(text)}">{escape(text)}</span>'
