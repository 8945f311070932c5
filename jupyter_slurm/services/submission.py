"""Handing a job to sbatch: once, whatever happens on the way.

The steps: a fresh job directory; script and record in it; one locked execution of sbatch that writes its answer there,
detached from us (``Transport.start_once``). What was not heard is read from there; what sbatch itself did not hear is
looked up in the queue by the path of the script, which no other job has.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jupyter_slurm._version import __version__
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.options import OptionTable
from jupyter_slurm.domain.request import Request
from jupyter_slurm.domain.script import header_options, job_script
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.domain.values import parse_time_limit
from jupyter_slurm.errors import OptionError, SlurmError, SubmitRefused, UsageError
from jupyter_slurm.services import launching, resuming, sweeping
from jupyter_slurm.services.chosen import options_in_force
from jupyter_slurm.services.environments import Prepared, is_failure
from jupyter_slurm.services.jobdir import FORMAT, ClusterFolder, JobFolder, dump, script_name
from jupyter_slurm.services.parts import Part
from jupyter_slurm.services.slurm import is_silence, printable, text_of
from jupyter_slurm.transport.base import Context, Once, Sent, Transport
from jupyter_slurm.transport.tunnel import door

__all__ = ["ACCEPTED", "Answer", "Plan", "answer_of", "begin", "execute", "make_plan", "read_answer", "refusal"]

ACCEPTED = JobState("PENDING")
"""The state of a job that sbatch has just accepted."""

_HOLDERS = {"allocation": "allocation", "session": "jupyter"}  # how the scripts are called that only begin a runner
_ANY_PYTHON = "python3"  # of a node, for what needs nothing else
_FAILURE = re.compile(rb"^(?:.*: )?Batch job submission failed: (.*)$", re.MULTILINE)
_ID_LINE = re.compile(rb"^(\d+)(?:;\S+)?\s*$", re.MULTILINE)


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


@dataclass(frozen=True)
class Answer:
    """What one execution of sbatch left; ``job`` is None when it printed no id, ``exit_code`` when nobody heard it."""

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    job: JobId | None
    argv: Sequence[str] = ()

    @property
    def is_clear(self) -> bool:
        """Whether it settles the matter: an id, or a no of the controller's own."""
        # 128 + n is how a wrapper in shell tells that sbatch was killed by signal n.
        refused = self.exit_code is not None and self.exit_code > 0 and not 128 < self.exit_code < 160
        return self.job is not None or (refused and not self._tells_of_silence())

    def _tells_of_silence(self) -> bool:
        """Whether no controller answered. The line of the failure decides: others repeat what the person wrote."""
        failures = _FAILURE.findall(self.stderr)
        return is_silence(failures[-1]) if failures else is_silence(self.stderr, self.argv)

    @property
    def never_arrived(self) -> bool:
        """Whether sbatch could not even connect: then the controller cannot have accepted anything."""
        failures = _FAILURE.findall(self.stderr)
        return self.job is None and bool(failures) and b"(connect failure)" in failures[-1]

    @property
    def remarks(self) -> list[str]:
        """What sbatch said beside the id: warnings, a site's messages."""
        return [printable(line) for line in text_of(self.stderr).splitlines() if line.strip()]


