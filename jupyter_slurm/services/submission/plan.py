"""What a submission means: from what a front door asks for to the command line, script and record of a job."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_slurm._version import __version__
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.scripts.script import header_options, job_script
from jupyter_slurm.domain.slurm_values import parse_time_limit
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.services.environments.resolver import PreparedEnvironment
from jupyter_slurm.services.jobdir.job_directory import FORMAT, ClusterFolder, JobFolder, script_name
from jupyter_slurm.services.jobs.array_parts import ArrayPart
from jupyter_slurm.services.jobs.notebook_process import kernel_dict
from jupyter_slurm.services.staging.manager import StagedFolders
from jupyter_slurm.services.submission import launchers, resume
from jupyter_slurm.services.submission import sweep as sweeping
from jupyter_slurm.services.submission.effective_options import options_in_force
from jupyter_slurm.transport.base import Context

__all__ = ["Plan", "make_plan"]

_HOLDERS = {"allocation": "allocation", "session": "jupyter"}  # how the scripts are called that only begin a runner
_ANY_PYTHON = "python3"  # of a node, for what needs nothing else


@dataclass(frozen=True)
class Plan:
    """What would be submitted: the command line, the script, the record of the job directory and what else is in it.

    ``chosen`` are the options in force, by long name; ``requests`` what each component of a heterogeneous job asks for,
    the one that runs the script first.
    """

    folder: JobFolder
    argv: list[str]
    script: bytes
    record: dict[str, Any]
    chosen: Mapping[str, str | None] = field(default_factory=dict)
    requests: Sequence[Request] = ()
    values: bytes = b""
    wrapper: tuple[str, ...] = ()
    files: Mapping[str, bytes] = field(default_factory=dict)


def make_plan(
    folder: ClusterFolder,
    runner: str,
    table: OptionTable,
    asked: Mapping[str, Any],
    context: Context,
    now: float,
    version: tuple[int, int] | None = None,
    prepared: PreparedEnvironment | None = None,
    part: ArrayPart | None = None,
    staged: StagedFolders | None = None,
) -> Plan:
    """Work out what a submission means.

    Parameters
    ----------
    folder : ClusterFolder
        Where the job directory will be.
    runner : str
        Path of the runner, for Python cells.
    table : OptionTable
        The options of sbatch there.
    asked : mapping
        The submission as the API has it.
    context : Context
        The circumstances in which sbatch will run.
    now : float
        Seconds since the epoch.
    version : (major, minor), optional
        Of sbatch there.
    prepared : PreparedEnvironment, optional
        The environment of the job, where one was asked for.
    part : ArrayPart, optional
        Which part of an array is meant, where that is submitted in parts.
    staged : StagedFolders, optional
        The folders that travel with it; it runs in the first one, where nobody says otherwise.

    Raises
    ------
    UsageError
        It cannot be submitted.
    """
    job = folder.job(part.key if part else asked["key"])
    options, args = list(asked.get("options") or []), list(asked.get("args") or [])
    _check_text(options + args)
    requests = options_in_force(table, options, header_options(asked["text"]), context.env or {})
    chosen = dict(requests[0].chosen)
    staged = staged.of(asked, chosen) if staged else None
    start = _Start(job, runner, asked, prepared, is_local=bool(staged and staged.local))
    name, script = start.script()
    if len(requests) > 1:
        launchers.check_components(asked)
    watcher = start.watcher()
    sweep = sweeping.plan(asked, folder.job(asked["key"]), chosen, part, watcher, start.otherwise)
    defaults, outputs = _outputs(job, chosen)
    defaults += sweep.options
    if staged and "chdir" not in chosen:
        chosen["chdir"] = staged.work_dir
        defaults.append(f"--chdir={staged.work_dir}")
    if prepared:
        prepared.check(chosen.get("export") or (context.env or {}).get("SBATCH_EXPORT"), asked["kind"])
        defaults += prepared.options(chosen)
    limit = _time_limit(chosen.get("time"))
    if start.is_local and "signal" not in chosen:
        defaults.append(f"--signal=B:USR1@{resume.lead(limit)}")
    if asked.get("resume"):
        defaults += resume.with_resume(chosen, limit, defaults)
    if start.is_holder:
        defaults = [*_of_holder(asked, chosen), *defaults]
    of_part = part.options(chosen) if part else []
    record = {
        "format": FORMAT,
        "key": job.key,
        "kind": asked["kind"],
        "created": now,
        "writer": __version__,
        "name": chosen.get("job-name") or name,
        "script": name,
        "argv": ["sbatch", "--parsable", *defaults, *options, *of_part, job.file(name), *args],
        "work_dir": _work_dir(context.cwd, chosen.get("chdir")),
        "asked": {"options": options, "args": args, "cwd": context.cwd, **_asked_beside(asked)},
        "slurm_version": list(version) if version else None,
        "array": "array" in chosen,
        "array_tasks": part.own_tasks() if part else chosen.get("array"),
        "time_limit": limit,
        "events": folder.events,
        "outputs": outputs,
        **start.record(is_watched=bool(watcher)),
        **sweep.record,
        **({"stage": staged.record()} if staged else {}),
    }
    if len(requests) > 1:
        record["heterogeneous"] = True
    return Plan(
        job,
        record["argv"],
        (sweep.script or script).encode("utf-8", "surrogateescape"),
        record,
        chosen,
        requests,
        wrapper=prepared.wrapper() if prepared and start.is_script else (),
        files={**sweep.files, **asked.get("files", {})},
    )


@dataclass(frozen=True)
class _Start:
    """How a job begins: which Python runs which of the runner's files, or the script as it is."""

    job: JobFolder
    runner: str
    asked: Mapping[str, Any]
    prepared: PreparedEnvironment | None
    is_local: bool = False

    def __post_init__(self) -> None:
        if self.is_contained:
            launchers.check_contained(self.asked)

    @property
    def is_python(self) -> bool:
        return bool(self.asked["kind"] == "python")

    @property
    def is_holder(self) -> bool:
        """Whether it only keeps something open: an allocation, a session."""
        return self.asked["kind"] in _HOLDERS

    @property
    def is_script(self) -> bool:
        return not self.is_python and not self.is_holder

    @property
    def is_contained(self) -> bool:
        return self.prepared is not None and self.prepared.environment.image is not None

    @property
    def otherwise(self) -> str:
        """The Python where a node lacks the one that is named: only where it is there for the runner alone."""
        is_any = (
            self.is_contained
            or (self.is_local and self.is_script)
            or bool((self.asked.get("session") or {}).get("command"))
        )
        return _ANY_PYTHON if is_any else ""

    def script(self) -> tuple[str, str]:
        """Return how the script is called that sbatch gets, and its text."""
        asked = self.asked
        if self.is_script:
            return script_name(asked.get("script_name"), "cell.sh"), asked["text"]
        python = self._python()
        if not python:
            raise UsageError("a Python cell needs to know which Python runs it", hint="Say python=PATH.")
        is_begun = self.is_python or self.is_contained or asked.get("resume")  # by what lies beside the runner
        words = self._words(python, self._beside() if is_begun else self.runner)
        activation = self.prepared.environment.activation() if self.prepared else ""
        name = _HOLDERS.get(asked["kind"]) or script_name(asked.get("label"), "cell.py")
        return name, job_script(words, header=asked["text"], environment=activation, otherwise=self.otherwise)

    def watcher(self) -> list[str]:
        """Return what runs a script that is not simply Slurm's: with ``resume``, in a container, on a node's disk."""
        if not self.is_script or not (self.asked.get("resume") or self.is_contained or self.is_local):
            return []
        return self._words(self.asked.get("python") or _ANY_PYTHON, self._beside())

    def record(self, *, is_watched: bool) -> dict[str, Any]:
        """Return what is recorded of the request as it was made."""
        asked = self.asked
        record: dict[str, Any] = {
            "label": asked.get("label"),
            "notebook": (asked.get("origin") or {}).get("notebook"),
            "resubmitted_from": asked.get("again"),
            "attempts": 1,
            "job": None,
            "end": None,
        }
        if asked["kind"] == "session":
            record["session"] = asked["session"]
        if asked["kind"] == "allocation":
            if not asked.get("lease"):
                raise UsageError("an allocation needs a lease: after how long without use it ends")
            record["lease"] = asked["lease"]
            record |= {"kernel": kernel_dict(asked["kernel"])} if asked.get("kernel") else {}
        if self.is_python:
            filename = asked.get("filename") or "<cell>"
            record["cell"] = {"source": asked["text"], "filename": filename, "python": self._python()}
        if self.is_python and asked.get("values"):
            record["values"] = {name: asked["values"][name] for name in ("in", "out", "limit")}
        names = ("launcher", "resume") if self.is_python else ("resume",) if is_watched or self.is_holder else ()
        record |= {name: asked[name] for name in names if asked.get(name)}
        if asked.get("image"):
            record["image"] = asked["image"]
        if self.prepared:
            record["environment"] = self.prepared.environment.as_dict()
        return record

    def _python(self) -> str | None:
        return self.prepared.python if self.prepared else self.asked.get("python")

    def _beside(self) -> str:
        return launchers.runner(self.runner, self.asked, is_contained=self.is_contained, is_local=self.is_local)

    def _words(self, python: str, started: str) -> list[str]:
        """Return the command; where a container has the Python that is meant, the node's begins the container."""
        on_node = (self.asked.get("default_python") or _ANY_PYTHON) if self.is_contained else python
        return [on_node, "-u", started, self.job.path]


