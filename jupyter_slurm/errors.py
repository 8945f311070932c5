"""Everything that this package raises on purpose.

::

    SlurmError                   all of ours; says what happened and what to do next
    ├── UsageError               what was typed cannot be right; nothing was submitted
    │   ├── OptionError          an option that Slurm does not know, or one without its value
    │   └── CellError            a cell that is neither a script nor Python
    ├── ConfigError              a configuration, profile or description that cannot be used
    ├── ParseError               an answer of Slurm that we could not read
    ├── CommandError             a command ended with an error of its own
    │   └── SubmitRefused        sbatch said no
    ├── ControllerError          slurmctld or slurmdbd did not answer; nothing is known, nothing is lost
    ├── Throttled                more questions than Slurm should be asked; the one at hand was not asked
    ├── SubmissionUnknown        sbatch was started and its answer is not known yet
    ├── TransportError           the way to the login node failed
    │   ├── CommandMissing       the program is not on the PATH there
    │   ├── CommandTimeout       no answer within the time allowed
    │   ├── NotConnected         nobody is logged in there
    │   ├── HostKeyError         a host did not prove to be the one that is meant
    │   │   ├── HostKeyUnknown   nobody has said yes to its key
    │   │   ├── HostKeyChanged   another key is known for it
    │   │   └── HostKeyRevoked   its key must not be used any more
    │   ├── LoginFailed          a host did not let the person in
    │   │   └── LoginDeclined    the person did not want to answer
    │   └── TunnelError          a port cannot be reached, or must not be
    │       └── TunnelUnproven   who answers there did not prove to be the person's own
    ├── AgentError               the agent could not be reached, started or understood
    │   ├── AgentUnreachable
    │   ├── AgentBusy            it serves as many as it can
    │   ├── AgentRefused         it is there and does not accept us (other user, other version)
    │   └── PromptGone           a question of a log-in that is settled by now
    ├── JobError                 about one job
    │   ├── JobNotFound
    │   ├── JobFailed            ended with an exit code or a state other than COMPLETED
    │   └── JobOutputMissing     the output is not where the job was told to write it
    └── EmbeddedError            the embedded cluster
        └── MissingPackages      system packages to install first

Every class has a stable ``code``, which is what travels through the API in an RFC 9457 problem document:
``error.to_problem()`` and :func:`from_problem` are inverse to each other.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, TypedDict

__all__ = [
    "AgentBusy",
    "AgentError",
    "AgentRefused",
    "AgentUnreachable",
    "CellError",
    "CommandError",
    "CommandMissing",
    "CommandTimeout",
    "ConfigError",
    "ControllerError",
    "EmbeddedError",
    "HostKeyChanged",
    "HostKeyError",
    "HostKeyRevoked",
    "HostKeyUnknown",
    "JobError",
    "JobFailed",
    "JobNotFound",
    "JobOutputMissing",
    "LoginDeclined",
    "LoginFailed",
    "MissingPackages",
    "NotConnected",
    "OptionError",
    "ParseError",
    "PromptGone",
    "SlurmError",
    "SubmissionUnknown",
    "SubmitRefused",
    "Throttled",
    "TransportError",
    "TunnelError",
    "TunnelUnproven",
    "UsageError",
    "from_problem",
]

_TYPE_PREFIX = "urn:jupyter-slurm:error:"
# What moves a cursor, or turns the direction of letters: messages quote servers, commands and files.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class ProblemDocument(TypedDict):
    """An error as the API tells it (RFC 9457): ``Problem`` of openapi.yaml."""

    type: str
    title: str
    status: int
    detail: str
    hint: str
    details: Mapping[str, Any]


class SlurmError(Exception):
    """Base of all errors of this package.

    Parameters
    ----------
    message : str
        What happened, in one or two sentences.
    hint : str, optional
        What the person can do next.
    **details
        Facts about the case (JSON values): ``argv``, ``exit_code``, ``stderr``, ``suggestion`` …
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Show the message alone in a notebook: our own stack helps nobody there."""
        lines = [f"{type(self).__name__}: {self.message}", *([self.hint] if self.hint else [])]
        return [_HIDDEN.sub(lambda found: ascii(found[0])[1:-1], line) for line in lines]

    def to_problem(self) -> ProblemDocument:
        """Return this error as a problem document (RFC 9457)."""
        return {
            "type": _TYPE_PREFIX + self.code,
            "title": type(self).__name__,
            "status": self.status,
            "detail": self.message,
            "hint": self.hint,
            "details": self.details,
        }


class UsageError(SlurmError):
    """What was typed cannot be right. Nothing was submitted."""

    code, status = "usage", 400


class OptionError(UsageError):
    """An option that Slurm does not know, or one without its value."""

    code = "option"


class CellError(UsageError):
    """A cell that is neither a script nor Python."""

    code = "cell"


class ConfigError(SlurmError):
    """A configuration, profile or description that cannot be used."""

    code, status = "config", 400


class ParseError(SlurmError):
    """An answer of Slurm that could not be read."""

    code, status = "parse", 502


class CommandError(SlurmError):
    """A command ended with an error of its own."""

    code, status = "command", 422


class SubmitRefused(CommandError):
    """``sbatch`` refused the job."""

    code = "submit-refused"


class ControllerError(SlurmError):
    """A Slurm daemon did not answer: nothing is known, nothing is lost."""

    code, status = "controller", 503


class Throttled(SlurmError):
    """More was asked than Slurm should be asked. ``details["retry_after"]`` says when to try again, in seconds."""

    code, status = "throttled", 429


class SubmissionUnknown(SlurmError):
    """``sbatch`` was started and its answer is not known yet. It must not simply be repeated."""

    code, status = "submission-unknown", 503


class TransportError(SlurmError):
    """The way to the machine that runs the Slurm commands failed."""

    code, status = "transport", 502


class CommandMissing(TransportError):
    """The program is not on the PATH of that machine."""

    code = "command-missing"


class CommandTimeout(TransportError):
    """No answer within the time allowed."""

    code, status = "command-timeout", 504


class NotConnected(TransportError):
    """Nobody is logged in to that cluster."""

    code, status = "not-connected", 409


class HostKeyError(TransportError):
    """A host did not prove to be the one that is meant. Nothing was told to it.

    Its details name the ``host``, the ``fingerprint`` of the key as ``ssh-keygen -l`` prints it, and the ``key_type``.
    """

    code = "host-key"


class HostKeyUnknown(HostKeyError):
    """Nobody has said yes to the key of a host yet, or somebody has just said no."""

    code = "host-key-unknown"


class HostKeyChanged(HostKeyError):
    """Another key is known for a host: it was installed anew, or somebody stands in between."""

    code = "host-key-changed"


class HostKeyRevoked(HostKeyError):
    """The key of a host must not be used any more."""

    code = "host-key-revoked"


class LoginFailed(TransportError):
    """A host did not let the person in; ``tried`` in the details says with what, one line each, and nothing secret."""

    code = "login-failed"


class LoginDeclined(LoginFailed):
    """The person did not want to answer, or nobody was there."""

    code = "login-declined"


class TunnelError(TransportError):
    """A port cannot be brought here: nothing listens there, connections are not passed on, no local port is free."""

    code, status = "tunnel", 409


class TunnelUnproven(TunnelError):
    """Who answers at the far end did not prove to be the person's own. Nothing was sent there."""

    code = "tunnel-unproven"


