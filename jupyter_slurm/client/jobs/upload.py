"""Transfer of a request to the agent, with its progress and its interruption."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.clients import whoami
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.client.output.progress import ProgressLine
from jupyter_slurm.errors import JobNotFound, NotConnected, SlurmError, SubmissionUnknown, TransportError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["submit_job", "submit_once"]

_MIN_REPORTED_BYTES = 1_000_000  # bytes; a transfer of this size needs no progress line
_CHECK_INTERVAL_S = 0.5  # seconds
_NOTHING = " Nothing was submitted."
_MAX_LOGINS = 4  # agents may end one after the other
_CANCEL_TIMEOUT_S = 20.0  # seconds for a cancelled transfer; an interrupt ends this, too


def submit_once(cluster: Cluster, path: str, body: Mapping[str, Any], *, logs_in: bool = False) -> Any:
    """Request a job or a step from the agent, once, and return the answer.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the request.
    path : str
        Path of the API.
    body : mapping
        The request, with its key.
    logs_in : bool
        Whether the request includes a needed login; prompts of hosts are then answered by this process.

    Raises
    ------
    WaitInterrupted
        An interrupt came during the transfer: nothing was submitted.
    SubmissionUnknown
        The agent ended while it worked on the request, and the next agent has no connection. The job is found later.
    KeyboardInterrupt
        An interrupt came after the transfer: it is unknown whether sbatch has accepted the job.
    """
    may_have_run = False
    for _ in range(_MAX_LOGINS):
        try:
            return _submit(cluster, path, body, logs_in=logs_in)
        except (TransportError, WaitInterrupted) as error:
            may_have_run = may_have_run or _may_have_run(error)
            if not may_have_run or body.get("dry_run"):
                raise
            last = error
            if not (logs_in and isinstance(error, NotConnected)):
                break
    unsettled = _unsettled(cluster, body, last)
    if isinstance(last, WaitInterrupted):
        raise WaitInterrupted(f"{unsettled.message} {unsettled.hint}") from None
    raise unsettled from last


def submit_job(cluster: Cluster, path: str, body: Mapping[str, Any], *, logs_in: bool = False) -> Any:
    """Request a job as :func:`submit_once` does; after an interrupt during sbatch, say how to find the job.

    Raises
    ------
    WaitInterrupted
        An interrupt came during the transfer: nothing was submitted. Or it came while sbatch was running: the message
        explains how to check.
    """
    try:
        return submit_once(cluster, path, body, logs_in=logs_in)
    except WaitInterrupted:
        raise
    except KeyboardInterrupt:
        raise WaitInterrupted(
            f"Interrupted while sbatch was running: the job may or may not exist. Find it with "
            f"jupyter_slurm.job({body['key']!r}), and use .cancel() to cancel it. jupyter_slurm.jobs() lists it, too."
        ) from None


def _submit(cluster: Cluster, path: str, body: Mapping[str, Any], *, logs_in: bool) -> Any:
    is_staged = bool(body.get("stage")) and not body.get("dry_run")
    if not (cluster.is_remote or is_staged):
        return cluster.client.post(path, json=body, idempotent=True)
    is_large = is_staged or _is_large(body.get("values"))
    if logs_in and is_large:
        _log_in(cluster)
    elif logs_in:
        return _with_log_in(cluster, path, {**body, "client": whoami()})
    if not is_large:
        return cluster.client.post(path, json=body, idempotent=True)
    asking = _UploadPrompts(cluster, path, body)
    try:
        return _follow_upload(cluster, body["key"], "folders" if body.get("stage") else "values", asking)
    except KeyboardInterrupt:
        if (far := _cancel_upload(cluster, body["key"], asking)) is None:
            raise
        with contextlib.suppress(KeyboardInterrupt):
            asking.is_over.wait(_CANCEL_TIMEOUT_S)
        raise WaitInterrupted(
            f"Interrupted while data was sent to {cluster.name}, {far}: nothing was submitted."
        ) from None


def _may_have_run(error: SlurmError | WaitInterrupted) -> bool:
    """Return whether an agent that has ended since may have carried out the request."""
    details = error.details if isinstance(error, SlurmError) else vars(error)
    return bool(details.get("is_repetition"))


def _mark(error: SlurmError | WaitInterrupted) -> None:
    details = error.details if isinstance(error, SlurmError) else vars(error)
    details["is_repetition"] = True


def _unsettled(cluster: Cluster, body: Mapping[str, Any], error: SlurmError | WaitInterrupted) -> SubmissionUnknown:
    """Return the error for a request whose answer was lost with the agent, while no agent is connected."""
    why = "interrupted" if isinstance(error, WaitInterrupted) else error.message.removesuffix(_NOTHING).rstrip(".")
    return SubmissionUnknown(
        f"It is not known yet whether the job was submitted: the agent ended while it worked on the request ({why}).",
        hint="Do not run the cell again. jupyter_slurm finds the job when it is connected: `%slurm use "
        f"{cluster.name}`, then jupyter_slurm.job({body['key']!r}) or jupyter_slurm.jobs().",
        key=body["key"],
    )


def _with_log_in(cluster: Cluster, path: str, requested: object) -> Any:
    """Send a request. If a login is missing, log in and send again, which the key of the request makes harmless."""
    try:
        return cluster.client.post(path, json=requested, idempotent=True)
    except NotConnected as error:
        may_have_run = _may_have_run(error)
    try:
        _log_in(cluster)
        return cluster.client.post(path, json=requested, idempotent=True)
    except (TransportError, WaitInterrupted) as error:
        if may_have_run:
            _mark(error)
        raise


def _log_in(cluster: Cluster) -> None:
    try:
        answering(cluster.client, cluster.name, cluster.log_in)
    except KeyboardInterrupt:
        raise WaitInterrupted(f"Interrupted at the login to {cluster.name}: nothing was submitted.") from None
    except TransportError as error:
        error.message += _NOTHING
        error.args = (error.message,)
        raise


def _is_large(values: api.Variables | None) -> bool:
    if not values:
        return False
    if path := values.get("file"):
        return os.path.getsize(path) > _MIN_REPORTED_BYTES
    return bool(values.get("in"))  # values of another job, whose size only the agent knows


class _UploadPrompts:
    """A request in a thread, answered after the whole transfer, and the watch over the transfer's progress."""

    def __init__(self, cluster: Cluster, path: str, body: object) -> None:
        self.is_over = threading.Event()
        self._answer: Any = None
        self._error: Exception | None = None
        threading.Thread(
            target=self._answer_prompt, args=(cluster, path, body), name="jupyter-slurm-sending", daemon=True
        ).start()

    def _answer_prompt(self, cluster: Cluster, path: str, body: object) -> None:
        try:
            self._answer = cluster.client.post(path, json=body, idempotent=True, timeout=None)
        except Exception as error:  # noqa: BLE001 - it is raised where it is waited for
            self._error = error
        self.is_over.set()

    def answer(self) -> Any:
        """Return the answer."""
        if self._error is not None:
            raise self._error
        return self._answer


