"""Plan of a submission: the command line, script and record of a job, from the request of a front end."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from jupyter_slurm._version import __version__
from jupyter_slurm.domain.options.option_parser import OptionTable, words_of
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.scripts.script import job_script
from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.services.environments.resolver import ENVIRONMENT_HINT, PreparedEnvironment
from jupyter_slurm.services.jobdir.job_directory import FORMAT, ClusterFolder, JobFolder, script_name
from jupyter_slurm.services.jobdir.job_json_model import (
    ALWAYS_WRITTEN,
    AdviceRecord,
    CellRecord,
    EnvironmentBuildRecord,
    EnvironmentRecord,
    ImageRecord,
    JobRecordFile,
    LeaseRecord,
    OutputsRecord,
    RequestRecord,
    SessionRecord,
    ValuesRecord,
)
from jupyter_slurm.services.jobs.array_parts import ArrayPart
from jupyter_slurm.services.jobs.notebook_process import to_kernel_record
from jupyter_slurm.services.staging.staged_folders import StagedFolders
from jupyter_slurm.services.submission import launchers
from jupyter_slurm.services.submission import script_additions as sweeping
from jupyter_slurm.services.submission.effective_options import options_in_force, output_options
from jupyter_slurm.transport.base import Context

if TYPE_CHECKING:
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["Plan", "PlanRequest", "make_plan"]

_HOLDERS = {"allocation": "allocation", "session": "jupyter"}  # names of scripts that only start a runner
_ANY_PYTHON = "python3"  # of a node, for programs without other needs


@dataclass(frozen=True)
class Plan:
    """Planned submission: the command line, the script, the record and the other files of the job directory.

    ``chosen`` are the effective options, by long name. ``requests`` has the request of each component of a
    heterogeneous job, first the one that runs the script.
    """

    folder: JobFolder
    argv: list[str]
    script: bytes
    record: JobRecordFile
    chosen: Mapping[str, str | None] = field(default_factory=dict)
    requests: Sequence[Request] = ()
    values: bytes = b""
    wrapper: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class PlanRequest:
    """Input of a plan.

    Attributes
    ----------
    folder : ClusterFolder
        Folder of the future job directory.
    runner : str
        Path of the runner, for Python cells.
    table : OptionTable
        Options of the cluster's sbatch.
    asked : mapping
        Submission in the form of the API.
    context : Context
        Context in which sbatch will run.
    now : float
        Seconds since the epoch.
    version : (major, minor) or None
        Version of the cluster's sbatch.
    prepared : PreparedEnvironment or None
        Environment of the job, if requested.
    staged : StagedFolders or None
        Folders staged with the job; by default the job runs in the first one.
    user : str
        Name of the submitting user on the cluster.
    advised_memory : str or None
        Advice of the site.
    is_preemptible : bool
        False if no job of the cluster is ever preempted.
    """

    folder: ClusterFolder
    runner: str
    table: OptionTable
    asked: SubmissionRequest
    context: Context
    now: float
    version: tuple[int, int] | None = None
    prepared: PreparedEnvironment | None = None
    staged: StagedFolders | None = None
    user: str = ""
    advised_memory: str | None = None
    is_preemptible: bool = True


def make_plan(request: PlanRequest, part: ArrayPart | None = None) -> Plan:
    """Make the plan of a submission.

    Parameters
    ----------
    request : PlanRequest
        Input of the plan.
    part : ArrayPart, optional
        Part of an array, if the array is submitted in parts.

    Raises
    ------
    UsageError
        The submission is not possible.
    """
    requested, prepared = request.asked, request.prepared
    job = request.folder.job(part.key if part else requested["key"])
    options, args = list(requested.get("options") or []), list(requested.get("args") or [])
    _check_text(options + args)
    requests = options_in_force(request.table, options, requested["text"], request.context.env or {})
    chosen = dict(requests[0].chosen)
    staged = request.staged.for_job(requested, chosen) if request.staged else None
    start = _Start(job, request.runner, requested, prepared, is_local=bool(staged and staged.local))
    name, script = start.script()
    if len(requests) > 1:
        launchers.check_components(requested)
    watcher = start.watcher()
    sweep = sweeping.plan(requested, request.folder.job(requested["key"]), chosen, part, watcher, start.otherwise)
    added, outputs = output_options(job, chosen)
    limit = _time_limit(chosen.get("time"))
    added = _add_options(request, start, staged, chosen, [*added, *sweep.options], limit)
    of_part = part.options(chosen) if part else []
    given = words_of(request.table.split(options).options, lambda name: name != "quiet")  # sbatch must print the ID
    argv = ["sbatch", "--parsable", *added, *given, *of_part, job.file(name), *args]
    record = replace(
        _record(request, chosen, _Command(job, name, argv, outputs)),
        request=_repeatable(requested, options, args, request.context.cwd),
        array_tasks=part.part_tasks() if part else chosen.get("array"),
        heterogeneous=True if len(requests) > 1 else None,
        sweep=sweep.sweep,
        part=sweep.part,
        run=sweep.run,
        stage=staged.record() if staged else None,
    )
    return Plan(
        job,
        argv,
        (sweep.script or script).encode("utf-8", "surrogateescape"),
        start.complete(record, is_watched=bool(watcher)),
        chosen,
        requests,
        wrapper=prepared.wrapper() if prepared and start.is_script else (),
        files={**sweep.files, **requested.get("files", {})},
    )


@dataclass(frozen=True)
class _Command:
    """Call of sbatch: its job directory and script, and the output files of the job."""

    job: JobFolder
    script: str
    argv: list[str]
    outputs: OutputsRecord


def _record(request: PlanRequest, chosen: Mapping[str, str | None], command: _Command) -> JobRecordFile:
    """Return the part of the record that is common to all jobs."""
    return JobRecordFile(
        format=FORMAT,
        key=command.job.key,
        kind=request.asked["kind"],
        created=request.now,
        writer=__version__,
        name=chosen.get("job-name") or command.script,
        user=request.user,
        script=command.script,
        argv=command.argv,
        work_dir=_work_dir(request.context.cwd, chosen.get("chdir")),
        slurm_version=list(request.version) if request.version else None,
        array="array" in chosen,
        hold=True if "hold" in chosen else None,
        time_limit=_time_limit(chosen.get("time")),
        events=request.folder.events,
        outputs=command.outputs,
        advised=AdviceRecord(memory=request.advised_memory) if request.advised_memory else None,
        preemptible=None if request.is_preemptible else False,
        given=ALWAYS_WRITTEN,
    )


def _add_options(
    request: PlanRequest,
    start: _Start,
    staged: StagedFolders | None,
    chosen: dict[str, str | None],
    added: list[str],
    limit: int | None,
) -> list[str]:
    """Return options that are added if the user gave none; ``chosen`` receives the working directory."""
    asked, prepared = request.asked, request.prepared
    if staged and "chdir" not in chosen:
        chosen["chdir"] = staged.work_dir
        added.append(f"--chdir={staged.work_dir}")
    if prepared:
        prepared.check(chosen.get("export") or (request.context.env or {}).get("SBATCH_EXPORT"), asked["kind"])
        added += prepared.options(chosen)
    if start.is_local and "signal" not in chosen:
        added.append(f"--signal=B:USR1@{launchers.lead(limit)}")
    if asked.get("resume"):
        added += launchers.with_resume(chosen, limit, added)
    return [*_holder_options(asked, chosen), *added] if start.is_holder else [*sweeping.job_name(asked, chosen), *added]


@dataclass(frozen=True)
class _Start:
    """Start of a job: the Python and the runner file, or the unchanged script."""

    job: JobFolder
    runner: str
    request: SubmissionRequest
    prepared: PreparedEnvironment | None
    is_local: bool = False

    def __post_init__(self) -> None:
        if self.prepared is not None and self.prepared.environment.image is not None:
            launchers.check_contained(self.request, self.prepared.environment.runtime)

    @property
    def is_python(self) -> bool:
        return bool(self.request["kind"] == "python")

    @property
    def is_holder(self) -> bool:
        """Return whether the job only keeps something open: an allocation or a session."""
        return self.request["kind"] in _HOLDERS

    @property
    def is_script(self) -> bool:
        return not self.is_python and not self.is_holder

    @property
    def is_contained(self) -> bool:
        return self.prepared is not None and self.prepared.environment.image is not None

    @property
    def otherwise(self) -> str:
        """Return the alternative Python for a node without the named one, if the Python only starts the runner."""
        is_any = (
            self.is_contained
            or (self.is_local and self.is_script)
            or bool((self.request.get("session") or {}).get("command"))
        )
        return _ANY_PYTHON if is_any else ""

    def script(self) -> tuple[str, str]:
        """Return name and text of the script for sbatch."""
        asked = self.request
        if self.is_script:
            return script_name(asked.get("script_name") or asked.get("label"), "cell.sh"), asked["text"]
        python = self._python()
        if not python:
            raise UsageError("The request names no Python for the cell.", hint="Name it with python=PATH.")
        is_begun = self.is_python or self.is_contained or asked.get("resume")  # started by a helper beside the runner
        words = self._command(python, self._sibling_path() if is_begun else self.runner)
        activation = self.prepared.environment.activation() if self.prepared else ""
        name = _HOLDERS.get(asked["kind"]) or script_name(asked.get("label"), "cell.py")
        return name, job_script(words, header=asked["text"], environment=activation, otherwise=self.otherwise)

    def watcher(self) -> list[str]:
        """Return the command that wraps a script: with ``resume``, in a container, or on a node's disk."""
        if not self.is_script or not (self.request.get("resume") or self.is_contained or self.is_local):
            return []
        return self._command(self.request.get("python") or _ANY_PYTHON, self._sibling_path())

    def complete(self, record: JobRecordFile, *, is_watched: bool) -> JobRecordFile:
        """Return a record completed with the request's kind and origin."""
        asked, lease = self.request, self._lease()
        build = asked.get("environment_build")
        names = ("launcher", "resume") if self.is_python else ("resume",) if is_watched or self.is_holder else ()
        return replace(
            record,
            label=asked.get("label"),
            notebook=(asked.get("origin") or {}).get("notebook"),
            resubmitted_from=asked.get("again"),
            attempts=1,
            session=SessionRecord.from_json(asked["session"]) if asked["kind"] == "session" else None,
            lease=lease,
            kernel=to_kernel_record(asked["kernel"]) if lease and asked.get("kernel") else None,
            cell=self._cell(),
            values=self._values(),
            launcher=(asked.get("launcher") or None) if "launcher" in names else None,
            resume=(asked.get("resume") or None) if "resume" in names else None,
            image=ImageRecord.from_json(asked["image"]) if asked.get("image") else None,
            environment_build=EnvironmentBuildRecord.from_json(build) if build else None,
            copies_to=asked.get("copies_to"),
            environment=EnvironmentRecord.from_json(self.prepared.environment.as_dict()) if self.prepared else None,
        )

    def _lease(self) -> LeaseRecord | None:
        if self.request["kind"] != "allocation":
            return None
        if not self.request.get("lease"):
            raise UsageError("The request for an allocation has no lease.", hint="Update jupyter_slurm.")
        return LeaseRecord.from_json(self.request["lease"])

    def _cell(self) -> CellRecord | None:
        if not self.is_python:
            return None
        filename = self.request.get("filename") or "<cell>"
        hint = None if self.prepared or self.request.get("python") else ENVIRONMENT_HINT
        text = self.request["text"]
        return CellRecord(source=text, filename=filename, python=self._python(), environment_hint=hint)

    def _values(self) -> ValuesRecord | None:
        values = self.request.get("values")
        if not self.is_python or not values:
            return None
        return ValuesRecord(inputs=values["in"], outputs=values["out"], limit=values["limit"])

    def _python(self) -> str | None:
        asked = self.request
        return self.prepared.python if self.prepared else asked.get("python") or asked.get("default_python")

    def _sibling_path(self) -> str:
        return launchers.runner(self.runner, self.request, is_contained=self.is_contained, is_local=self.is_local)

    def _command(self, python: str, started: str) -> list[str]:
        """Return the command; if the requested Python is in a container, the node's Python starts the container."""
        on_node = (self.request.get("default_python") or _ANY_PYTHON) if self.is_contained else python
        return [on_node, "-u", started, self.job.path]