class AgentError(SlurmError):
    """The agent could not be reached, started or understood."""

    code, status = "agent", 502


class AgentUnreachable(AgentError):
    """No agent answers, and none could be started."""

    code, status = "agent-unreachable", 503


class AgentBusy(AgentError):
    """The agent serves as many as it can. ``details["retry_after"]``: seconds."""

    code, status = "agent-busy", 503


class AgentRefused(AgentError):
    """The agent is there and does not accept this client."""

    code, status = "agent-refused", 403


class PromptGone(AgentError):
    """A question of a log-in is settled by now: answered by somebody else, or of no interest any more."""

    code, status = "prompt-gone", 410


class JobError(SlurmError):
    """Something about one job: its state does not allow what was asked for."""

    code, status = "job", 409


class JobNotFound(JobError):
    """No job of this user has that id."""

    code, status = "job-not-found", 404


class JobFailed(JobError):
    """A job that was waited for did not end well."""

    code = "job-failed"


class JobOutputMissing(JobError):
    """The output is not where the job was told to write it."""

    code, status = "job-output-missing", 404


class EmbeddedError(SlurmError):
    """The embedded cluster could not be started, found or stopped."""

    code = "embedded"


class MissingPackages(EmbeddedError):
    """System packages have to be installed first; the hint is the one command to type."""

    code = "missing-packages"


def _tree(cls: type[SlurmError]) -> Iterator[type[SlurmError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


def from_problem(problem: Mapping[str, object]) -> SlurmError:
    """Return the error that a problem document stands for.

    A type that this version does not know becomes a plain :class:`SlurmError`, so that a newer agent can be understood.
    """
    code = str(problem.get("type", "")).removeprefix(_TYPE_PREFIX)
    cls = next((c for c in _tree(SlurmError) if c.code == code), SlurmError)
    details = problem.get("details")
    return cls(
        str(problem.get("detail") or problem.get("title") or "unknown error"),
        hint=str(problem.get("hint") or ""),
        **(dict(details) if isinstance(details, Mapping) else {}),
    )
