"""IDs of jobs, array tasks, components of heterogeneous jobs and steps.

Sources: squeue(1) ``%i``, sacct(1) ``JobID``, sbatch(1) ``--array``, "Heterogeneous Job Support" and "Job Array
Support" of Slurm's documentation.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, total_ordering
from itertools import chain, islice, pairwise
from typing import Final

from jupyter_slurm.errors import ParseError

__all__ = ["MAX_EXPANDED_TASKS", "MAX_TRACKED_TASKS", "JobId", "TaskRange", "parse_queue_id", "tracked_tasks"]

#: Slurm keeps IDs of jobs and tasks in 32 bits; the top values mean "none" and "infinite" (slurm.h).
_MAX_ID: Final = 0xFFFFFFFC

#: MaxArraySize cannot be configured beyond 4,000,001 (slurm.conf(5)), so no real array has more tasks.
MAX_EXPANDED_TASKS: Final = 4_000_001

#: Tasks of an array that are tracked one by one. slurmctld is slow with this many jobs (slurm.conf(5), MaxJobCount).
MAX_TRACKED_TASKS: Final = 200_000

# A longer text is not a list of tasks: squeue prints at most as many characters as SLURM_BITSTR_LEN allows.
_MAX_RANGE_CHARACTERS: Final = 1 << 20

_MAX_RANGES: Final = 20_000  # of a row: SLURM_BITSTR_LEN allows 8192 characters
_MAX_BLOCKS: Final = 10_000  # of an array that is submitted in parts

_ID = re.compile(
    r"(?P<job>\d{1,10})(?:_(?P<task>\d{1,10})|\+(?P<het>\d{1,10}))?(?:\.(?P<step>[0-9A-Za-z_]{1,64}(?:\+\d{1,10})?))?",
    re.ASCII,
)
_NUMBER = r"\s*\+?(\d{1,10})\]?"  # strtol(3), and a bracket that slurmctld skips
_REQUESTED = re.compile(rf"\[?(?:{_NUMBER}(?:-{_NUMBER}(?::{_NUMBER})?)?)?", re.ASCII)
_THROTTLE = re.compile(r"^[^%]*%\s*\+?(\d{1,10})", re.ASCII)
_RANGE = re.compile(r"(\d{1,10})(?:-(\d{1,10})(?::(\d{1,10}))?)?", re.ASCII)
_QUEUE_ID = re.compile(r"(\d{1,10})_\[(.*)\]", re.ASCII)


@total_ordering
@dataclass(frozen=True)
class JobId:
    """ID of a job, or of a part of a job.

    Parameters
    ----------
    job : int
        ID of the job; of an array or a heterogeneous job, the ID of the whole.
    task : int, optional
        Index of the array task (``12_3``).
    het : int, optional
        Offset of the component of a heterogeneous job (``12+1``).
    step : str, optional
        ``0``, ``batch``, ``extern``, ``interactive`` …
    """

    job: int
    task: int | None = None
    het: int | None = None
    step: str | None = None

    @classmethod
    def parse(cls, text: str) -> JobId:
        """Read ``12``, ``12_3``, ``12+1``, ``12.batch`` or ``12_3.0``; the inverse of ``str()``.

        Raises
        ------
        ParseError
            The text has none of these forms, or a number exceeds Slurm's 32 bits.
        """
        match = _ID.fullmatch(text)
        numbers = [int(match[name]) for name in ("job", "task", "het") if match[name]] if match else []
        if not match or numbers[0] == 0 or max(numbers) > _MAX_ID:
            raise ParseError(f"{text[:80]!r} is not a job ID.", hint="Write a job ID like 12, 12_3, 12+1 or 12.batch.")
        task, het = match["task"], match["het"]
        return cls(numbers[0], int(task) if task else None, int(het) if het else None, match["step"])

    def __str__(self) -> str:
        text = str(self.job)
        if self.task is not None:
            text += f"_{self.task}"
        if self.het is not None:
            text += f"+{self.het}"
        if self.step is not None:
            text += f".{self.step}"
        return text

    @property
    def allocation(self) -> JobId:
        """Return the job, task or component to which the step belongs."""
        return JobId(self.job, self.task, self.het)

    def _key(self) -> tuple[int, int, int, int, int, str]:
        task = -1 if self.task is None else self.task
        het = -1 if self.het is None else self.het
        step = self.step or ""
        number = int(step) if step.isascii() and step.isdecimal() else -1
        return (self.job, task, het, int(self.step is not None), number, step)

    def __lt__(self, other: object) -> bool:
        if not isinstance(other, JobId):
            return NotImplemented
        return self._key() < other._key()


@dataclass(frozen=True)
class TaskRange:
    """The tasks of an array that one row of the queue represents: the ``2,4-12:2%3`` of ``12_[2,4-12:2%3]``.

    Parameters
    ----------
    ranges : tuple of (first, last, step)
        Inclusive. Expanded only on request.
    limit : int, optional
        Number of tasks that may run at once.
    truncated : bool
        Slurm cut the list (``SLURM_BITSTR_LEN``): more tasks exist than are listed.
    """

    ranges: tuple[tuple[int, int, int], ...]
    limit: int | None = None
    truncated: bool = False

    @classmethod
    def parse(cls, text: str) -> TaskRange:
        """Parse the text between the brackets.

        Raises
        ------
        ParseError
            The text is not a list of tasks.
        """
        if len(text) > _MAX_RANGE_CHARACTERS:
            raise ParseError(f"The list of array tasks is too long ({len(text)} characters).")
        body, percent, limit = text.partition("%")
        pieces = [piece for piece in body.split(",") if piece]
        truncated = bool(pieces) and pieces[-1].endswith("...")
        if truncated:
            # The text before the dots may be cut within a number.
            pieces.pop()
        if (percent and not re.fullmatch(r"\d{1,10}", limit, re.ASCII)) or not (pieces or truncated):
            raise ParseError(f"{text[:80]!r} is not a list of array tasks.")
        if len(pieces) > _MAX_RANGES:
            raise ParseError(f"The list of array tasks has {len(pieces)} ranges; at most {_MAX_RANGES} are read.")
        ranges = tuple(_parse_range(piece, text) for piece in pieces)
        return cls(ranges, int(limit) if percent else None, truncated)

    @classmethod
    def requested(cls, text: str) -> TaskRange:
        """Parse the value of ``--array`` as slurmctld does: brackets count for nothing, and a range may stand twice.

        Raises
        ------
        ParseError
            slurmctld refuses the text.
        """
        if len(text) > _MAX_RANGE_CHARACTERS:
            raise ParseError(f"The list of array tasks is too long ({len(text)} characters).")
        pieces = [piece for piece in text.split(",") if piece] or [text]
        throttle = _THROTTLE.search(text)
        limit = int(throttle[1]) if throttle else 0
        ranges = tuple(_requested_range(piece.partition("%")[0], text) for piece in pieces)
        asked = cls(ranges, limit or None)
        if _overlap(sorted(ranges)) and asked.count() <= MAX_TRACKED_TASKS:
            tasks = set(asked.tasks())
            return asked if len(tasks) == asked.count() else cls.from_tasks(tasks, limit or None)
        return asked

    @classmethod
    def from_tasks(cls, tasks: Iterable[int], limit: int | None = None) -> TaskRange:
        """Return the shortest list that names these tasks, in ascending order."""
        ranges: list[tuple[int, int, int]] = []
        for task in sorted(set(tasks)):
            if ranges and ranges[-1][1] == task - 1:
                ranges[-1] = (ranges[-1][0], task, 1)
            else:
                ranges.append((task, task, 1))
        return cls(tuple(ranges), limit)

    def __str__(self) -> str:
        pieces = [
            str(first) if first == last else f"{first}-{last}" + (f":{step}" if step != 1 else "")
            for first, last, step in self.ranges
        ]
        text = ",".join([*pieces, "..."] if self.truncated else pieces)
        return text if self.limit is None else f"{text}%{self.limit}"

    def count(self) -> int:
        """Return the number of listed tasks, without expanding them."""
        return sum((last - first) // step + 1 for first, last, step in self.ranges)

    @classmethod
    def joined(cls, lists: Iterable[TaskRange]) -> TaskRange:
        """Return the tasks of several rows of one answer; in an answer of Slurm, no task is listed twice."""
        return cls(tuple(islice(chain.from_iterable(tasks.ranges for tasks in lists), _MAX_RANGES)))

    @cached_property
    def _mixed(self) -> frozenset[int] | None:
        """The tasks, if ranges overlap."""
        is_mixed = _overlap(sorted(self.ranges)) and self.count() <= MAX_TRACKED_TASKS
        return frozenset(self.tasks()) if is_mixed else None

    @cached_property
    def _ascending(self) -> list[tuple[int, int, int]]:
        """The ranges in ascending order, without those that begin within another one."""
        ordered: list[tuple[int, int, int]] = []
        for one in sorted(self.ranges, key=lambda one: (one[0], -one[1])):
            if not ordered or one[0] > ordered[-1][1]:
                ordered.append(one)
        return ordered

    def __contains__(self, task: object) -> bool:
        if not isinstance(task, int):
            return False
        if self._mixed is not None:
            return task in self._mixed
        place = bisect_right(self._ascending, task, key=lambda one: one[0])
        first, last, step = self._ascending[place - 1] if place else (0, 0, 0)
        return place > 0 and task <= last and (task - first) % step == 0

    def listed(self, tasks: Collection[int]) -> set[int]:
        """Return those of some tasks that are in the list."""
        if self.count() <= len(tasks):
            return set(self.tasks()).intersection(tasks)
        return {task for task in tasks if task in self}

    def shifted(self, offset: int) -> TaskRange:
        """Return the same tasks, with every index increased by ``offset``."""
        return replace(self, ranges=tuple((first + offset, last + offset, step) for first, last, step in self.ranges))

    def split(self, size: int) -> dict[int, TaskRange]:
        """Return the tasks grouped by blocks of ``size`` indices, in ascending order; no group is empty.

        Raises
        ------
        ParseError
            There are too many blocks.
        """
        if sum((last - first) // max(size, step) for first, last, step in self.ranges) > _MAX_BLOCKS:
            raise ParseError(f"The array has more than {_MAX_BLOCKS} parts.")
        blocks: dict[int, list[tuple[int, int, int]]] = {}
        for first, last, step in self.ranges:
            while first <= last:
                number = first // size
                end = first + (min(last, number * size + size - 1) - first) // step * step
                blocks.setdefault(number, []).append((first, end, step))
                first = end + step
        return {number: replace(self, ranges=tuple(blocks[number])) for number in sorted(blocks)}

    def tasks(self, limit: int = MAX_EXPANDED_TASKS) -> Iterator[int]:
        """Iterate over the indices, in the listed order.

        Raises
        ------
        ParseError
            The list has more than `most` tasks. Nothing was expanded.
        """
        if self.count() > limit:
            raise ParseError(f"The list has {self.count()} array tasks, but at most {limit} can be listed.")
        return (task for first, last, step in self.ranges for task in range(first, last + 1, step))


@lru_cache(maxsize=64)
def tracked_tasks(requested: str) -> TaskRange | None:
    """Return the tasks of a value of ``--array``; None: slurmctld refuses the text, or they are too many to track."""
    try:
        tasks = TaskRange.requested(requested)
    except ParseError:
        return None
    return tasks if tasks.count() <= MAX_TRACKED_TASKS else None


def _overlap(ranges: Iterable[tuple[int, int, int]]) -> bool:
    """Return whether ascending ranges overlap."""
    return any(following[0] <= one[1] for one, following in pairwise(ranges))


def _parse_range(piece: str, text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(piece)
    if match:
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        step = int(match[3]) if match[3] else 1
        if first <= last <= _MAX_ID and step > 0:
            return first, last, step
    raise ParseError(f"{text[:80]!r} is not a list of array tasks.")


def _requested_range(piece: str, text: str) -> tuple[int, int, int]:
    match = _REQUESTED.fullmatch(piece)
    if match:
        first = int(match[1] or 0)
        last = int(match[2]) if match[2] else first
        step = int(match[3]) if match[3] else 1
        if first <= last <= _MAX_ID and step > 0:
            return first, last, step
    raise ParseError(f"{text[:80]!r} is not a list of array tasks.")


def parse_queue_id(text: str) -> tuple[JobId, TaskRange | None]:
    """Parse the ID in a row of ``squeue`` or ``sacct``: ``12``, ``12_3``, ``12+1`` or ``12_[2,4-12:2%3]``.

    Returns
    -------
    JobId, TaskRange or None
        For a row with several tasks: the array's ID and its tasks.

    Raises
    ------
    ParseError
        The text is not an ID.
    """
    match = _QUEUE_ID.fullmatch(text)
    if match:
        return JobId.parse(match[1]), TaskRange.parse(match[2])
    return JobId.parse(text), None
