"""Usage of a cluster in a period, for a notebook and a terminal."""

from __future__ import annotations

import datetime
import importlib
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jupyter_slurm.client.clusters.cluster import Cluster, current, with_id
from jupyter_slurm.client.render.table import Table, escape
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["GROUP_COLUMNS", "Usage", "moment", "request_usage", "usage"]

GROUP_COLUMNS = {"user": "USER", "account": "ACCOUNT", "partition": "PARTITION", "qos": "QOS", "gpu": "GPU"}
"""The keys by which usage can be grouped, and the headings of their columns."""

_FIELDS: Mapping[str, Literal["user", "account", "partition", "qos", "gpu_type"]] = {
    "user": "user",
    "account": "account",
    "partition": "partition",
    "qos": "qos",
    "gpu": "gpu_type",
}
_HOUR_S = 3600
_BUDGET_COLUMNS = ("WHOSE", "NAME", "OF", "HOURS IN ALL", "HOURS USED", "HOURS LEFT")
_SCOPES = {"user": "you, account", "account": "account", "qos": "QOS", "qos-user": "you, QOS"}
_MEMORY = "mem"  # in bytes, not a budget in hours


class Usage:
    """Use of a cluster in a period, from accounting: hours of CPUs and GPUs, and their cost if the profile has prices.

    Attributes
    ----------
    start, end : float
        The period, in seconds since the epoch. Only the part of a job within it counts.
    accounts : list of str
        Accounts of the report, the requested one first; empty: your own jobs.
    jobs : Table
        Each job, the latest last; at most 10,000 of them.
    left : Table
        Budgets (limits of Slurm on total minutes), their used and remaining parts; empty if there is none.
    told : dict
        The whole report, as an API object.
    note : str
        Why there are no jobs; empty if there are some.
    unit : str
        Unit of the cost; empty if the profile has none.
    """

    def __init__(self, data: api.AccountedUsage, limits: Sequence[api.ResourcesLimit] = ()) -> None:
        self.data = dict(data)
        self.start: float = data["start"]
        self.end: float = data["end"]
        self.accounts: list[str] = [*data["accounts"]]
        self._user: str | None = data["user"]
        self._sums: Sequence[api.AccountedUsageSum] = data["sums"]
        self._cost: Mapping[str, Any] = data["cost"] or {}
        self.unit: str = self._cost.get("unit", "")
        columns = ["JOB", "USER", "ACCOUNT", "PARTITION", "STATE", "NAME", "HOURS", "CPUS", "GPUS", "GPU"]
        self.jobs = Table(columns, [_job(one) for one in data["jobs"]])
        self.left_out: int = data["left_out"]
        self.note: str = data.get("note") or ""
        budgets = [one for one in limits if one["kind"] == "minutes" and one["most"] is not None]
        self.left = Table(_BUDGET_COLUMNS, [_budget(one) for one in budgets if one["resource"] != _MEMORY])

    def by(self, *names: str) -> Table:
        """Return the use by ``user``, ``account``, ``partition``, ``qos`` or ``gpu`` (its type), or by several of them.

        Raises
        ------
        UsageError
            A key is unknown.
        """
        if unknown := [name for name in names if name not in GROUP_COLUMNS]:
            raise UsageError(
                f"by={unknown[0]} is not a column.",
                hint=f"Use {', '.join(GROUP_COLUMNS)}; separate several with commas.",
            )
        found: dict[tuple[str, ...], list[float]] = {}
        for one in self._sums:
            key = tuple(_owner_name(name, one) for name in names)
            sums = found.setdefault(key, [0, 0, 0, 0])
            for index, amount in enumerate(self._amounts(one)):
                sums[index] += amount
        heads = [*(GROUP_COLUMNS[name] for name in names), "JOBS", "CPU HOURS", "GPU HOURS"]
        heads += [self.unit.upper()] if self.unit else []
        order = sorted(found, key=lambda key: (-found[key][3], -found[key][2], -found[key][1], key))
        return Table(heads, [[*key, *_rounded(found[key][: len(heads) - len(names)])] for key in order])

    @property
    def whose(self) -> str:
        """Return the accounts and the period in a line."""
        what = f"account {', '.join(self.accounts)}" if self.accounts else f"{self._user}"
        begin, end = (time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) for at in (self.start, self.end))
        return f"{what}, {begin} to {end}"

    def plot(self, by: str = "user") -> Any:
        """Plot hours of GPUs (of CPUs if no job had one) by one of the keys of :meth:`by`; return the figure.

        Raises
        ------
        ImportError
            matplotlib is not installed in this environment.
        """
        try:
            figures = importlib.import_module("matplotlib.figure")  # heavy, and optional
        except ImportError as error:
            raise ImportError("plot() needs matplotlib, which is not installed: %pip install matplotlib.") from error
        table = self.by(by)
        column = "GPU HOURS" if any(table["GPU HOURS"]) else "CPU HOURS"
        figure = figures.Figure(figsize=(8, 0.8 + 0.35 * max(1, len(table))), layout="constrained")
        axes = figure.add_subplot()
        names = [printable(name).replace("$", r"\$") or "(none)" for name in table[GROUP_COLUMNS[by]]]
        axes.barh(range(len(names)), table[column])
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(column.replace("HOURS", "hours"))
        axes.set_title(printable(self.whose), fontsize="medium")
        return figure

    def _amounts(self, item: api.AccountedUsageSum) -> tuple[float, float, float, float]:
        cpu, gpu = item["cpu_seconds"] / _HOUR_S, item["gpu_seconds"] / _HOUR_S
        return item["jobs"], cpu, gpu, self._price(item, cpu, gpu)

    def _price(self, item: api.AccountedUsageSum, cpu: float, gpu: float) -> float:
        of_gpu = self._cost.get("gpu_hour", 0)
        if isinstance(of_gpu, Mapping):
            of_gpu = of_gpu.get(item["gpu_type"], 0)
        times = self._cost.get("partitions", {}).get(item["partition"], 1)
        return float(times * (cpu * self._cost.get("cpu_hour", 0) + gpu * of_gpu))

    def _tables(self) -> list[Table]:
        names = ("user", "partition", "gpu") if self.accounts else ("partition", "gpu")
        return [self.by(*names), *([self.left] if self.left else [])]

    def __repr__(self) -> str:
        told = [self.whose, self.note] if self.note else [self.whose]
        return "\n\n".join([*map(printable, told), *map(repr, self._tables())])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        told = [self.whose, self.note] if self.note else [self.whose]
        return "".join(f"<p>{escape(text)}</p>" for text in told) + "".join(
            table._repr_html_() for table in self._tables()
        )


