"""Submission of a script or a Python cell through the agent."""

from __future__ import annotations

import contextlib
import inspect
import os
import re
import shlex
import shutil
import sys
from collections.abc import Callable, Container, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.client.clusters.cluster import Cluster, context
from jupyter_slurm.client.jobs.array import handle
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.request import check_lengths, new_key, origin, report_warnings, request_job
from jupyter_slurm.client.jobs.upload import submit_once
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.domain.scripts.script import RUNNER_NAMES

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.in_out_variables import PackedVariables
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.scripts.sweep_parameters import Sweep

__all__ = ["Preview", "Submission", "preview", "python_named", "runner_names", "submit"]


@dataclass(frozen=True)
class Submission:
    """A job or step that the user wants to run.

    Attributes
    ----------
    kind : str
        ``script`` (unchanged), ``python``, ``allocation``; of a step also ``command``, ``process``.
    text : str
        The cell, or the content of the file; may be empty.
    options, args : sequences of str
        Options of sbatch, for a step those of srun; arguments of the script, or the words of the command.
    python : str or None
        The interpreter on the node, for a cell, for the holder of an allocation and for a process.
    filename : str or None
        Filename of the cell in tracebacks.
    script_name : str or None
        Name of the script, and thus of the job.
    values : PackedVariables or None
        The variables to send with a Python cell.
    sweep : Sweep or None
        The parameters of the tasks of an array.
    env : str or None
        The environment of the job, by name or folder, or an image.
    default_python : str or None
        The interpreter if neither ``python`` nor the environment names one; it starts containers.
    resume : int or None
        Maximum number of restarts after preemption, time limit or node failure; None: no restart.
    launcher : str or None
        Launcher of a Python cell for each task of the job: ``srun``, ``torchrun``, ``mpi``; or once, with a Ray
        cluster: ``ray``; None: the cell runs once.
    stage : mapping or None
        Folders to stage, as an API object.
    label : str or None
        Displayed name of a cell's job, unless an option names the job.
    node_variables : sequence of (int, int) or None
        Of a command: where ``args`` have variables that only the node has, as word and character.
    cwd : str or None
        Directory of the cluster from which sbatch is called; None: the working directory of this process, or the
        default one of a remote cluster.
    """

    kind: str
    text: str
    options: Sequence[str] = ()
    args: Sequence[str] = ()
    python: str | None = None
    filename: str | None = None
    script_name: str | None = None
    values: PackedVariables | None = None
    sweep: Sweep | None = None
    env: str | None = None
    default_python: str | None = None
    resume: int | None = None
    launcher: str | None = None
    stage: api.Stage | None = None
    label: str | None = None
    node_variables: Sequence[tuple[int, int]] | None = None
    cwd: str | None = None

    @contextlib.contextmanager
    def body(self, cluster: Cluster) -> Iterator[api.Submission]:
        """Return the request with a key of its own: it may be repeated without a second job."""
        with self.values.on_disk() if self.values else contextlib.nullcontext() as values:
            yield self._body(cluster, values)

    def _body(self, cluster: Cluster, values: api.Variables | None) -> api.Submission:
        named = {
            "python": self.python,
            "filename": self.filename,
            "script_name": self.script_name,
            "values": values,
            "sweep": self.sweep.as_dict() if self.sweep else None,
            "env": self.env,
            "default_python": self.default_python,
            "resume": self.resume,
            "launcher": self.launcher,
            "stage": self.stage,
            "label": self.label,
            "node_variables": self.node_variables,
        }
        around = context(cluster)
        if self.cwd is not None:
            around = {**around, "cwd": self.cwd}
        check_lengths((*self.options, *self.args), around.get("env") or {})
        request = {
            "key": new_key(),
            "kind": self.kind,
            "text": self.text,
            "options": list(self.options),
            "args": list(self.args),
            "context": around,
            "origin": origin(),
            **{name: value for name, value in named.items() if value is not None},
        }
        return cast("api.Submission", request)


class Preview:
    """Preview of a submission.

    Attributes
    ----------
    argv : list of str
        The command line.
    script : str
        The batch script.
    source : str or None
        The Python cell that the script runs; None if there is only the script.
    warnings : list of str
        Warnings about the request on this machine.
    doubts : list of str
        Reasons why the cluster would refuse the job, or never run it.
    """

    def __init__(self, data: api.Preview, source: str | None = None) -> None:
        self.argv: list[str] = list(data["argv"])
        self.script: str = data["script"]
        self.source = source
        self.warnings: list[str] = list(data.get("warnings") or [])
        self.feasibility_warnings: list[str] = list(data.get("doubts") or [])

    def __repr__(self) -> str:
        warnings = [f"# Warning: {text}" for text in (*self.warnings, *self.feasibility_warnings)]
        cell = [] if self.source is None else ["", "# The cell that it runs:", self.source.rstrip("\n")]
        return printable("\n".join([*warnings, shlex.join(self.argv), "", self.script.rstrip("\n"), *cell]))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def python_named(name: str | None, cluster: Cluster) -> str:
    """Return the interpreter that the user names, else that of this process, or of the remote host.

    A ``~`` is the user's home on the host of the job.
    """
    if cluster.is_remote:
        path = name or cluster.python
        return cluster.home_folder() + path[1:] if path.startswith("~/") else path
    if not name:
        return sys.executable
    path = shutil.which(os.path.expanduser(name)) or os.path.expanduser(name)
    return path if os.path.isabs(path) else os.path.abspath(path)


def preview(cluster: Cluster, submission: Submission) -> Preview:
    """Return a preview of a submission; nothing is submitted."""
    with submission.body(cluster) as body:
        data = submit_once(cluster, cluster.path("jobs"), {**body, "dry_run": True}, logs_in=True)
    return Preview(data, submission.text if submission.kind == "python" else None)


def submit(cluster: Cluster, submission: Submission, *, notify: Callable[[api.Job], None] | None = None) -> Job:
    """Submit, once.

    Parameters
    ----------
    cluster, submission
        Cluster and submission.
    notify : callable, optional
        Function that shows warnings about the submitted job; by default they are printed.

    Raises
    ------
    UsageError, SubmitRefused
        Nothing was submitted.
    WaitInterrupted
        An interrupt came during the transfer of values: nothing was submitted. Or it came while sbatch was running: the
        message explains how to check.
    """
    with submission.body(cluster) as body:
        data = request_job(cluster, body)
    (notify or report_warnings)(data)
    return handle(cluster, data, from_start=True)


def runner_names(cell: str, shell: Any) -> Container[str] | None:
    """Return the names to check in the cell of a job; None for a single line such as ``ls -l``, a magic on the node.

    Parameters
    ----------
    cell : str
        The cell.
    shell : InteractiveShell or None
        IPython of this process. Its extensions, aliases and own magics are not on the node.
    """
    lines = cell.lstrip().splitlines()  # IPython takes a cell with a blank line at its end for Python
    first = re.match(r"\w+", lines[0]) if len(lines) == 1 else None
    magic = shell.find_line_magic(first[0]) if shell is not None and first else None
    if magic is None or first is None:
        return RUNNER_NAMES
    from IPython.core.alias import default_aliases  # the command line does without IPython

    is_alias = first[0] in {"ed", "hist", "rep", *(name for name, _ in default_aliases())}
    is_of_ipython = is_alias or (inspect.ismethod(magic) and magic.__module__.startswith("IPython."))
    return None if is_of_ipython else RUNNER_NAMES
