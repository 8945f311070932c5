"""Exceptions of this package.

::

    SlurmError                   base class: an error with its cause and the next step
    ├── UsageError               the input is not valid; nothing was submitted
    │   ├── OptionError          an option that Slurm does not know, or one without its value
    │   └── CellError            a cell that is neither a script nor Python
    ├── ConfigError              a configuration, profile or description that cannot be used
    ├── ParseError               an unreadable answer of Slurm
    ├── CommandError             a command ended with an error of its own
    │   └── SubmitRefused        sbatch refused the job
    ├── ControllerError          slurmctld or slurmdbd did not answer; nothing is known, nothing is lost
    ├── Throttled                too many queries to Slurm; the present one was not sent
    ├── SubmissionUnknown        sbatch was started and its answer is not known yet
    ├── TransportError           the connection to the login node failed
    │   ├── CommandMissing       the program is not on the PATH of the remote host
    │   ├── CommandTimeout       no answer within the time allowed
    │   ├── NotConnected         there is no connection to the cluster
    │   ├── HostKeyError         the identity of a host is not proven
    │   │   ├── HostKeyUnknown   the user has not accepted its key
    │   │   ├── HostKeyChanged   another key is known for it
    │   │   └── HostKeyRevoked   its key must not be used any more
    │   ├── LoginFailed          login to a host failed
    │   │   └── LoginDeclined    the user declined a prompt
    │   ├── TunnelError          a port is unreachable, or not allowed
    │   │   └── TunnelUnproven   the remote program is not proven to be the user's
    │   └── UntrustedFile        other users can have written a file that must be the user's
    ├── AgentError               the agent could not be reached, started or understood
    │   ├── AgentUnreachable
    │   ├── AgentBusy            the agent is at its limit of clients
    │   ├── AgentRefused         the agent does not accept the client (other user, other version)
    │   └── PromptGone           a login prompt that is no longer open
    ├── JobError                 error about one job
    │   ├── JobNotFound
    │   ├── JobFailed            an exit code or a state other than COMPLETED
    │   ├── JobEndUnknown        over, and nobody knows how it ended
    │   └── JobOutputMissing     the output is not at the job's output path
    ├── FileError                a file of the cluster cannot be read or changed
    │   └── FileConflict         it has changed since it was read, or its name is taken
    └── EmbeddedError            the embedded cluster
        └── MissingPackages      system packages to install first

Every class has a stable ``code`` for the API, part of an RFC 9457 problem document: ``error.to_problem()`` and
:func:`from_problem` are inverse to each other.
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
    "FileConflict",
    "FileError",
    "HostKeyChanged",
    "HostKeyError",
    "HostKeyRevoked",
    "HostKeyUnknown",
    "JobEndUnknown",
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
    "UntrustedFile",
    "UsageError",
    "from_problem",
]

_TYPE_PREFIX = "urn:jupyter-slurm:error:"
# Characters that move a cursor or change the text direction: messages quote servers, commands and files.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class ProblemDocument(TypedDict):
    """An error as the API sends it (RFC 9457): ``Problem`` of openapi.yaml."""

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
        The error, in one or two sentences.
    hint : str, optional
        Next step for the user.
    **details
        Facts about the case (JSON values): ``argv``, ``exit_code``, ``stderr``, ``suggestion`` …
    """

    code: ClassVar[str] = "error"
    status: ClassVar[int] = 500
    default_hint: ClassVar[str] = ""  # for errors without a hint of their own

    def __init__(self, message: str, *, hint: str = "", **details: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.default_hint
        self.details: dict[str, Any] = details

    def __str__(self) -> str:
        return f"{self.message}\n{self.hint}" if self.hint else self.message

    def _render_traceback_(self) -> list[str]:
        """Return only the message for a notebook: the stack of jupyter_slurm does not help the user."""
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
    """The input is not valid. Nothing was submitted."""

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
    default_hint = "Report this error, with the output of `jupyter slurm agent logs`."


class CommandError(SlurmError):
    """A command ended with its own error."""

    code, status = "command", 422


class SubmitRefused(CommandError):
    """``sbatch`` refused the job."""

    code = "submit-refused"


class ControllerError(SlurmError):
    """A Slurm daemon did not answer: nothing is known, nothing is lost."""

    code, status = "controller", 503


class Throttled(SlurmError):
    """Too many queries to Slurm. ``details["retry_after"]`` is the time until the next attempt, in seconds."""

    code, status = "throttled", 429


class SubmissionUnknown(SlurmError):
    """``sbatch`` was started and its answer is not known yet. The submission must not be repeated blindly."""

    code, status = "submission-unknown", 503


class TransportError(SlurmError):
    """The connection to the machine of the Slurm commands failed."""

    code, status = "transport", 502


class CommandMissing(TransportError):
    """The program is not on the PATH of that machine."""

    code = "command-missing"


class CommandTimeout(TransportError):
    """No answer within the time allowed."""

    code, status = "command-timeout", 504


class NotConnected(TransportError):
    """There is no connection to the cluster."""

    code, status = "not-connected", 409


class HostKeyError(TransportError):
    """The identity of a host is not proven. Nothing was sent to it.

    Its details name the ``host``, the ``fingerprint`` of the key as ``ssh-keygen -l`` prints it, and the ``key_type``.
    """

    code = "host-key"


class HostKeyUnknown(HostKeyError):
    """The user has not accepted the key of a host, or has refused it."""

    code = "host-key-unknown"


class HostKeyChanged(HostKeyError):
    """Another key is known for a host: the host was reinstalled, or an attacker intercepts the connection."""

    code = "host-key-changed"


class HostKeyRevoked(HostKeyError):
    """The key of a host must not be used any more."""

    code = "host-key-revoked"


class LoginFailed(TransportError):
    """Login to a host failed; ``tried`` in the details lists the methods, one a line, without secrets."""

    code = "login-failed"


class LoginDeclined(LoginFailed):
    """The user declined a prompt, or could not be asked."""

    code = "login-declined"


class TunnelError(TransportError):
    """A port cannot be forwarded: no listener, forwarding refused, or no free local port."""

    code, status = "tunnel", 409


class TunnelUnproven(TunnelError):
    """The remote program is not proven to be the user's. Nothing was sent to it."""

    code = "tunnel-unproven"


class UntrustedFile(TransportError):
    """Other users can have written a file that must be the user's. It was not read."""

    code, status = "untrusted-file", 409


class AgentError(SlurmError):
    """The agent could not be reached, started or understood."""

    code, status = "agent", 502


class AgentUnreachable(AgentError):
    """No agent answers, and none could be started."""

    code, status = "agent-unreachable", 503


class AgentBusy(AgentError):
    """The agent is at its limit of clients. ``details["retry_after"]``: seconds."""

    code, status = "agent-busy", 503


class AgentRefused(AgentError):
    """The agent runs but does not accept this client."""

    code, status = "agent-refused", 403


class PromptGone(AgentError):
    """A login prompt is no longer open: another client has answered it, or it has expired."""

    code, status = "prompt-gone", 410


class JobError(SlurmError):
    """Error about one job: its state does not allow the request."""

    code, status = "job", 409


class JobNotFound(JobError):
    """The user has no job with that id."""

    code, status = "job-not-found", 404


class JobFailed(JobError):
    """An awaited job failed."""

    code = "job-failed"


class JobEndUnknown(JobError):
    """An awaited job is over, and it is not known how it ended: it may have succeeded."""

    code = "job-end-unknown"


class JobOutputMissing(JobError):
    """The output is not at the job's output path."""

    code, status = "job-output-missing", 404


class FileError(SlurmError):
    """A file of the cluster cannot be read or changed. ``details["reason"]`` is the name of the error (errno)."""

    code, status = "file", 422


class FileConflict(FileError):
    """A file of the cluster has changed since it was read, or its name is taken. Nothing was written."""

    code, status = "file-conflict", 409


class EmbeddedError(SlurmError):
    """The embedded cluster could not be started, found or stopped."""

    code = "embedded"


class MissingPackages(EmbeddedError):
    """System packages are missing; the hint is the command that installs them."""

    code = "missing-packages"


def _tree(cls: type[SlurmError]) -> Iterator[type[SlurmError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from _tree(child)


def from_problem(problem: Mapping[str, object]) -> SlurmError:
    """Return the error of a problem document.

    An unknown type becomes a plain :class:`SlurmError`, so that a newer agent can be understood.
    """
    code = str(problem.get("type", "")).removeprefix(_TYPE_PREFIX)
    cls = next((c for c in _tree(SlurmError) if c.code == code), SlurmError)
    details = problem.get("details")
    return cls(
        str(problem.get("detail") or problem.get("title") or "unknown error"),
        hint=str(problem.get("hint") or ""),
        **(dict(details) if isinstance(details, Mapping) else {}),
    )
