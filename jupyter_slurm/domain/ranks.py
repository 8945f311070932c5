"""Output of several ranks in one stream, with the runner's labels (``jupyter_slurm/runner/ranks/frames.py``)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["LAUNCHERS", "RankedOutput", "explain_ranks", "has_ranks", "several_tasks"]

LAUNCHERS = ("srun", "torchrun", "mpi", "ray")
"""Launchers that can run a Python cell on all nodes of its job: once for each task, or once beside a Ray cluster."""

_PIECE = re.compile(rb"(?:\x1b\[K)?(?:\[(\d{1,7})\] )?([^\n\r]*[\n\r]|[^\n\r]+\Z)")
_MAX_LINE_BYTES = 1 << 20  # bytes to buffer without an end


class RankedOutput:
    """Incremental parser of a labelled stream."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[tuple[int | None, bytes]]:
        """Yield the output of each rank, in order and without labels; rank None: output of another program."""
        data = self._rest + data
        end = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not end and len(data) > _MAX_LINE_BYTES:
            end = len(data)
        self._rest = data[end:]
        found = _PIECE.finditer(data, 0, end)
        for rank, pieces in groupby(found, lambda piece: piece[1]):
            yield None if rank is None else int(rank), b"".join(piece[2] for piece in pieces)


def has_ranks(data: Mapping[str, object]) -> bool:
    """Return whether a job, or its record, has a cell with several tasks, whose output is labelled."""
    return data.get("launcher") not in (None, "", "ray")


def several_tasks(options: Mapping[str, str | None]) -> bool:
    """Return whether options of sbatch, by their long names, request more than one task or node."""
    counts = [options.get(name) or "" for name in ("ntasks", "ntasks-per-node", "nodes")]
    return any((first := re.match(r"\d{1,9}", count)) is not None and int(first[0]) > 1 for count in counts)


def explain_ranks(text: api.JobRanks | None) -> str:
    """Explain which rank of a job failed first, from the runner's report; empty if none failed."""
    if not text:
        return ""
    first = text["first"]
    code, node = int(first["exit_code"]), first.get("node")
    how = f"exit code {code}" if code <= 128 else f"it was ended by signal {code - 128}"
    also, ended = int(text.get("also") or 0), int(text.get("ended") or 0)
    more = [f"{also} more failed too"] if also else []
    more += [f"{ended} {'was' if ended == 1 else 'were'} ended with it"] if ended else []
    return f"Rank {first['rank']}{f' on {node}' if node else ''} failed first ({how}){'; '.join(['', *more])}."
