"""Requests in the options of a submission, in values comparable with those of a cluster.

Source: sbatch(1). A value in an unknown form is None, and nothing is concluded from it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property

from jupyter_slurm.domain.slurm_values import Gres, parse_gres, parse_memory, parse_time_limit, split_outside_brackets
from jupyter_slurm.errors import UsageError

__all__ = ["Request"]

_NODES = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?", re.ASCII)
_COUNTED = re.compile(r"(?:(?P<type>[^:=,]*[^\d:=,][^:=,]*):)?(?P<count>\d{1,9})", re.ASCII)
_MEMORY = ("mem", "mem-per-cpu", "mem-per-gpu")


class Request:
    """The options in force of one job.

    Parameters
    ----------
    chosen : mapping
        Canonical long names to values.
    variables : mapping, optional
        Names to the environment variables that set them.
    """

    def __init__(self, chosen: Mapping[str, str | None], variables: Mapping[str, str] | None = None) -> None:
        self.chosen, self._variables = chosen, variables or {}

    def written(self, option: str) -> str:
        """Return an option's text, from the command line or from the environment."""
        return f"{self._variables.get(option, f'--{option}')}={self.chosen[option]}"

    def list_values(self, option: str) -> list[str]:
        """Return the parts of a list value."""
        return [word for word in (self.chosen.get(option) or "").split(",") if word]

    def number(self, option: str) -> int | None:
        """Return a plain number, else None."""
        text = self.chosen.get(option) or ""
        return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None

    @property
    def clusters(self) -> list[str]:
        """Return the clusters to which the job may go; empty: the current cluster."""
        return [name.lower() for name in self.list_values("clusters") or self.list_values("cluster")]

    @cached_property
    def time(self) -> tuple[str, float] | None:
        """Return the time limit: its text, and seconds."""
        return self._time("time")

    @cached_property
    def least_time(self) -> tuple[str, float] | None:
        """Return the minimum time limit."""
        return self._time("time-min" if self.chosen.get("time-min") else "time")

    def _time(self, option: str) -> tuple[str, float] | None:
        text = self.chosen.get(option)
        try:
            seconds = parse_time_limit(text) if text else 0
        except UsageError:
            return None
        return (self.written(option), seconds or float("inf")) if text else None  # zero also means no limit

    @cached_property
    def nodes(self) -> tuple[int, int | None] | None:
        """Return the smallest and largest number of nodes."""
        found = _NODES.fullmatch(self.chosen.get("nodes") or "")
        return (int(found[1]), int(found[2] or found[1])) if found else None

    @cached_property
    def cpus_per_node(self) -> int | None:
        """Return the CPUs that one node must have."""
        if "overcommit" in self.chosen:
            return None
        each = self.number("cpus-per-task") or 1
        tasks = self.number("ntasks-per-node") if "ntasks" not in self.chosen else None
        asked = max(each * (tasks or 1), self.number("mincpus") or 0)
        return asked if asked > 1 else None

    @cached_property
    def cpus(self) -> int | None:
        """Return the CPUs of all nodes together."""
        if "overcommit" in self.chosen:
            return None
        tasks = self.number("ntasks")
        return tasks * (self.number("cpus-per-task") or 1) if tasks else None

    @cached_property
    def memory_per_node(self) -> tuple[str, int] | None:
        """Return the memory that one node must have: its text, and bytes."""
        said = [name for name in _MEMORY if self.chosen.get(name)]
        if len(said) != 1 or said == ["mem-per-gpu"]:
            return None
        name, text = said[0], self.chosen[said[0]] or ""
        try:
            size = parse_memory(text)
        except UsageError:
            return None
        times = self.number("cpus-per-task") or 1 if name == "mem-per-cpu" else 1
        written = self.written(name) + (f" for each of {times} CPUs" if times > 1 else "")
        return (written, size * times) if size else None

    @cached_property
    def gpus_per_node(self) -> list[tuple[str, Gres]]:
        """Return the GPUs that one node must have, each with its text."""
        found = [(self.written("gres"), gres) for gres in self.gres if gres.name == "gpu"]
        for option in ("gpus-per-node", "gpus-per-task", "gpus-per-socket"):
            found += [(self.written(option), gpus) for gpus in self._gpus(option)]
        return found

    @cached_property
    def gpus(self) -> list[tuple[str, Gres]]:
        """Return the GPUs of all nodes together, each with its text."""
        return [(self.written("gpus"), gpus) for gpus in self._gpus("gpus")]

    @cached_property
    def gres(self) -> list[Gres]:
        """Return the generic resources that each node must have."""
        text = self.chosen.get("gres") or ""
        return [] if text.lower() in ("none", "help") else parse_gres(text)

    @cached_property
    def features(self) -> tuple[list[str], bool]:
        """Return the features in a constraint, and whether a node must have all of them."""
        text = self.chosen.get("constraint") or ""
        names = [name for name in re.split(r"[&|,()\[\]]|\*\d+", text) if name]
        return names, re.fullmatch(r"[^|()\[\]*,]*", text) is not None

    def _gpus(self, option: str) -> Iterator[Gres]:
        for item in split_outside_brackets(self.chosen.get(option) or ""):
            if found := _COUNTED.fullmatch(item):
                yield Gres("gpu", found["type"], int(found["count"]))
