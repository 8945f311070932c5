"""Errors between a front end and the agent, and its warnings, common to all clients."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

from jupyter_slurm.errors import AgentRefused, AgentUnreachable, SlurmError, from_problem

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "CONNECT_TIMEOUT_S",
    "LinkLost",
    "as_error",
    "broken",
    "check_size",
    "no_answer",
    "show_once",
    "show_warnings",
    "stranger",
    "too_slow",
]

CONNECT_TIMEOUT_S = 5.0
"""Seconds: connecting is local and fast."""


class LinkLost(AgentUnreachable):
    """The agent has gone. ``sent`` is False if the agent cannot have seen the request."""

    def __init__(self, message: str, *, sent: bool, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.sent = sent


def no_answer() -> LinkLost:
    """Return the error for a missing listener."""
    hint = "Check its state with `jupyter slurm agent status`."
    return LinkLost("The agent does not answer.", sent=False, hint=hint)


def too_slow(path: str, seconds: float | None) -> AgentUnreachable:
    """Return the error for a time-out."""
    return AgentUnreachable(
        f"The agent gave no answer to {path} within {seconds} s.",
        hint="See `jupyter slurm agent logs` for the cause.",
    )


def broken(method: str, path: str) -> LinkLost:
    """Return the error for a connection that broke after or during the request."""
    if method == "GET":
        return LinkLost(
            f"The agent ended while it answered {path}.", sent=True, hint="Try again: another agent starts."
        )
    return LinkLost(
        f"The agent ended while it worked on {path}. It is not known whether the request was carried out.",
        sent=True,
        hint="Check with `jupyter slurm jobs` or %squeue before you repeat it.",
    )


def check_size(content: bytes | None) -> None:
    """Refuse a body that the agent would refuse: it may close the connection while the body is sent."""
    if content is not None:
        from jupyter_slurm.agent.json_encoding import MAX_BODY_BYTES, TOO_LARGE  # imported with the encoder

        if len(content) > MAX_BODY_BYTES:
            raise SlurmError(TOO_LARGE, hint="Put large data into a file.")


def stranger(uid: int | None) -> AgentRefused:
    """Return the error for a listener of another user."""
    return AgentRefused(
        f"The program at the agent's address belongs to user {uid}, not to you. Nothing was sent.",
        hint="Tell the administrators, and set c.JupyterSlurm.runtime_dir to a directory of yours.",
    )


def as_error(status: int, body: bytes, *, is_repetition: bool = False) -> SlurmError:
    """Return the error in a response; details say if the request was repeated after an agent had ended."""
    try:
        document = json.loads(body)
    except ValueError:
        document = None
    if isinstance(document, dict) and "detail" in document:
        error = from_problem(document)
        if is_repetition:
            error.details["is_repetition"] = True
        return error
    return AgentRefused(
        f"The agent answered {status} without a reason.", hint="See `jupyter slurm agent logs` for the cause."
    )


_shown: set[str] = set()


def show_warnings(info: api.Agent) -> None:
    """Print what the agent says about this computer, each sentence once in this process."""
    for text in info.get("warnings", ()):
        show_once(text)


def show_once(text: str) -> None:
    """Print a warning on standard error, once in this process."""
    if text not in _shown:
        _shown.add(text)
        sys.stderr.write(f"Warning: {text}\n")
