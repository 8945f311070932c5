"""Several jobs, shown as a table."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeVar

from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render.allocation_card import job_name, remaining_time
from jupyter_slurm.client.render.job_card import tally
from jupyter_slurm.client.render.table import Table, escape
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.slurm_values import duration_words, format_duration

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["AllocationList", "JobList"]


_J = TypeVar("_J", bound=Job)

_MAX_ENDED = 40  # rows of ended jobs in the display of a list; the list and its table have all


class JobList(list[_J]):
    """List of jobs, shown as a table.

    Attributes
    ----------
    trouble : str
        Why the list may be incomplete: the queue could not be read. Empty if it could.
    """

    def __init__(self, jobs: Iterable[_J] = (), trouble: str = "") -> None:
        super().__init__(jobs)
        self.trouble = trouble

    def table(self) -> Table:
        """Return the jobs as a table: an array has one row, with the number of tasks in each state."""
        columns = ["JOBID", "NAME", "STATE", "PARTITION", "NODES", "SUBMITTED", "EXIT", "REASON"]
        rows, tallies = [_row(job._data) for job in self], [tally(job._data) for job in self]
        if any(tallies):
            columns.insert(3, "TASKS")
            for row, said in zip(rows, tallies, strict=True):
                row.insert(3, said)
        return Table(columns, rows)

    def _shown(self) -> tuple[Table, str]:
        """Return all active jobs and the first of those that have ended, and a note on the others."""
        ended = [at for at, job in enumerate(self) if job._data.get("finished")]
        hidden = {*ended[_MAX_ENDED:]} if type(self) is JobList else set()
        table = self.table()
        table.rows = [row for at, row in enumerate(table.rows) if at not in hidden]
        more = f"… {len(hidden)} more jobs have ended. Call .table() on the list to show all." if hidden else ""
        return table, more

    def __repr__(self) -> str:
        table, more = self._shown()
        return "\n".join([repr(table), *([more] if more else []), *([printable(self.trouble)] if self.trouble else [])])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        said = f'<div style="color:var(--jp-warn-color1,#f57c00)">{escape(self.trouble)}</div>' if self.trouble else ""
        table, more = self._shown()
        return table._repr_html_() + (f"<div>{escape(more)}</div>" if more else "") + said

    def to_pandas(self) -> Any:
        """Return the jobs as a pandas.DataFrame; see :meth:`Table.to_pandas`."""
        return self.table().to_pandas()


class AllocationList(JobList[_J]):
    """List of allocations: their resources, their remaining time, and the event that ends each."""

    def table(self) -> Table:
        """Return the allocations as a table; a lease is the time without use after which an allocation ends."""
        columns = ["JOBID", "NAME", "STATE", "PARTITION", "NODES", "GPUS", "LEFT", "LEASE", "KEEP"]
        return Table(columns, [_held_row(job._data) for job in self])


def _held_row(data: api.Job) -> list[str]:
    left, lease = remaining_time(data), data.get("lease")
    return [
        str(data.get("id") or "-"),
        str(data.get("label") or ""),
        str(data.get("state") or ""),
        str(data.get("partition") or ""),
        str(data.get("nodes") or ""),
        str(data.get("gpus") or ""),
        "" if left is None else format_duration(left),
        duration_words(lease) if lease else "one step",
        "keep" if data.get("keep") else "",
    ]


def _row(data: api.Job) -> list[str]:
    submitted = data.get("submit_time")
    return [
        str(data.get("id") or "-"),
        job_name(data),
        str(data.get("state") or ""),
        str(data.get("partition") or ""),
        str(data.get("nodes") or ""),
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(submitted)) if submitted else "",
        str(data["exit_code"]) if data.get("exit_code") or data.get("state") == "COMPLETED" else "",
        str(data.get("reason") or ""),
    ]
