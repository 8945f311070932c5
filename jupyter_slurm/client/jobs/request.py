"""Requests that create a job: their common fields, and their transfer."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.clusters.clients import notebook
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.upload import submit_job
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["check_lengths", "new_key", "origin", "report_warnings", "request_job"]

_LONGEST = 128 * 1024  # bytes of one argument, or one variable, with the NUL at its end


def new_key() -> str:
    """Return a key for a request that may be repeated but is executed once."""
    return time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)


def check_lengths(words: Sequence[str], variables: Mapping[str, str]) -> None:
    """Refuse arguments with which no command can start (execve(2): MAX_ARG_STRLEN)."""
    for word in words:
        if len(word.encode("utf-8", "surrogatepass")) >= _LONGEST:
            raise UsageError(
                f"{word[:20]}… is one word of more than {_LONGEST // 1024} KB, which is too long for a command line.",
                hint="Write it to a file, or send it to a Python cell with in=NAME.",
            )
    for name, value in variables.items():
        if len(f"{name}={value}".encode("utf-8", "surrogatepass")) >= _LONGEST:
            raise UsageError(
                f"The environment variable {name} is longer than {_LONGEST // 1024} KB, too long for a command.",
                hint=f"Remove or shorten it: `os.environ.pop({name!r})`.",
            )


def origin() -> api.SubmissionOrigin:
    """Return the notebook and its folder on this machine, also for a remote cluster."""
    path = notebook() or ""
    folder = os.path.dirname(path)
    if not os.path.isabs(folder):
        try:
            folder = os.getcwd()
        except FileNotFoundError:
            folder = ""
    return {"folder": folder or None, "notebook": os.path.basename(path)[:1024] or None}


def request_job(cluster: Cluster, body: api.Submission) -> Any:
    """Submit a job with sbatch, once, and return its API object.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    body : mapping
        The request ``submitJob``, with its key.

    Raises
    ------
    WaitInterrupted
        An interrupt came during the transfer of values: nothing was submitted. Or it came while sbatch was running: the
        message explains how to check.
    """
    return submit_job(cluster, cluster.path("jobs"), body, logs_in=True)


def report_warnings(data: api.Job) -> None:
    """Show why a submitted job may never run."""
    for doubt in data.get("doubts") or ():
        sys.stderr.write(printable(f"Warning: {doubt}") + "\n")
