"""Additions of a sweep, an array in parts or ``resume`` to a submission: tasks, table, and a script's wrapper."""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jupyter_slurm.domain.scripts.script import interpreter_words, job_script
from jupyter_slurm.domain.scripts.sweep_parameters import Sweep, task_script
from jupyter_slurm.errors import ParseError, UsageError
from jupyter_slurm.runner.cell.sweep_parameters import FILE, value_of
from jupyter_slurm.services.jobdir.job_directory import SWEEP_SCRIPT, JobFolder, script_name
from jupyter_slurm.services.jobdir.job_json_model import PartRecord, SweepRecord
from jupyter_slurm.services.jobs.array_parts import ArrayPart

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["SweepAddition", "job_name", "plan"]


_VARIABLES = "sweep.sh"
_TASK = "sweep.task"


def job_name(asked: SubmissionRequest, chosen: dict[str, str | None]) -> list[str]:
    """Return the option with the name of a script that its file in the job directory cannot have.

    sbatch takes the name of its file as the name of the job. ``chosen`` receives the option.
    """
    own = posixpath.basename(asked.get("script_name") or "")
    if not own or "job-name" in chosen or script_name(own, "") == own:
        return []
    chosen["job-name"] = own
    return [f"--job-name={own}"]


@dataclass
class SweepAddition:
    """Additions: options of sbatch, fields of the record, files of the job directory, and another script."""

    options: list[str] = field(default_factory=list)
    sweep: SweepRecord | None = None
    part: PartRecord | None = None
    run: list[str] | None = None
    files: dict[str, bytes] = field(default_factory=dict)
    script: str | None = None


def plan(
    requested: SubmissionRequest,
    job: JobFolder,
    chosen: dict[str, str | None],
    part: ArrayPart | None = None,
    watcher: Sequence[str] = (),
    otherwise: str = "",
) -> SweepAddition:
    """Return the additions to a submission.

    Parameters
    ----------
    requested : mapping
        Submission in the form of the API.
    job : JobFolder
        Directory of table and script; for several parts, that of the first.
    chosen : dict
        Effective options, by long name; receives the tasks of a sweep.
    part : ArrayPart, optional
        Part of an array.
    watcher : sequence of str
        Wrapper of a script with ``resume`` or in a container; its last word is the job directory.
    otherwise : str
        Alternative Python for ``watcher`` on a node without the one in its first word.

    Raises
    ------
    UsageError
        The sweep is not possible.
    """
    added = SweepAddition()
    sweep = _read(table) if (table := requested.get("sweep")) else None
    if sweep is not None:
        _add_table(added, sweep, chosen)
    own: dict[str, bytes] = {}
    if requested["kind"] == "script" and (sweep is not None or part is not None or watcher):
        own = _add_script(added, requested["text"], job, sweep, part, watcher, otherwise)
    if part is not None:
        added.part = part.as_record()
        if part.key != part.array_key:
            added.files = {}  # they are in the folder of the first part
    added.files |= own
    return added


def _add_script(
    added: SweepAddition,
    text: str,
    job: JobFolder,
    sweep: Sweep | None,
    part: ArrayPart | None,
    watcher: Sequence[str],
    otherwise: str,
) -> dict[str, bytes]:
    """Store the user's script beside Slurm's; return the files that each part of an array has itself."""
    script, variables, task = job.file(SWEEP_SCRIPT), job.file(_VARIABLES) if sweep is not None else None, None
    added.files[SWEEP_SCRIPT] = text.encode("utf-8", "surrogateescape")
    if sweep is not None:
        added.files[_VARIABLES] = sweep.as_shell().encode("utf-8", "surrogateescape")
    if sweep is not None or part is not None:
        task = task_script(text, script=script, variables=variables, offset=part.offset if part else 0)
    if not watcher:
        added.script = task
        return {}
    added.script = job_script(watcher, header=text, otherwise=otherwise)
    if task is None:
        added.run = [*interpreter_words(text), script]
        return {}
    added.run = ["/bin/sh", posixpath.join(watcher[-1], _TASK)]
    return {_TASK: task.encode("utf-8", "surrogateescape")}


def _add_table(added: SweepAddition, sweep: Sweep, chosen: dict[str, str | None]) -> None:
    added.files[FILE] = sweep.as_file()
    try:
        tasks = sweep.tasks(chosen.get("array"))
    except ParseError as error:
        raise UsageError(
            error.message, hint="Name rows of the sweep with --array, for example --array=0-9,20%5."
        ) from error
    if "array" not in chosen:
        added.options, chosen["array"] = [f"--array={tasks}"], tasks
    added.sweep = SweepRecord(names=list(sweep.names), rows=len(sweep.rows))


def _read(text: api.Sweep) -> Sweep:
    """Parse a table from a request: its values must be literals, because the node reads them as such."""
    rows = tuple(map(tuple, text["rows"]))
    if any(len(row) != len(text["names"]) for row in rows):
        raise UsageError(
            "The rows of the sweep do not have one value for each name.", hint="Give each row one value for each name."
        )
    try:
        for literal in {literal for row in rows for literal in row}:
            value_of(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(
            f"A value of the sweep is not a Python literal: {error}",
            hint="Use numbers, text, True, False, None, and lists, tuples and dicts of them.",
        ) from error
    return Sweep(tuple(text["names"]), rows)