def _asked_beside(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was said of environment and folders, which are looked for anew when the job is submitted again."""
    names = [
        "python",
        *(("env", "default_python") if asked.get("env") else ()),
        *(("stage",) if asked.get("stage") else ()),
    ]
    return {name: asked.get(name) for name in names}


def _of_holder(asked: Mapping[str, Any], chosen: Mapping[str, str | None]) -> list[str]:
    """Return what is added for an allocation or a session: begun again by itself, it would be there for nobody."""
    kind = asked["kind"]
    if "array" in chosen:
        what = "an allocation" if kind == "allocation" else f"a {kind}"
        raise OptionError(f"{what} is one job: --array has no place here", option="--array")
    return [] if asked.get("resume") or {"requeue", "no-requeue"} & chosen.keys() else ["--no-requeue"]


def _check_text(words: Sequence[str]) -> None:
    for word in words:
        if "\0" in word:
            raise UsageError(f"a NUL byte cannot be part of a command line: {word!r}", hint="Take it out.")


def _time_limit(text: str | None) -> int | None:
    """Return the limit that was asked for, in seconds; sbatch refuses what is none."""
    try:
        return parse_time_limit(text) if text else None
    except UsageError:
        return None


def _work_dir(cwd: str | None, chosen: str | None) -> str | None:
    """Return the job's working directory: sbatch takes --chdir relative to its own."""
    return posixpath.join(cwd or "/", chosen) if chosen else cwd


def _outputs(job: JobFolder, chosen: Mapping[str, str | None]) -> tuple[list[str], dict[str, str | None]]:
    """Add places for the output where the person is silent; return the options to add and the patterns in force."""
    task = ".%a" if "array" in chosen else ""
    if "output" in chosen:
        output = chosen["output"]
        return [], {"stdout": output, "stderr": chosen.get("error") or output}
    added, outputs = [], {"stdout": job.file("stdout") + task, "stderr": chosen.get("error")}
    added.append(f"--output={_literal(job.file('stdout'))}{task}")
    if "error" not in chosen:
        outputs["stderr"] = job.file("stderr") + task
        added.append(f"--error={_literal(job.file('stderr'))}{task}")
    if "open-mode" not in chosen:
        added.append("--open-mode=append")  # a requeue would truncate what was printed before
    return added, outputs


def _literal(path: str) -> str:
    """Write a path into a filename pattern; a backslash would switch patterns off and cannot be written."""
    if "\\" in path:
        raise UsageError(
            f"job directories cannot lie below {posixpath.dirname(path)}: a backslash is in the name",
            hint="Name another folder: c.Settings.job_root here, job_root in the profile of a cluster behind SSH.",
        )
    return path.replace("%", "%%")
