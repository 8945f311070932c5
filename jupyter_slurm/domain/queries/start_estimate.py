"""Estimated start of a job: the answer of ``sbatch --test-only``, which has no form for programs."""

from __future__ import annotations

import re
from dataclasses import dataclass

from jupyter_slurm.domain.slurm_values import parse_epoch

__all__ = ["StartEstimate", "parse_start_estimate"]

# The words around the values differ. Up to 24.11, for heterogeneous jobs, and from 25.05 (src/api/allocate.c):
#   Job 7 to start at 1764118800 using 4 processors on nodes n[1-2] in partition gpu
#   Job 7 to start at 1764118800 using 4 processors on n[1-2]
#   Job 7 to start at 1764118800 on cluster c a using 4 processors on nodes n[1-2] in partition gpu
# Stable are: the start is the first, and each other value stands beside a word of its own.
_LINE = re.compile(r"(?>.*?\bjobs?\b).*?\bstart at (?P<start>\S+)(?P<rest>.*)", re.IGNORECASE)
_CPUS = re.compile(r"\b(\d{1,9}) (?:processors?|cpus?)\b", re.IGNORECASE)
_NODES = re.compile(r"\bon (?:nodes? )?(?!nodes?\b|cluster\b|partition\b)(\S+)", re.IGNORECASE)
_PARTITION = re.compile(r"\bpartition ([^\s,]+)", re.IGNORECASE)
_DEBUG = re.compile(r"\bdebug\d?:")  # with -v, lines about each cluster come before
_NOTHING = frozenset({"(null)", ""})


@dataclass(frozen=True)
class StartEstimate:
    """Estimated start of a job; a value that Slurm does not say is None.

    Attributes
    ----------
    start : int or None
        Seconds since the epoch.
    cpus : int or None
        Number of CPUs.
    nodes, partition : str or None
        Place of the job.
    """

    start: int | None = None
    cpus: int | None = None
    nodes: str | None = None
    partition: str | None = None


def parse_start_estimate(text: str) -> StartEstimate:
    """Parse what ``sbatch --test-only`` prints with ``SLURM_TIME_FORMAT=%s``.

    Parameters
    ----------
    text : str
        Standard output and standard error. A plugin of the site may print lines of its own before.
    """
    found = [line for line in map(_LINE.match, text.splitlines()) if line and not _DEBUG.search(line.string)]
    if not found:
        return StartEstimate()
    rest = found[-1]["rest"]
    cpus, nodes, partition = (pattern.search(rest) for pattern in (_CPUS, _NODES, _PARTITION))
    return StartEstimate(
        start=parse_epoch(found[-1]["start"]),
        cpus=int(cpus[1]) if cpus else None,
        nodes=_value(nodes),
        partition=_value(partition),
    )


def _value(found: re.Match[str] | None) -> str | None:
    return None if found is None or found[1] in _NOTHING else found[1]
