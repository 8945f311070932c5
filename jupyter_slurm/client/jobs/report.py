"""Report of a job's resource usage, as text and HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.slurm_values import NO_LIMIT_S, format_duration

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Report"]

_SOURCES = {
    "sacct": "accounting (sacct)",
    "sstat": "live usage (sstat)",
    "runner": "runner of the cell, at its end",
    None: "none",
}
_LOW_USE_SHARE = 0.3
_MIN_JOB_DURATION_S = 60.0  # seconds; a shorter run gives no advice


class Report(dict[str, Any]):
    """Resources that a job used of those it had, by name; times in seconds, memory in bytes, efficiencies 0 to 1."""

    def __repr__(self) -> str:
        rows = [("job", f"{self['id']}, {self['state']}"), *self._rows()]
        rows += [("GPU", _gpu(gpu)) for gpu in self["gpus"]]
        rows += [("", note) for note in [*self["notes"], *self._advice()]]
        return "\n".join(printable(f"{name:<8}{text}".rstrip()) for name, text in rows)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _rows(self) -> list[tuple[str, str]]:
        elapsed, limit, cpus = self["elapsed"], self["time_limit"], self["cpus"]
        limit = limit if limit is not None and limit < NO_LIMIT_S else None
        rows = []
        if elapsed is not None:
            share = f" ({_share(elapsed / limit)} of {format_duration(limit)})" if limit else ""
            rows.append(("time", f"{format_duration(elapsed)}{share}"))
        if self["cpu_time"] is not None:
            of = f"{cpus} CPU" if cpus == 1 else f"{cpus} CPUs"
            share = f": {_share(self['cpu_efficiency'])} of {of}" if self["cpu_efficiency"] is not None else ""
            rows.append(("CPU", f"{format_duration(self['cpu_time'])}{share}"))
        if self["memory_peak"] is not None:
            asked = self["memory_asked"]
            share = f" ({_share(self['memory_efficiency'])} of {format_size(asked)})" if asked else ""
            rows.append(("memory", f"{format_size(self['memory_peak'])} at most{share}"))
        return [*rows, ("source", _SOURCES.get(self["source"], str(self["source"])))]

    def _advice(self) -> list[str]:
        """Return clear recommendations for the next request."""
        if (self["elapsed"] or 0) < _MIN_JOB_DURATION_S:
            return []
        said = []
        if (self["cpus"] or 1) > 1 and (self["cpu_efficiency"] or 1) < _LOW_USE_SHARE:
            said.append("Most of its CPUs were idle: fewer of them (--cpus-per-task) would start sooner.")
        if (self["memory_efficiency"] or 1) < _LOW_USE_SHARE:
            said.append(
                f"It used little of its memory: --mem={_suggested(self['memory_peak'])} would do, and start sooner."
            )
        return said


def _share(value: float | None) -> str:
    """Return a share in percent; a small one is not shown as nothing."""
    shown = f"{value or 0.0:.0%}"
    return "less than 1%" if shown == "0%" else shown


def _suggested(peak: int) -> str:
    """Return the recommended amount: half as much again."""
    mebibytes = max(100, -(-peak * 3 // 2 >> 20))
    return f"{-(-mebibytes // 1024)}G" if mebibytes > 2048 else f"{mebibytes}M"


def _gpu(gpu: api.ReportGpu) -> str:
    used = f"{gpu['utilization']:.0%} busy at this moment" if gpu["utilization"] is not None else "use not known"
    memory = f", {format_size(gpu['memory_used'])}" if gpu["memory_used"] is not None else ""
    return f"{gpu['name']}: {used}{memory}" + (f" of {format_size(gpu['memory_total'])}" if gpu["memory_total"] else "")
