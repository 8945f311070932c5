"""Execution of a Slurm command as the user typed it."""

from __future__ import annotations

import base64
import contextlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from jupyter_slurm.client.clusters.cluster import Cluster, context
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.render.table import CommandText, Table
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.options.commands import is_repeatable
from jupyter_slurm.errors import CommandError, SlurmError, Throttled

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["retry_when_allowed", "run_command"]

_JOB = re.compile(r"(?:-j|--jobs?=)?(\d+(?:_\d+)?)(?:,[\d_,]+)?")


def run_command(cluster: Cluster, argv: Sequence[str]) -> Table | CommandText | None:
    """Run a command and return its table, or its text if it has none; None if it printed nothing.

    Raises
    ------
    CommandError
        The command failed; the message is that of the command.
    ControllerError, ConfigError
        Slurm does not answer, or was not found.
    WaitInterrupted
        The command was interrupted; the message says what is known of it.
    """
    answer = _answer(cluster, argv)
    said = base64.b64decode(answer["stderr"]).decode("utf-8", "surrogateescape")
    text = base64.b64decode(answer["stdout"]).decode("utf-8", "surrogateescape")
    if answer["exit_code"] != 0:
        message = said.strip() or text.strip() or f"{argv[0]} ended with exit code {answer['exit_code']}"
        hint = (
            _end_of_forgotten(cluster, argv, message)
            or answer.get("hint")
            or f"`%{argv[0]} --help` and `%{argv[0]}?` show its options."
        )
        raise CommandError(printable(message), hint=hint, argv=list(argv), exit_code=answer["exit_code"], stderr=said)
    if said.strip():
        sys.stderr.write(printable(said))
    if answer["table"] is not None:
        table = answer["table"]
        return Table(table["columns"], table["rows"], title=table.get("title", ""))
    return CommandText(text) if text else None


def _end_of_forgotten(cluster: Cluster, argv: Sequence[str], message: str) -> str:
    """Return what is known of a job that the controller has forgotten; empty for any other message."""
    found = next((match for word in argv[1:] if (match := _JOB.fullmatch(word))), None)
    if found is None or "invalid job id" not in message.lower():
        return ""
    number, told = found[1], ""
    with contextlib.suppress(SlurmError):
        job = cluster.client.get(cluster.path("jobs", number))
        if job["finished"]:
            told = f"Job {number} has left the queue: it ended as {job['state']}. "
    told = told or f"Job {number} has left the queue, or never was in it. "
    return (
        f"{told}`jupyter_slurm.job({number})` shows its end, and so does `%sacct -j {number}` if there is accounting."
    )


_T = TypeVar("_T")


def _answer(cluster: Cluster, argv: Sequence[str]) -> api.CommandResult:
    asked: api.RunCommandRequest = {"argv": list(argv), "table": True, "context": context(cluster)}
    repeatable = is_repeatable(argv)
    try:
        path = cluster.path("commands")
        answer: api.CommandResult = retry_when_allowed(
            argv[0], lambda: cluster.client.post(path, json=asked, idempotent=repeatable)
        )
        return answer
    except WaitInterrupted:
        raise
    except KeyboardInterrupt:
        left = "" if repeatable and argv[0] != "scancel" else "; its effect is unknown"
        raise WaitInterrupted(f"Interrupted: {argv[0]} has not answered{left}.") from None


def retry_when_allowed(subject: str, request: Callable[[], _T]) -> _T:
    """Ask the agent, and repeat the request after the delay that the agent demands; the waiting user is notified.

    Raises
    ------
    WaitInterrupted
        The wait was interrupted before the request.
    """
    while True:
        try:
            return request()
        except Throttled as error:
            seconds = max(1, int(error.details.get("retry_after") or 1))
        told = f"{subject} waits {seconds} s, to limit the load on Slurm. jupyter_slurm.jobs() answers at once.\n"
        try:
            sys.stderr.write(told)
            sys.stderr.flush()
            time.sleep(seconds)
        except KeyboardInterrupt:
            raise WaitInterrupted(f"Interrupted: {subject} was not run.") from None
