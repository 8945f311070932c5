"""What a sweep adds to a submission: the tasks of the array, the table, and for a script the way into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_slurm.domain.sweep import Sweep, sweep_script
from jupyter_slurm.errors import ParseError, UsageError
from jupyter_slurm.runner.sweep import FILE, value_of
from jupyter_slurm.services.jobdir import JobFolder

__all__ = ["SCRIPT", "Addition", "plan"]

SCRIPT = "sweep.script"
"""The person's own script, in the job directory: the one that Slurm has sets the variables of its task first."""

_VARIABLES = "sweep.sh"


@dataclass
class Addition:
    """What is added: options of sbatch, fields of the record, files of the job directory, another script."""

    options: list[str] = field(default_factory=list)
    record: dict[str, Any] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    script: str | None = None


def plan(asked: Mapping[str, Any], job: JobFolder, chosen: dict[str, str | None]) -> Addition:
    """Return what is added to a submission; ``chosen`` are the options in force, and get the tasks if it is a sweep.

    Raises
    ------
    UsageError
        The sweep cannot be.
    """
    if not asked.get("sweep"):
        return Addition()
    sweep = _read(asked["sweep"])
    added = Addition(files={FILE: sweep.as_file()})
    try:
        tasks = sweep.tasks(chosen.get("array"))
    except ParseError as error:
        raise UsageError(error.message, hint="--array names rows of the sweep: --array=0-9,20%5") from error
    if "array" not in chosen:
        added.options, chosen["array"] = [f"--array={tasks}"], tasks
    about = {"names": list(sweep.names), "rows": len(sweep.rows)}
    added.record = {"sweep": about}
    if asked["kind"] == "script":
        variables, script = job.file(_VARIABLES), job.file(SCRIPT)
        added.files[_VARIABLES] = sweep.as_shell().encode("utf-8", "surrogateescape")
        added.files[SCRIPT] = asked["text"].encode("utf-8", "surrogateescape")
        added.script = sweep_script(asked["text"], variables=variables, script=script)
    return added


def _read(told: Mapping[str, Any]) -> Sweep:
    """Take in a table from a request: its values must be literals, for they are read as such on the node."""
    rows = tuple(map(tuple, told["rows"]))
    if any(len(row) != len(told["names"]) for row in rows):
        raise UsageError("the rows of a sweep have as many values as there are names")
    try:
        for literal in {literal for row in rows for literal in row}:
            value_of(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise UsageError(f"a value of the sweep is no literal: {error}") from error
    return Sweep(tuple(told["names"]), rows)
