"""Resubmission of a job: its options with changes, and the remaining part of a dependency."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from jupyter_slurm.domain.options.option_parser import HET, OptionTable, words_of
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.errors import JobError, UsageError

__all__ = [
    "OMIT_DEPENDENCY_HINT",
    "JobEnd",
    "awaited",
    "changed",
    "check_repeatable",
    "dependency_value",
    "has_source",
    "is_met",
    "remaining_dependency",
    "repeated",
]

OMIT_DEPENDENCY_HINT: Final = "Use job.resubmit(dependency=None) to submit the job without the dependency."
_ID = re.compile(r"\d{1,10}(?:_\d{1,10})?")
_SAME = (
    "kind",
    "args",
    "python",
    "env",
    "default_python",
    "filename",
    "values",
    "resume",
    "launcher",
    "label",
    "stage",
)
# A job that ended well satisfies True, a failed job satisfies False, any end satisfies None.
_DEPENDENCY_OUTCOMES = {"afterok": True, "aftercorr": True, "afterany": None, "afternotok": False}


class JobEnd(NamedTuple):
    """The end of a job in a dependency: the job's name, and how it ended; None: not finished."""

    title: str
    state: str | None


def check_repeatable(record: Mapping[str, object]) -> None:
    """Refuse a job that cannot be resubmitted.

    Raises
    ------
    UsageError, JobError
        The job has no script or cell, or its record is incomplete.
    """
    if record["kind"] not in ("script", "python"):
        raise UsageError(
            "Only scripts and Python cells can be submitted again.",
            hint="Request a new allocation, or launch a new session.",
        )
    if record.get("image"):
        raise UsageError(
            "An image cannot be built again by resubmitting its job.", hint="Use `%slurm image build … replace`."
        )
    if record.get("options") is None:
        raise JobError(
            "An older version of jupyter_slurm submitted this job and did not record all that is needed "
            "to submit it again.",
            hint="Copy its text from job.script or job.source into a new cell.",
        )


def has_source(record: Mapping[str, object]) -> bool:
    """Return whether the typed source differs from the batch script."""
    is_begun = record.get("sweep") or record.get("part") or record.get("resume") or record.get("watched")
    return record["kind"] == "python" or bool(is_begun)


def repeated(record: Mapping[str, object], text: str, options: Sequence[str]) -> dict[str, object]:
    """Return the submission that repeats a record: all of it but key, context and origin.

    Parameters
    ----------
    record : mapping
        The ``Record`` of the API.
    text : str
        The typed text, else the script.
    options : sequence of str
        Options of sbatch, with the changes if any.
    """
    return {
        **{name: record.get(name) for name in _SAME},
        "text": text,
        "options": list(options),
        "script_name": None if record["kind"] == "python" else record["script"],
        "again": record["key"],
    }


def dependency_value(table: OptionTable, options: Sequence[str]) -> str | None:
    """Return the --dependency among options, if it is given exactly once."""
    if not any(option.startswith(("-d", "--d")) for option in options):
        return None
    found = [option for option in table.split(options).options if option.name == "dependency"]
    return found[0].value if len(found) == 1 else None


def awaited(value: str) -> list[str]:
    """Return the IDs of the jobs in a --dependency whose end matters."""
    return [number for kind, numbers in _conditions(value) if kind for number in numbers]


def remaining_dependency(value: str, endings: Mapping[str, JobEnd]) -> str | None:
    """Return the remaining part of an earlier --dependency; None if nothing remains.

    Slurm may have forgotten finished jobs, so satisfied conditions are removed.

    Raises
    ------
    UsageError
        The dependency can never be satisfied.
    """
    conditions = []
    for condition, (kind, numbers) in zip(value.split(","), _conditions(value), strict=True):
        if kind:
            left = [number for number in numbers if not is_met(kind, kind, endings[number], OMIT_DEPENDENCY_HINT)]
            conditions += [":".join([kind, *left])] if left else []
        else:
            conditions.append(condition)  # sbatch judges the condition
    return ",".join(conditions) or None


def is_met(text: str, kind: str, job: JobEnd, hint: str) -> bool:
    """Return whether a condition is already satisfied: Slurm forgets finished jobs, and would refuse their IDs.

    Raises
    ------
    UsageError
        The condition can never be satisfied.
    """
    if job.state is None or kind not in _DEPENDENCY_OUTCOMES:
        return False
    wanted, is_well = _DEPENDENCY_OUTCOMES[kind], job.state == "COMPLETED"
    if wanted is None or wanted == is_well:
        return True
    if kind == "aftercorr":
        hint = "Use --array=… with the numbers of the tasks that ended well."
        said = "so the tasks with the numbers of those that did not end well would never start"
        raise UsageError(f"{text}=: {job.title} ended as {job.state}, {said}.", hint=hint)
    raise UsageError(f"{text}=: {job.title} ended as {job.state}, so this job would never start.", hint=hint)


def _conditions(value: str) -> list[tuple[str, list[str]]]:
    """Return each condition as its kind and its job IDs; the kind is empty if only sbatch understands the condition."""
    found: list[tuple[str, list[str]]] = []
    for condition in value.split(","):
        kind, *numbers = condition.split(":")
        is_known = kind in _DEPENDENCY_OUTCOMES and all(map(_ID.fullmatch, numbers))
        found.append((kind, numbers) if is_known else ("", []))
    return found


def changed(table: OptionTable, options: Sequence[str], text: str, changes: Mapping[str, object]) -> list[str]:
    """Return options of sbatch with changes: each change replaces the option on the line.

    Raises
    ------
    OptionError, UsageError
        An option is unknown to sbatch, or a change cannot be made.
    """
    said, header = table.split(options).options, table.split(header_options(text)).options
    if any(option.name == HET for option in (*said, *header)):
        raise UsageError(
            "The components of a heterogeneous job have separate options, so no option can be changed by name.",
            hint="Use job.resubmit() without options to submit the job as it was.",
        )
    names, added, other = set[str](), list[str](), other_options(text)
    for word, value in changes.items():
        is_letter, is_left_out = len(word) == 1, value is None or value is False
        plain = f"-{word}" if is_letter else "--" + word.replace("_", "-")
        if not is_left_out and value is not True:
            plain += _value(value) if is_letter else f"={_value(value)}"
        # an empty value for an option that needs a value
        name = table.split([plain, *([""] * is_left_out)]).options[0].name
        names.add(name)
        if not is_left_out:
            added.append(plain)
        elif (is_other := name in other) or any(option.name == name for option in header):
            raise UsageError(
                f"{plain} is set in the text of the job ({'#PBS or #BSUB' if is_other else '#SBATCH'}), so it cannot "
                "be left out.",
                hint=f"Give it another value: {word}=…",
            )
    return [*words_of(said, lambda name: name not in names), *added]


def _value(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, (list, tuple, set, frozenset)) else str(value)