def make_plan(
    folder: ClusterFolder,
    runner: str,
    table: OptionTable,
    asked: Mapping[str, Any],
    context: Context,
    now: float,
    version: tuple[int, int] | None = None,
    prepared: Prepared | None = None,
    part: Part | None = None,
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
    prepared : Prepared, optional
        The environment of the job, where one was asked for.
    part : Part, optional
        Which part of an array is meant, where that is submitted in parts.

    Raises
    ------
    UsageError
        It cannot be submitted.
    """
    job, holds = folder.job(part.key if part else asked["key"]), asked["kind"] in ("allocation", "session")
    options, args = list(asked.get("options") or []), list(asked.get("args") or [])
    _check_text(options + args)
    python, is_contained = asked["kind"] == "python", prepared is not None and prepared.environment.image is not None
    is_any = is_contained or bool((asked.get("session") or {}).get("command"))  # Python is there for the runner alone
    on_node, otherwise = asked.get("default_python") or _ANY_PYTHON, _ANY_PYTHON if is_any else ""
    if is_contained:
        launching.check_contained(asked)
    header = header_options(asked["text"])
    if python or holds:
        interpreter = prepared.python if prepared else asked.get("python")
        if not interpreter:
            raise UsageError("a Python cell needs to know which Python runs it", hint="Say python=PATH.")
        is_begun = python or is_contained or asked.get("resume")  # by what lies beside the runner
        started = launching.runner(runner, asked, is_contained=is_contained) if is_begun else runner
        activation = prepared.environment.activation() if prepared else ""
        words = [on_node if is_contained else interpreter, "-u", started, job.path]
        script = job_script(words, header=asked["text"], environment=activation, otherwise=otherwise)
        name = _HOLDERS.get(asked["kind"]) or script_name(asked.get("label"), "cell.py")
    else:
        script, name = asked["text"], script_name(asked.get("script_name"), "cell.sh")
    requests = options_in_force(table, options, header, context.env or {})
    chosen = dict(requests[0].chosen)
    if len(requests) > 1:
        launching.check_components(asked)
    watcher = []
    if asked["kind"] == "script" and (asked.get("resume") or is_contained):
        begun = launching.runner(runner, asked, is_contained=is_contained)
        watcher = [on_node if is_contained else asked.get("python") or _ANY_PYTHON, "-u", begun, job.path]
    sweep = sweeping.plan(asked, folder.job(asked["key"]), chosen, part, watcher, otherwise)
    script = sweep.script or script
    of_part = part.options(chosen) if part else []
    defaults, outputs = _outputs(job, chosen)
    defaults += sweep.options
    if prepared:
        prepared.check(chosen.get("export") or (context.env or {}).get("SBATCH_EXPORT"), asked["kind"])
        defaults += prepared.options(chosen)
    limit = _time_limit(chosen.get("time"))
    if asked.get("resume"):
        defaults += resuming.with_resume(chosen, limit, defaults)
    if holds:
        defaults = [*_of_holder(asked, chosen), *defaults]
    argv = ["sbatch", "--parsable", *defaults, *options, *of_part, job.file(name), *args]
    record: dict[str, Any] = {
        "format": FORMAT,
        "key": job.key,
        "kind": asked["kind"],
        "created": now,
        "writer": __version__,
        "label": asked.get("label"),
        "name": chosen.get("job-name") or name,
        "script": name,
        "argv": argv,
        "work_dir": _work_dir(context.cwd, chosen.get("chdir")),
        "asked": {"options": options, "args": args, "cwd": context.cwd, **_environment_asked(asked)},
        "notebook": (asked.get("origin") or {}).get("notebook"),
        "resubmitted_from": asked.get("again"),
        "slurm_version": list(version) if version else None,
        "array": "array" in chosen,
        "array_tasks": part.own_tasks() if part else chosen.get("array"),
        "time_limit": limit,
        "events": folder.events,
        "outputs": outputs,
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
    if python:
        record["cell"] = {
            "source": asked["text"],
            "filename": asked.get("filename") or "<cell>",
            "python": interpreter,
        }
        if asked.get("values"):
            record["values"] = {name: asked["values"][name] for name in ("in", "out", "limit")}
    names = ("launcher", "resume") if python else ("resume",) if watcher or holds else ()
    record |= {name: asked[name] for name in names if asked.get(name)}
    record |= sweep.record
    wrapper: tuple[str, ...] = ()
    if prepared:
        record["environment"] = prepared.environment.as_dict()
        wrapper = () if python or holds else prepared.wrapper()
    text = script.encode("utf-8", "surrogateescape")
    if len(requests) > 1:
        record["heterogeneous"] = True
    return Plan(job, argv, text, record, chosen, requests, wrapper=wrapper, files=sweep.files)


def _environment_asked(asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was said of the environment, which is looked for anew when the job is submitted again."""
    names = ("python", "env", "default_python") if asked.get("env") else ("python",)
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


async def execute(transport: Transport, plan: Plan, context: Context, attempt: int, timeout: float) -> Answer | None:
    """Execute sbatch once more; None when its answer is not known within ``timeout`` seconds (it may still come)."""
    try:
        once = await transport.start_once(plan.folder.answer(attempt), [*plan.wrapper, *plan.argv], context=context)
    except FileExistsError:
        return None  # it was executed before, by us or by another agent: what it left is looked at
    return await answer_of(once, plan, timeout)


async def begin(transport: Transport, plan: Plan, context: Context, sent: Sent) -> Once:
    """Make the job directory and execute sbatch, in one step; FileExistsError when the directory is there already."""
    files = {plan.record["script"]: plan.script, "job.json": dump(plan.record), **plan.files}
    if plan.values:
        files["in.values"] = plan.values
    if (plan.record.get("session") or {}).get("node_ports"):
        files[door.NAME] = door.new_pem()
    argv = [*plan.wrapper, *plan.argv]
    return await transport.start_once(plan.folder.answer(1), argv, files=files, context=context, sent=sent)


async def answer_of(once: Once, plan: Plan, timeout: float) -> Answer | None:
    """Return what sbatch said; None when that is not known within ``timeout`` seconds (it may still come)."""
    done = await once.result(timeout)
    return None if done is None else _answer(done.exit_code, done.stdout, done.stderr, plan.argv)


async def read_answer(transport: Transport, folder: JobFolder, attempt: int) -> Answer | None:
    """Read what an execution of sbatch left whose exit code nobody heard; None: it never began."""
    try:
        out = await transport.read(folder.answer(attempt) + ".out")
        err = await transport.read(folder.answer(attempt) + ".err")
    except FileNotFoundError:
        return None
    return _answer(None, out, err)


def _answer(code: int | None, out: bytes, err: bytes, argv: Sequence[str] = ()) -> Answer:
    found = _ID_LINE.findall(out)
    has_taken = found and (code is None or code <= 0)  # killed, it had said it before
    return Answer(code, out, err, JobId(int(found[-1])) if has_taken else None, argv)


def refusal(answer: Answer, argv: Sequence[str], known: str = "") -> SlurmError:
    """Return what sbatch's own no means for the person; ``known`` is what we knew against the job."""
    said = "\n".join(line.removeprefix("sbatch: error: ") for line in answer.remarks) or f"exit code {answer.exit_code}"
    if is_failure(answer.exit_code, said):
        return UsageError(f"Not submitted: {said}", hint="`module avail` there lists what can be loaded.")
    said = re.sub(r"^Batch job submission failed: ", "", said, flags=re.MULTILINE)
    return SubmitRefused(
        f"sbatch refused the job: {said}",
        hint=known or _hint(said),
        argv=list(argv),
        exit_code=answer.exit_code,
        stderr=printable(text_of(answer.stderr)),
    )


def _hint(said: str) -> str:
    rules = [
        (
            "accounting/qos policy",
            "`%sacctmgr show associations user=$USER` and `%sacctmgr show qos` show your limits.",
        ),
        ("partition", "`%sinfo -s` lists the partitions and their limits."),
        ("account", "`%sacctmgr show associations user=$USER` lists your accounts; say `-A NAME`."),
        ("qos", "`%sacctmgr show qos` lists the QOS; `%sacctmgr show associations` those you may use."),
        (
            "node configuration",
            "No node of its partition is what the job asks for: `%sinfo -o '%P %N %c %m %G'` shows what they have.",
        ),
        ("generic resource", "`%sinfo -o '%P %G'` shows the GPU types of each partition."),
        ("time limit", "`%sinfo -s` shows each partition's limit; ask for less with --time."),
        ("memory", "Ask for less with --mem; `%sinfo -o '%P %m'` shows what the nodes have (MB)."),
        ("dependency", "The job it depends on must be in the queue: `%squeue --me`."),
        ("reservation", "`%scontrol show reservation` lists the reservations."),
        ("constraint", "`%sinfo -o '%P %f'` shows the features of the nodes."),
        ("feature", "`%sinfo -o '%P %f'` shows the features of the nodes."),
        (
            "array specification",
            "Is it a list of tasks as in --array=0-99,120%5? The cluster's MaxArraySize (`%scontrol show config`) may "
            "have changed, too: run the cell again.",
        ),
        ("limit", "`%sacctmgr show associations user=$USER` shows the limits that apply to you."),
    ]
    low = said.lower()
    return next((hint for sign, hint in rules if sign in low), "`%%sbatch?` shows the options and examples.")
