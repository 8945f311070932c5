"""Errors for a job without success, and for one whose end is not known."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.client.render.job_card import advice, has_run, headline, is_finished, notes
from jupyter_slurm.client.render.session_card import terminal_name
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.advice.missing_commands import advise_missing_command
from jupyter_slurm.errors import JobEndUnknown, JobFailed, JobOutputMissing

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["END_UNKNOWN", "failure", "is_in_vain", "refuse_in_vain", "values_missing", "without_log"]

END_UNKNOWN = "UNKNOWN"
"""State of a job that is over, and nobody knows how it ended."""


def failure(data: api.Job, log: str, path: str | None, *, owner: str = "") -> JobFailed | JobEndUnknown:
    """Return the error for a job whose final state is not COMPLETED: only a known end is a failure.

    Parameters
    ----------
    data : mapping
        API object of the job.
    log : str
        The last lines of its log, without colours.
    path : str or None
        Path of that log.
    owner : str
        Of an array, the task of the log.
    """
    lines = [headline(data)]
    printed = bool(log.strip())
    step = advice(data, printed=printed)
    # The last lines stand above the hint, which does not announce them.
    hint = advise_missing_command(log, data.get("kind")) or advice(data, printed=False)
    lines += [note for note in notes(data, printed=printed) if note != step]
    if owner:
        lines.append(f"The first task that failed: {owner}")
    if printed:
        lines.append(f"Last lines of {path}:" if path else "Its last lines:")
        lines += ["    " + line for line in printable(log).rstrip("\n").split("\n")]
    kind = JobEndUnknown if data.get("state") == END_UNKNOWN else JobFailed
    return kind(
        "\n".join(lines),
        hint=hint or _log_location(data, printed, path),
        id=data.get("id"),
        state=data.get("state"),
        reason=data.get("reason"),
        exit_code=data.get("exit_code"),
        signal=data.get("signal"),
        log=log,
    )


def values_missing(title: str, *, is_finished: bool) -> JobOutputMissing:
    """Return the error for a job without values: they are written at its end."""
    if is_finished:
        return JobOutputMissing(f"{title} returned no values.", hint="Add out=NAME to the line, and run it again.")
    return JobOutputMissing(
        f"{title} has not ended yet. The values of out= are written at its end.",
        hint="Wait for its end: `.wait()`, or `.result()`, which waits and returns the values.",
    )


def without_log(error: JobFailed | JobEndUnknown, data: api.Job, *, has_card: bool) -> JobFailed | JobEndUnknown:
    """Return the error without the lines of the log, which the user has seen; ``details["log"]`` still has them.

    Parameters
    ----------
    error : JobFailed or JobEndUnknown
        The error with the log.
    data : mapping
        API object of the job.
    has_card : bool
        Whether the user sees the job card, too, which explains the end.
    """
    step = advice(data, printed=True)
    said = [] if has_card else [note for note in notes(data, printed=True) if note != step]
    return type(error)("\n".join([headline(data), *said]), hint=error.hint, **error.details)


def is_in_vain(data: api.Job) -> bool:
    """Return whether a job waits for a condition that can no longer come true."""
    return data.get("reason") == "DependencyNeverSatisfied" and not is_finished(data)


def refuse_in_vain(data: api.Job) -> None:
    """Raise JobFailed for a job that can never start, so that no caller waits for it."""
    if is_in_vain(data):
        raise failure(data, "", None)


def _log_location(data: api.Job, printed: bool, path: str | None) -> str:
    """Return a sentence about the path of a job's log, if it has a log."""
    if printed and data.get("session"):
        return f"Read the whole log: `jupyter slurm log {terminal_name(data)} -n 1000`{f', or {path}' if path else ''}."
    if printed:
        return f"Read the whole log: job.stdout, job.stderr{f' ({path})' if path else ''}."
    return (
        "The output of the job is empty, or this computer cannot read it."
        if has_run(data) and not data.get("tasks")
        else ""
    )
