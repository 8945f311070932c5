"""``env=auto``: the environment with the packages of this notebook, made when it is first needed."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.environments.notebook_packages import notebook_packages
from jupyter_slurm.client.jobs.array import handle
from jupyter_slurm.client.jobs.upload import submit_job
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.scripts.environments import AUTOMATIC_ENVIRONMENT
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain.magic_line.parser import MagicLine

__all__ = ["automatic_environment"]

_OPTIONS: Final = ("account", "partition", "qos", "reservation")  # of the line, for the job that makes the environment
_REQUEST_KEYS: Final = ("key", "options", "origin", "context")


def automatic_environment(cluster: Cluster, parsed: MagicLine, extra: Iterable[str] = ()) -> str:
    """Return the name of the environment, after a job has made it if it does not exist.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the environment.
    parsed : MagicLine
        Line with ``env=auto``: its account, partition, QOS and reservation are those of the job.
    extra : iterable of str
        Packages that the purpose of the environment needs.

    Raises
    ------
    UsageError, SubmitRefused, JobError
        The environment cannot be made.
    """
    if "show" in parsed.keywords:
        raise UsageError(
            "`show` submits nothing, but env=auto may need a job that makes the environment.",
            hint="Make it with `%slurm env create NAME from=notebook`, and use env=NAME.",
        )
    found = notebook_packages(extra)
    text = json.dumps([found.files, found.python], sort_keys=True)
    name = f"{AUTOMATIC_ENVIRONMENT}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"
    options = [token for one in parsed.parsed.options if one.name in _OPTIONS for token in one.tokens]
    wish: dict[str, object] = {"name": name, "kind": found.kind, "source": found.source, "files": found.files}
    with Submission("script", "", options).body(cluster) as body:
        wish |= {field: value for field, value in body.items() if field in _REQUEST_KEYS}
        data = submit_job(cluster, cluster.path("environments"), {**wish, "python": found.python})
    if data["environment"]:
        return name
    for line in (f"Making the environment {name} with the packages of this notebook.", *found.notes):
        sys.stderr.write(printable(line) + "\n")
    job, shell = handle(cluster, data["job"], from_start=True), live_view.notebook()
    if shell is not None:
        job._show(shell)
    job._wait(None, check=True, echo=shell is None)
    return name
