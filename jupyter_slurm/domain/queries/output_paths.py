r"""Output files of a batch job: the filename patterns of ``--output`` and ``--error``.

Sources: sbatch(1), "filename pattern"; ``fname_create()`` and, from 25.11 on, ``expand_stdio_fields()``. The result was
compared with the files of a node on 22.05: ``tests/domain/queries/test_output_paths.py``.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.records import JobRecord

__all__ = ["BY_TASK", "default_pattern", "expand_pattern", "first_node", "read_patterns", "record_path", "symbols"]

# The value of %a in a job that is not an array (NO_VAL of slurm.h): Slurm prints it too.
_NO_TASK: Final = 4294967294

_MAX_FIELD_DIGITS: Final = 10
_SYMBOL: Final = re.compile(r"%(?:(?P<percent>%)|(?P<width>\d{0,9})(?P<letter>[^\d%])?)", re.ASCII | re.DOTALL)

BY_TASK: Final = frozenset("abJjN")
"""Symbols that differ between the tasks of an array."""

_TASK_NUMBERS: Final = frozenset("Jj")

# The symbols that a batch script's file can have, and the versions that introduced the newer ones.
_BATCH_SYMBOLS: Final = frozenset("AaJjnNstux")
_SYMBOL_VERSIONS: Final = {"b": (24, 11), "r": (25, 11)}
_REWRITE_VERSION: Final = (25, 11)


def default_pattern(*, array: bool) -> str:
    """Return the default pattern (sbatch(1), ``--output``)."""
    return "slurm-%A_%a.out" if array else "slurm-%j.out"


def first_node(nodes: str) -> str:
    """Return the node that runs the batch script: the first node of a folded list."""
    comma, opening = (found if (found := nodes.find(sign)) >= 0 else len(nodes) for sign in ",[")
    closing = nodes.find("]", opening)
    if comma <= opening or closing < 0:
        return nodes[: min(comma, opening)]
    first = re.match(r"[^,-]*", nodes[opening + 1 : closing])
    rest = re.match(r"[^,\[]*", nodes[closing + 1 :])
    return nodes[:opening] + (first[0] if first else "") + (rest[0] if rest else "")


def symbols(pattern: str) -> frozenset[str]:
    r"""Return the letters of a pattern that are symbols; none if a backslash disables them."""
    if "\\" in pattern:
        return frozenset()
    return frozenset(symbol["letter"] for symbol in _SYMBOL.finditer(pattern) if symbol["letter"])


def expand_pattern(
    pattern: str,
    *,
    job: JobId,
    name: str = "",
    user: str = "",
    node: str = "",
    work_dir: str = "/",
    raw_id: int | None = None,
    restarts: int = 0,
    version: tuple[int, int] | None = None,
) -> str:
    r"""Return the path of the file that a batch job writes.

    Parameters
    ----------
    pattern : str
        As given to ``--output``.
    job : JobId
        The job or array task.
    name, user, node : str
        Job name (``%x``), user name (``%u``), short host name of the first node (``%N``).
    work_dir : str
        Base directory of a relative pattern.
    raw_id : int, optional
        The job's ``SLURM_JOB_ID``, which is ``%j``. An array task has its own.
    restarts : int
        ``%r``.
    version : (major, minor), optional
        Version of the cluster's Slurm: ``%b`` came with 24.11, ``%r`` with 25.11. ``None``: all symbols.

    Notes
    -----
    A backslash anywhere disables all symbols. ``%S`` (the job's SLUID, 25.11) is not expanded.
    """
    newest = version is None or version >= _REWRITE_VERSION
    if "\\" in pattern:
        path = pattern.replace("\\", "") if newest else re.sub(r"\\(\\?)", r"\1", pattern)
        return path if path.startswith("/") else f"{work_dir.rstrip('/')}/{path}"
    numbers = {
        "A": job.job,
        "a": _NO_TASK if job.task is None else job.task,
        "b": (_NO_TASK if job.task is None else job.task) % 10,
        "J": raw_id or job.job,
        "j": raw_id or job.job,
        "n": 0,
        "r": restarts,
        "t": 0,
    }
    texts = {"N": node, "s": "batch", "u": user, "x": name}
    known = {
        letter for letter, since in _SYMBOL_VERSIONS.items() if version is None or version >= since
    } | _BATCH_SYMBOLS

    def expand(symbol: re.Match[str]) -> str:
        if symbol["percent"]:
            return "%"
        letter, width = symbol["letter"] or "", symbol["width"]
        if letter not in known:
            # Older versions drop the percent sign before a width, newer versions a percent sign at the very end.
            lost = not (letter or width) if newest else bool(width)
            return ("" if lost else "%") + width + letter
        return texts[letter] if letter in texts else str(numbers[letter]).zfill(min(int(width or 0), _MAX_FIELD_DIGITS))

    path = _SYMBOL.sub(expand, pattern)
    return path if pattern.startswith("/") else f"{work_dir.rstrip('/')}/{path}"


def read_patterns(stdout: str, stderr: str, record: JobRecord) -> JobRecord:
    """Return a record with the patterns that squeue shows, both empty for a job without a batch script.

    Parameters
    ----------
    stdout, stderr : str
        As shown, empty if Slurm shows none.
    record : JobRecord
        The other fields of the same row.
    """
    if stdout == f"{record.work_dir}/slurm-{record.raw_id}.out":  # 22.05 shows its default so, also where it is wrong
        default = default_pattern(array=record.id.task is not None or record.tasks is not None)
        stderr = default if stderr == stdout else stderr
        stdout = default if stderr else ""  # salloc and srun have no file
    return replace(record, stdout=stdout, stderr=stderr or stdout)


def record_path(pattern: str | None, record: JobRecord, job: JobId | None = None) -> str | None:
    """Return the path for a pattern of a record; None if it depends on the task or on a node that is not known.

    Parameters
    ----------
    pattern : str or None
        None is unknown, and stands for Slurm's default in the working directory; empty: there is no file.
    record : JobRecord
        A job, or one of its tasks.
    job : JobId, optional
        The job or task, if the record is that of another task.
    """
    job = job or record.id
    if record.id.het is not None:
        job = JobId(record.raw_id or record.id.job)
    is_array = record.tasks is not None or record.id.task is not None or job.task is not None
    if pattern == "" or (pattern is None and record.work_dir is None):
        return None
    pattern = default_pattern(array=is_array) if pattern is None else pattern
    used, is_own = symbols(pattern), job.task == record.id.task
    if ("N" in used and not (is_own and first_node(record.nodes))) or (used & _TASK_NUMBERS and not is_own):
        return None
    if is_array and job.task is None and used & BY_TASK:
        return None
    return expand_pattern(
        pattern,
        job=job,
        name=record.name or "",
        user=record.user,
        node=first_node(record.nodes),
        work_dir=record.work_dir or "/",
        raw_id=record.raw_id if is_own else None,
        restarts=record.restarts or 0,
    )
