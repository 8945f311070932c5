"""Live table of jobs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import ipywidgets

from jupyter_slurm.client.allocations.allocation import handle
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.cluster_names import shown_name
from jupyter_slurm.client.jobs.actions import act
from jupyter_slurm.client.jobs.job_list import JobList
from jupyter_slurm.client.render.job_card import is_finished, title
from jupyter_slurm.client.render.table import escape
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.advice.reasons import is_held_reason
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import from_problem
from jupyter_slurm.widgets.base import BAD, Button, calm, html, text
from jupyter_slurm.widgets.job_row import HEAD, row, runs
from jupyter_slurm.widgets.live_jobs import LiveJobs, show_lines

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["JobMonitor", "monitor"]

_INITIAL_ROWS, _FINISHED_ROWS = 20, 5
_ROWS_PER_CLICK = 30  # rows added by a click
_LOG_WIDTH, _HOLD_WIDTH, _CANCEL_WIDTH = 4, 6, 9  # widths of buttons
# Width of all buttons with their margins. HTML widgets have another font size: em would be another width.
_BUTTONS = f"calc({_LOG_WIDTH + _HOLD_WIDTH + _CANCEL_WIDTH} * var(--jp-widgets-font-size, 13px) + 12px)"


def monitor(*, rows: int = _INITIAL_ROWS, finished: int = _FINISHED_ROWS) -> JobMonitor:
    """Show your jobs on this cluster in a live table with actions: show, hold, cancel.

    Parameters
    ----------
    rows : int
        Rows shown at first.
    finished : int
        Finished jobs among them, the latest.
    """
    shown = JobMonitor(current(), rows=rows, finished=finished)
    shown.start()
    return shown


class JobMonitor(LiveJobs):
    """Table of :func:`monitor`, ended by ``close()`` or the end of the kernel. An invisible table does not listen."""

    def __init__(self, cluster: Cluster, *, rows: int = _INITIAL_ROWS, finished: int = _FINISHED_ROWS) -> None:
        self._limit, self._finished = max(1, rows), max(0, finished)
        self._name = escape(shown_name(cluster))
        self._head, self._rest = html(), html()
        self._filter = text("", placeholder="Filter: name, number, state …", continuous_update=True)
        self._filter.observe(lambda _: self.changed(), "value")
        self._more = Button("Show more", "Show more jobs", self._show_more)
        self._rows: dict[str, _Row] = {}
        self._table = ipywidgets.VBox(layout=ipywidgets.Layout(width="100%"))
        top = ipywidgets.HBox([self._head, self._filter], layout=_between())
        below = ipywidgets.HBox([self._rest, self._more])
        columns = ipywidgets.HBox([html(HEAD, flex="1 1 auto", min_width="0"), html(width=_BUTTONS, flex="0 0 auto")])
        super().__init__(cluster, above=[top, columns, self._table, below])
        self.add_class("jupyter-slurm-monitor")

    def draw_jobs(self) -> None:
        """Update the table."""
        known = list(self._feed.jobs.values())
        active = [data for data in known if not is_finished(data)]
        found = [data for data in self._chosen(known) if self._matches(data)]
        self._head.value = self._summary(active)
        show_lines(self._table, self._rows, lambda: _Row(self), found[: self._limit])
        left = max(0, len(found) - self._limit)
        self._rest.value = calm(f"… and {left} more") if left > 0 else "" if found else calm("No jobs.")
        self._more.layout.display = None if left > 0 else "none"

    def static(self) -> tuple[str, str]:
        """Return the jobs as a table."""
        known = self._chosen(list(self._feed.jobs.values()))
        shown = JobList(handle(self._cluster, data) for data in known)
        return repr(shown), shown._repr_html_()

    def act(self, subject: str, data: api.Job) -> None:
        """Cancel, hold or release a job."""
        self.work(lambda: self._act(subject, data))

    def _act(self, subject: str, data: api.Job) -> None:
        (answer,) = act(self._cluster, subject, [str(data.get("key") or data["id"])])
        if answer["now"]:
            self._feed.apply_job(answer["now"])
        if answer["error"]:
            raise from_problem(answer["error"])

    def _show_more(self) -> None:
        self._limit += _ROWS_PER_CLICK
        self.changed()

    def _chosen(self, settings: list[api.Job]) -> list[api.Job]:
        """Return the active jobs, and the latest finished ones, the latest first."""
        settings = sorted(settings, key=_age, reverse=True)
        over = [data for data in settings if is_finished(data)]
        return [data for data in settings if not is_finished(data)] + over[: self._finished]

    def _matches(self, data: api.Job) -> bool:
        words = str(self._filter.value).lower().split()
        said = " ".join(str(data.get(name) or "") for name in ("id", "name", "label", "state", "partition", "nodes"))
        return all(word in said.lower() for word in words)

    def _summary(self, active: list[api.Job]) -> str:
        states: dict[str, int] = {}
        for data in active:
            states[str(data["state"])] = states.get(str(data["state"]), 0) + 1
        counts = " · ".join(f"{count} {state}" for state, count in sorted(states.items())) or "no active jobs"
        trouble = self._feed.trouble
        said = f' <span style="color:{BAD}">{escape(trouble)}</span>' if trouble else ""
        return f"<div><b>Jobs on {self._name}</b> {calm(counts)}{said}</div>"


def _between() -> ipywidgets.Layout:
    return ipywidgets.Layout(justify_content="space-between", width="100%", flex_flow="row wrap")


class _Row:
    """The line of one job."""

    def __init__(self, owner: JobMonitor) -> None:
        self._owner, self._data = owner, cast("api.Job", {})
        self._cells = html(flex="1 1 auto", min_width="0", align_self="center")
        self._log = Button(
            "Log", "Show the log of the job", lambda: owner.show_log(self._data), width=f"{_LOG_WIDTH}em"
        )
        self._hold_button = Button(
            "Hold", "Keep the job from starting", self._hold_or_release, width=f"{_HOLD_WIDTH}em"
        )
        self._cancel = Button(
            "Cancel", "Cancel this job", lambda: owner.act("cancel", self._data), asks=True, width=f"{_CANCEL_WIDTH}em"
        )
        boxes = [self._cells, self._log, self._hold_button, self._cancel]
        self.box = ipywidgets.HBox(boxes, layout=ipywidgets.Layout(width="100%"))

    def show(self, data: api.Job) -> None:
        """Show a job; unchanged parts are not sent."""
        if data is self._data and not runs(data):
            return
        self._data = data
        about = printable(title(data)).replace("\n", " ")
        word = "Release" if _is_held(data) else "Hold"
        self._log.tooltip, self._cancel.tooltip = f"Show the log of {about}", f"Cancel {about}"
        self._hold_button.description, self._hold_button.tooltip = word, f"{word} {about}"
        self._cells.value = row(data)
        self._hold_button.layout.visibility = None if JobState(str(data["state"])).is_pending else "hidden"
        self._cancel.layout.visibility = "hidden" if is_finished(data) else None

    def _hold_or_release(self) -> None:
        self._owner.act("release" if _is_held(self._data) else "hold", self._data)


def _is_held(data: api.Job) -> bool:
    return is_held_reason(data.get("reason") or "")


def _age(data: api.Job) -> tuple[float, int]:
    number = re.match(r"[0-9]+", str(data.get("id") or ""))
    return data.get("submit_time") or 0.0, int(number[0]) if number else 0