def _repeatable(asked: SubmissionRequest, options: list[str], args: list[str], cwd: str | None) -> RequestRecord:
    """Return the data to submit the same again; environment and folders are resolved again in that case."""
    python, default, stage = asked.get("python"), asked.get("default_python"), asked.get("stage") or None
    record = RequestRecord(options=options, args=args, cwd=cwd, python=python, default_python=default, stage=stage)
    return replace(record, env=asked["env"], given=record.given | {"default_python"}) if asked.get("env") else record


def _holder_options(requested: SubmissionRequest, chosen: Mapping[str, str | None]) -> list[str]:
    """Return the options for an allocation or a session: after an automatic restart it would serve nobody."""
    kind = requested["kind"]
    if "array" in chosen:
        what = "An allocation" if kind == "allocation" else f"A {kind}"
        raise OptionError(f"{what} is one job: --array cannot be used.", hint="Leave --array out.", option="--array")
    return [] if requested.get("resume") or {"requeue", "no-requeue"} & chosen.keys() else ["--no-requeue"]


def _check_text(arguments: Sequence[str]) -> None:
    for word in arguments:
        if "\0" in word:
            raise UsageError(f"The option {word!r} holds a NUL byte.", hint="Remove the NUL byte.")


def _time_limit(text: str | None) -> int | None:
    """Return the requested time limit in seconds; sbatch refuses one that is not valid."""
    try:
        return parse_time_limit(text) if text else None
    except UsageError:
        return None


def _work_dir(cwd: str | None, chosen: str | None) -> str | None:
    """Return the job's working directory: sbatch takes --chdir relative to its own."""
    return posixpath.join(cwd or "/", chosen) if chosen else cwd
