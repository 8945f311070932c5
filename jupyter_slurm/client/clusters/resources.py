"""Free resources of a cluster, for a notebook and a terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.cluster import Cluster, current, with_id
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.present_time import answer_age
from jupyter_slurm.client.render.table import Table, escape
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.slurm_values import counted, format_duration, format_memory

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Resources", "request_resources", "resources"]

# Slurm's limits count each array task as a job.
_RUNNING, _SUBMITTED = "running jobs and array tasks", "jobs and array tasks"
_SCOPES = {"user": "you, account", "account": "account", "qos": "QOS", "qos-user": "you, QOS"}
_KINDS = {"in-use": "", "job": "a job", "minutes": "minutes in all", "jobs": _RUNNING, "submitted": _SUBMITTED}
_MEMORY, _GPUS = "mem", "gres/gpu"
_MIB = 1 << 20


class Resources:
    """Resources of a cluster and the free part of them, as of the last query to Slurm.

    Attributes
    ----------
    gpus : Table
        GPUs by type: all, allocated, and free ones (not allocated, where a job could start now).
    gres : Table
        Other generic resources (NPUs, TPUs …) by name and type; empty if there are none.
    partitions, nodes : Table
        Partitions and nodes, memory in GiB.
    limits : Table
        Limits that apply to you, and what counts towards them; empty if none is enforced.
    use : dict
        Resources of your running jobs, by Slurm's names; memory in bytes. An array is one of ``jobs``; ``tasks`` is
        Slurm's own count, in which each running array task is a job.
    asked_at : float
        Time of the query, in seconds since the epoch.
    unknown_since : float or None
        Time since which Slurm does not answer.
    """

    def __init__(self, data: api.Resources) -> None:
        self.asked_at: float = data["asked_at"]
        self.unknown_since: float | None = data["unknown_since"]
        self.use: dict[str, int] = {**(data["use"] or {})}
        self._notice: str = data["said"]
        self.gpus = Table(
            ["GPU", "FREE", "USED", "TOTAL", "MOST ON A NODE"],
            [[_type(one), one["free"], one["used"], one["total"], one["most"]] for one in data["gpus"]],
        )
        self.gres = Table(
            ["GRES", "FREE", "USED", "TOTAL", "MOST ON A NODE"],
            [[_gres_name(one), one["free"], one["used"], one["total"], one["most"]] for one in data.get("gres") or ()],
        )
        self.partitions = Table(
            ["PARTITION", "STATE", "TIME LIMIT", "NODES", "CPUS FREE", "GPUS FREE"],
            [_partition(one) for one in data["partitions"]],
        )
        self.nodes = Table(
            ["NODE", "STATE", "PARTITIONS", "CPUS", "CPUS USED", "LOAD", "GIB", "GIB USED", "GPUS USED", "REASON"],
            [_node(one) for one in data["nodes"]],
        )
        self.limits = Table(["WHOSE", "NAME", "OF", "MOST", "USED"], [_limit(one) for one in data["limits"] or ()])

    @property
    def age(self) -> str:
        """Return the time of the query in a sentence, and since when no newer answer exists."""
        return answer_age(self.asked_at, self.unknown_since, self._notice)

    @property
    def own(self) -> str:
        """Return the resources of your running jobs in a line: ``7 CPUs, 76 GiB, 2 GPUs (a100) in 4 jobs``."""
        others = [name for name in sorted(self.use) if name.startswith("gres/") and not name.startswith(_GPUS)]
        words = [
            counted(self.use["cpu"], "CPUs") if self.use.get("cpu") else "",
            format_size(self.use[_MEMORY]).replace(".0 ", " ") if self.use.get(_MEMORY) else "",
            self._own_gpus if self.use.get(_GPUS) else "",
            *(f"{self.use[name]} {name.removeprefix('gres/')}" for name in others if self.use[name]),
        ]
        used = _joined(words)
        return f"{used} in {self._own_jobs}" if used else "nothing now"

    @property
    def _own_jobs(self) -> str:
        """Return the number of your running jobs, in which an array is one: ``4 jobs (12 counting array tasks)``."""
        jobs = self.use.get("jobs", 0)
        tasks = self.use.get("tasks", jobs)
        return counted(jobs, "jobs") + (f" ({tasks} counting array tasks)" if tasks > jobs else "")

    @property
    def _own_gpus(self) -> str:
        """Return the GPUs in use with their types: ``2 GPUs (a100)``, ``3 GPUs (2 a100, 1 h100)``."""
        count = self.use[_GPUS]
        types = {
            name.removeprefix(f"{_GPUS}:"): each
            for name, each in sorted(self.use.items())
            if name != _GPUS and name.startswith(_GPUS)
        }
        words = _joined(kind if each == count else f"{each} {kind}" for kind, each in types.items() if each)
        return counted(count, "GPUs") + (f" ({words})" if words else "")

    @property
    def _shown(self) -> list[Table]:
        tables = [*([self.gres] if self.gres else []), self.partitions, *([self.limits] if self.limits else [])]
        return [self.gpus, *tables] if self.gpus or not self.gres else tables

    def __repr__(self) -> str:
        return "\n\n".join([*map(repr, self._shown), f"You use: {printable(self.own)}\n{printable(self.age)}"])

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))

    def _repr_html_(self) -> str:
        said = f"<p>You use: {escape(self.own)}<br>{escape(self.age)}</p>"
        return "".join(table._repr_html_() for table in self._shown) + said


def resources(cluster: str | None = None, *, newer: bool = False) -> Resources:
    """Return what is free on a cluster: GPUs by type, partitions, nodes, and your own limits and use.

    Slurm is queried at most once a minute for all clients; `age` is the time of the query.

    Parameters
    ----------
    cluster : str, optional
        Name of a site profile; by default the cluster in use.
    newer : bool
        Whether to query now even if the last answer is less than a minute old. In a loop this works only a few times.

    Raises
    ------
    SlurmError
        Slurm does not answer, and no earlier answer exists.
    """
    return request_resources(current() if cluster is None else with_id(cluster), newer=newer)


def request_resources(cluster: Cluster, *, newer: bool = False) -> Resources:
    """Request the free resources of a cluster; see :func:`resources`."""
    asked = {"newer": "true" if newer else "false"}
    return Resources(cluster.client.get(cluster.path("resources"), params=asked))


def _type(gpu: api.Gpus) -> str:
    return gpu["type"] or "(no type)"


def _gres_name(gres: api.OtherGres | api.NodeGres) -> str:
    return f"{gres['name']}:{gres['type']}" if gres["type"] else gres["name"]


def _soon(counted: api.Gpus | api.OtherGres) -> str:
    return f" ({soon} more soon: node completing)" if (soon := counted.get("soon", 0)) else ""


def _partition(item: api.ResourcesPartition) -> list[Any]:
    limit = "none" if item["time_limit"] is None else format_duration(item["time_limit"])
    nodes = _joined(f"{count} {state.lower()}" for state, count in sorted(item["nodes"].items()))
    name = item["name"] + ("*" if item["is_default"] else "")
    gpus = [f"{gpu['free']} of {gpu['total']} {gpu['type']}".strip() + _soon(gpu) for gpu in item["gpus"]]
    gpus += [f"{one['free']} of {one['total']} {_gres_name(one)}{_soon(one)}" for one in item.get("gres") or ()]
    return [name, item["state"], limit, nodes, f"{item['cpus_free']} of {item['cpus']}", _joined(gpus)]


def _node(item: api.ResourcesNode) -> list[Any]:
    state = "+".join([item["state"], *item["flags"]])
    gpus = [f"{gpu['used']} of {gpu['total']} {gpu['type']}".strip() for gpu in item["gpus"]]
    gpus += [f"{one['used']} of {one['total']} {_gres_name(one)}" for one in item.get("gres") or ()]
    memory = [round(item[name] / 1024) for name in ("memory", "memory_used")]
    cpus = (item["cpus"], item["cpus_used"], item["load"])
    return [item["name"], state, ",".join(item["partitions"]), *cpus, *memory, _joined(gpus), item["reason"]]


def _limit(item: api.ResourcesLimit) -> list[Any]:
    of = _joined([_format_words(item["resource"]), _KINDS.get(item["kind"], item["kind"])])
    where = f" in {item['partition']}" if item["partition"] else ""
    numbers = (item["most"], item["used"])
    amounts = ["" if number is None else _amount(item["resource"], number) for number in numbers]
    return [_SCOPES.get(item["scope"], item["scope"]), item["name"] + where, of, *amounts]


def _format_words(resource: str) -> str:
    known = {"cpu": "CPUs", _MEMORY: "memory", "gres/gpu": "GPUs", "node": "nodes"}
    return known.get(resource, resource.removeprefix("gres/gpu:"))


def _amount(resource: str, number: int) -> str:
    return format_memory(number) if resource == _MEMORY and number % _MIB == 0 else str(number)


def _joined(words: Iterable[str]) -> str:
    return ", ".join(filter(None, words))