def usage(
    account: str | None = None,
    *,
    start: str | float | datetime.date | None = None,
    end: str | float | datetime.date | None = None,
    cluster: str | None = None,
) -> Usage:
    """Return the usage of a cluster in a period: hours of CPUs and GPUs, their cost, and the rest of budgets.

    Parameters
    ----------
    account : str, optional
        Account of a project or lab, with its subaccounts and all their users; by default your own jobs.
    start, end : optional
        ``2026-11-01``, ``2026-11-01T12:00``, a date, or seconds since the epoch; by default the last 30 days.
    cluster : str, optional
        Name of a site profile; by default the cluster in use.

    Raises
    ------
    SlurmError
        The cluster has no accounting, or accounting does not answer.
    """
    return request_usage(current() if cluster is None else with_id(cluster), account, start, end)


def request_usage(cluster: Cluster, account: str | None, start: Any = None, end: Any = None) -> Usage:
    """Request the usage of a cluster; see :func:`usage`."""
    asked: dict[str, str | int] = {"jobs": "true"}
    if start is not None:
        asked["start"] = int(moment(start))
    if end is not None:
        asked["end"] = math.ceil(moment(end))
    if account:
        asked["account"] = account
    told = cluster.client.get(cluster.path("usage"), params=asked)
    limits = cluster.client.get(cluster.path("resources"), params={"nodes": "false", "newer": "true"})["limits"]
    return Usage(told, limits or ())


def moment(data: Any) -> float:
    """Return a time in seconds since the epoch; a date stands for its first moment in local time.

    Raises
    ------
    UsageError
        The value is not a time.
    """
    if isinstance(data, (int, float)):
        return float(data)
    try:
        if isinstance(data, datetime.datetime):
            return data.timestamp()
        if isinstance(data, datetime.date):
            return datetime.datetime.combine(data, datetime.time()).timestamp()
        return datetime.datetime.fromisoformat(str(data)).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UsageError(f"{data!r} is not a date.", hint="Write 2026-11-01, or 2026-11-01T12:00.") from None


def _owner_name(name: str, item: api.AccountedUsageSum) -> str:
    word = str(item[_FIELDS[name]])
    return word or ("(no type)" if name == "gpu" and item["gpu_seconds"] else word)


def _rounded(amounts: Sequence[float]) -> list[float]:
    return [int(amounts[0]), *map(_format_hours, amounts[1:])]


def _format_hours(amount: float) -> float:
    return round(amount, 2 if amount >= 10 else 4)


def _job(item: api.AccountedUsageJob) -> list[Any]:
    hours = _format_hours(item["seconds"] / _HOUR_S)
    words = [item[name] for name in ("id", "user", "account", "partition", "state", "name")]
    return [*words, hours, item["cpus"], item["gpus"], item["gpu_type"]]


def _budget(item: api.ResourcesLimit) -> list[Any]:
    most, used = item["most"] / 60, (item["used"] or 0) / 60
    known = {"cpu": "CPUs", "gres/gpu": "GPUs"}
    of = known.get(item["resource"], item["resource"].removeprefix("gres/gpu:"))
    return [_SCOPES.get(item["scope"], item["scope"]), item["name"], of, *map(_format_hours, (most, used, most - used))]