def _follow_upload(cluster: Cluster, key: str, what: str, asking: _UploadPrompts) -> Any:
    """Wait for the answer, and show the progress of the transfer."""
    line, is_whole = ProgressLine(f"{what} to {cluster.name}"), False
    try:
        while not asking.is_over.wait(_CHECK_INTERVAL_S):
            with contextlib.suppress(SlurmError):  # only the answer of the request itself counts
                sending = cluster.client.get(cluster.path("jobs", key)).get("sending")
                if sending:
                    line.at(sending["done"], sending["total"])
        answer = asking.answer()
        is_whole = True
        return answer
    finally:
        line.end(is_whole=is_whole)


def _cancel_upload(cluster: Cluster, key: str, asking: _UploadPrompts) -> str | None:
    """Cancel the current or imminent transfer; return its progress, None if it was complete."""
    path, deadline = cluster.path("jobs", key), time.monotonic() + _CANCEL_TIMEOUT_S
    while True:
        try:
            if not cluster.client.get(path).get("sending"):
                return None
            sending = cluster.client.post(f"{path}/cancel").get("sending")
        except JobNotFound:  # the agent is preparing the transfer
            if asking.is_over.wait(_CHECK_INTERVAL_S) or time.monotonic() > deadline:
                return None
        except SlurmError:
            return None
        else:
            return f"after {sending['done'] / 1e6:.0f} of {sending['total'] / 1e6:.0f} MB" if sending else None
