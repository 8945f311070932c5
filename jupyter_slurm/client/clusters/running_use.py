"""Use of a cluster now: CPUs and GPUs of the running jobs of all users, for a notebook and a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.render.present_time import answer_age
from jupyter_slurm.client.render.table import Table, escape
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["RUNNING_KEYS", "RunningUse", "request_running_use"]

_Key = Literal["user", "account", "partition"]

RUNNING_KEYS: Mapping[str, _Key] = {"user": "user", "account": "account", "partition": "partition"}
"""Keys by which the use can be grouped."""


class RunningUse:
    """CPUs and GPUs of the running jobs that the site shows, as of the last query to Slurm.

    Attributes
    ----------
    sums : list of dict
        The API's sums: user, account, partition, number of jobs, CPUs, and GPUs by type.
    keys : sequence of str
        Columns by which the table is grouped: ``user``, ``account``, ``partition``.
    note : str
        Time of the query, and what is missing.
    """

    def __init__(
        self,
        data: api.RunningUse,
        keys: Sequence[str] = ("user",),
        account: str | None = None,
        partition: str | None = None,
    ) -> None:
        if unknown := [key for key in keys if key not in RUNNING_KEYS]:
            raise UsageError(
                f"by={unknown[0]} is not a column.",
                hint=f"Use {', '.join(RUNNING_KEYS)}; separate several with commas.",
            )
        self.keys = keys
        self.sums = [
            one
            for one in data["sums"]
            if one["account"] == (account or one["account"]) and one["partition"] == (partition or one["partition"])
        ]
        asked = [f"{name}={value}" for name, value in (("account", account), ("partition", partition)) if value]
        self._none = (
            f"No job with {' and '.join(asked)} is running." if asked and data["sums"] else "No job is running."
        )
        self.note = answer_age(data["asked_at"], data["unknown_since"], data["said"])
        if data["is_private"]:
            self.note += " This cluster shows only your own jobs (PrivateData)."

    @property
    def table(self) -> Table:
        """Return a row for each user (or the chosen columns), the one with the most GPUs first."""
        groups: dict[tuple[str, ...], list[api.RunningUseSum]] = {}
        for one in self.sums:
            groups.setdefault(tuple(one[RUNNING_KEYS[key]] for key in self.keys), []).append(one)
        rows = [[*group, *_totals(members)] for group, members in groups.items()]
        at = len(self.keys)
        rows.sort(key=lambda row: (-row[at + 2], -row[at + 1], row[:at]))
        return Table([*(key.upper() for key in self.keys), "JOBS", "CPUS", "GPUS", "GPU TYPES"], rows)

    def __repr__(self) -> str:
        shown = repr(self.table) if self.sums else printable(self._none)
        return f"{shown}\n{printable(self.note)}"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        shown = self.table._repr_html_() if self.sums else f"<p>{escape(self._none)}</p>"
        return f"{shown}<p>{escape(self.note)}</p>"


def request_running_use(
    cluster: Cluster, keys: Sequence[str] = ("user",), account: str | None = None, partition: str | None = None
) -> RunningUse:
    """Request the use of a cluster now: at most one query to Slurm a minute for all clients.

    Parameters
    ----------
    cluster : Cluster
        The cluster.
    keys : sequence of str
        Columns by which the table is grouped.
    account, partition : str, optional
        Count only jobs of this account, or in this partition.

    Raises
    ------
    UsageError
        A key is unknown.
    SlurmError
        Slurm does not answer, and no earlier answer exists.
    """
    return RunningUse(cluster.client.get(cluster.path("running")), keys, account, partition)


def _totals(members: Sequence[api.RunningUseSum]) -> list[Any]:
    gpus: dict[str, int] = {}
    for one in members:
        for kind, count in one["gpus"].items():
            gpus[kind] = gpus.get(kind, 0) + count
    types = ", ".join(f"{count} {kind or '(no type)'}" for kind, count in sorted(gpus.items()))
    return [sum(one["jobs"] for one in members), sum(one["cpus"] for one in members), sum(gpus.values()), types]
