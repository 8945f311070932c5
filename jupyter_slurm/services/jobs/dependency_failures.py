"""Why a job that waits for others can never start: which of them, and how it ended."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from jupyter_slurm.services.jobs.job import TrackedJob

__all__ = ["note_blame"]

_NEVER = "DependencyNeverSatisfied"
_ID = re.compile(r"(?<=:)(\d{1,10}(?:_\d{1,10})?)(?![\d_])")


def note_blame(entry: TrackedJob, find: Callable[[str], TrackedJob | None]) -> bool:
    """Note with a job whose dependency can never be satisfied whose fault that is; return whether that is news."""
    latest, before = entry.latest, entry.slurm.blame
    if latest is None or _NEVER not in latest.reason:
        return False
    said = []
    for number in _ID.findall(" ".join(_said(entry.record.argv if entry.record else []))):
        whole, _, task = number.partition("_")
        other = find(whole)
        other = other.of_task(int(task)) if other is not None and task else other
        if other is not None and other is not entry and other.is_finished:
            name = (other.record.name if other.record else None) or (other.latest.name if other.latest else None)
            said.append(f"Job {number}{f' ({name})' if name else ''} ended as {other.state.name}.")
    entry.slurm.blame = " ".join(dict.fromkeys(said))
    return entry.slurm.blame != before


def _said(argv: Sequence[str]) -> list[str]:
    """Return the values of --dependency, which may be abbreviated, and of -d."""
    found = []
    for word, following in itertools.zip_longest(argv, argv[1:], fillvalue=""):
        name, equals, value = word.partition("=")
        if len(name) > len("--d") and "--dependency".startswith(name):
            found.append(value if equals else following)
        elif word.startswith("-d"):
            found.append(word[2:] or following)
    return found
