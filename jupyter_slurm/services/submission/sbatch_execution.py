"""Execution of sbatch for a job: exactly once, despite failures.

The steps: a new job directory; script and record in it; one locked execution of sbatch that writes its answer there,
detached from the agent (``Transport.start_detached``). A lost answer is read from the directory. If sbatch itself got
no answer, the queue is searched for the path of the script, which is unique.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import (
    ControllerError,
    OptionError,
    SlurmError,
    SubmissionUnknown,
    SubmitRefused,
    UsageError,
)
from jupyter_slurm.runner.allocation.input_variables import ENVIRONMENT, blamed_variables
from jupyter_slurm.services.environments.resolver import is_failure
from jupyter_slurm.services.inventory.facts import FeasibilityWarnings
from jupyter_slurm.services.jobdir.job_directory import JobFolder, dump
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.slurm.unreachable_controller import is_silence
from jupyter_slurm.services.submission.sbatch_plan import Plan
from jupyter_slurm.transport.base import Context, DetachedRun, Sent, Transport

__all__ = [
    "ACCEPTED",
    "SbatchAnswer",
    "absence",
    "await_answer",
    "awaited",
    "execute",
    "foreign_cluster_error",
    "read_answer",
    "refusal",
    "start_sbatch",
    "start_unless_taken",
    "withdrawal",
]

ACCEPTED = JobState("PENDING")
"""State of a job that sbatch has just accepted."""

_FAILURE = re.compile(rb"^(?:.*: )?Batch job submission failed: (.*)$", re.MULTILINE)
_MAX_VALUE_LENGTH, _SHOWN_LENGTH = 1024, 60  # characters
_MAX_ANSWER_BYTES = 1 << 20  # bytes; sbatch prints little, and the job may write there, too
_MAX_JOB_ID = 0xFFFFFFFF  # 32 bits in Slurm; of a federation, the upper ones name the cluster
_ID_LINE = re.compile(rb"^(?:Submitted batch job )?(\d{1,10})(?:;(\S+)| on cluster (\S+))?\s*$", re.MULTILINE)

# Part of a message of sbatch in lower case, and the hint; the first that fits counts.
_HINTS = (
    (
        "authentication error",
        "MUNGE, which proves your identity to Slurm, does not work on this login node. Tell the administrators, or use "
        "another login node.",
    ),
    ("accounting/qos policy", "`%sacctmgr show associations user=$USER` and `%sacctmgr show qos` show your limits."),
    ("partition", "`%sinfo -s` lists the partitions and their limits."),
    ("account", "Choose an account with `-A NAME`. `%sacctmgr show associations user=$USER` lists yours."),
    (
        "qos",
        "Choose another QOS. `%sacctmgr show qos` lists them, `%sacctmgr show associations` those that you may use.",
    ),
    (
        "node configuration",
        "No node of the partition has what the job asks for. `%sinfo -o '%P %N %c %m %G'` shows what the nodes have.",
    ),
    ("generic resource", "`%sinfo -o '%P %G'` shows the GPU types of each partition."),
    ("time limit", "Ask for less with --time. `%sinfo -s` shows the limit of each partition."),
    ("memory", "Ask for less with --mem. `%sinfo -o '%P %m'` shows what the nodes have (MB)."),
    ("dependency", "Name a job that is in the queue: `%squeue --me` lists yours."),
    ("reservation", "`%scontrol show reservation` lists the reservations."),
    ("constraint", "`%sinfo -o '%P %f'` shows the features of the nodes."),
    ("feature", "`%sinfo -o '%P %f'` shows the features of the nodes."),
    ("node name", "`%sinfo -N` lists the nodes."),
    ("license", "`%scontrol show licenses` lists the licenses."),
    (
        "array specification",
        "Write a list of tasks like --array=0-99,120%5. A job with components (`:`, hetjob) cannot be an array. If "
        "MaxArraySize of the cluster (`%scontrol show config`) has changed, run the cell again.",
    ),
    ("limit", "`%sacctmgr show associations user=$USER` shows the limits that apply to you."),
)

# Words of a refusal that blame one option, and its long name.
_BLAMED = (
    ("--time", "time"),
    ("time limit", "time"),
    ("--mem", "mem"),
    ("memory", "mem"),
    ("--gpus", "gpus"),
    ("generic resource", "gpus"),
    ("gres", "gpus"),
    ("--cpus-per-task", "cpus-per-task"),
    ("cpu count", "cpus-per-task"),
    ("qos", "qos"),
    ("account", "account"),
    ("partition", "partition"),
    ("job-name", "job-name"),
)


@dataclass(frozen=True)
class SbatchAnswer:
    """Answer of one execution of sbatch.

    Attributes
    ----------
    exit_code : int or None
        None if it was lost.
    job : JobId or None
        None without an ID, and if more than one number could be the ID.
    cluster : str
        Cluster of the job, if sbatch named one: it does so for ``--clusters``.
    is_ambiguous : bool
        Whether more than one number of the output could be the ID: banners of a site have numbers, too.
    """

    exit_code: int | None
    stdout: bytes
    stderr: bytes
    job: JobId | None
    argv: Sequence[str] = ()
    cluster: str = ""
    is_ambiguous: bool = False

    @property
    def is_clear(self) -> bool:
        """Return whether the answer is final: an ID, or a refusal by the controller."""
        # 128 + n is a shell wrapper's exit code after signal n killed sbatch.
        refused = self.exit_code is not None and self.exit_code > 0 and not 128 < self.exit_code < 160
        return self.job is not None or (refused and not self._is_controller_silent())

    def _is_controller_silent(self) -> bool:
        """Return whether no controller answered. The error's line decides: other lines may repeat the user's text."""
        failures = _FAILURE.findall(self.stderr)
        return is_silence(failures[-1]) if failures else is_silence(self.stderr, self.argv)

    @property
    def is_unsent(self) -> bool:
        """Return whether sbatch could not even connect: the controller cannot have accepted anything."""
        failures = _FAILURE.findall(self.stderr)
        return self.job is None and bool(failures) and b"(connect failure)" in failures[-1]

    @property
    def remarks(self) -> list[str]:
        """Return sbatch's output besides the ID: warnings, messages of the site."""
        return [printable(line) for line in decode_output(self.stderr).splitlines() if line.strip()]


async def execute(
    transport: Transport, plan: Plan, context: Context, attempt: int, timeout: float
) -> SbatchAnswer | None:
    """Execute sbatch again; return None if its answer is unknown after ``timeout`` seconds (it may still come)."""
    try:
        once = await transport.start_detached(plan.folder.answer(attempt), [*plan.wrapper, *plan.argv], context=context)
    except FileExistsError:
        return None  # executed before, by this or another agent: its answer is read from the directory
    return await await_answer(once, plan, timeout)


async def start_sbatch(transport: Transport, plan: Plan, context: Context, sent: Sent) -> DetachedRun:
    """Make the job directory and execute sbatch, in one step; raise FileExistsError if the directory exists."""
    files = {plan.record.script: plan.script, "job.json": dump(plan.record.to_json()), **plan.files}
    if plan.values:
        files["in.values"] = plan.values
    if plan.record.session is not None and plan.record.session.node_ports:
        from jupyter_slurm.transport.tunnel import accepted_peer

        files[accepted_peer.NAME] = accepted_peer.new_pem()
    argv = [*plan.wrapper, *plan.argv]
    return await transport.start_detached(plan.folder.answer(1), argv, files=files, context=context, sent=sent)


async def start_unless_taken(transport: Transport, plan: Plan, context: Context, sent: Sent) -> DetachedRun | None:
    """Make the job directory and execute sbatch; None: another agent has made the directory."""
    try:
        return await start_sbatch(transport, plan, context, sent)
    except FileExistsError:
        pass
    try:
        if "job.json" in await transport.list_dir(plan.folder.path):
            return None
    except FileNotFoundError:  # sbatch has refused the job meanwhile
        pass
    # An older version died while creating this folder: before it wrote job.json, so before it ran sbatch.
    await transport.remove(plan.folder.path)
    return await start_sbatch(transport, plan, context, sent)


async def await_answer(run: DetachedRun, plan: Plan, timeout: float) -> SbatchAnswer | None:
    """Return the answer of sbatch; None if unknown after ``timeout`` seconds (it may still come)."""
    done = await run.result(timeout)
    return None if done is None else _answer(done.exit_code, done.stdout, done.stderr, plan.argv)


async def read_answer(transport: Transport, folder: JobFolder, attempt: int) -> SbatchAnswer | None:
    """Read the answer of an execution of sbatch whose exit code was lost; None while sbatch lives.

    It is read under its lock, so it is never incomplete.

    Raises
    ------
    FileNotFoundError
        sbatch never started.
    """
    held = await transport.acquire_lock(folder.answer(attempt) + ".out")
    if held is None:
        return None
    try:
        out = await transport.read(folder.answer(attempt) + ".out", 0, _MAX_ANSWER_BYTES)
        err = await transport.read(folder.answer(attempt) + ".err", 0, _MAX_ANSWER_BYTES)
    finally:
        held.release()
    return _answer(None, out, err)


def _answer(code: int | None, out: bytes, err: bytes, argv: Sequence[str] = ()) -> SbatchAnswer:
    found = _ID_LINE.findall(out) if code is None or code <= 0 else []  # killed after its answer
    found = [each for each in found if 0 < int(each[0]) <= _MAX_JOB_ID]
    numbers = {int(number) for number, *_ in found}
    is_ambiguous = len(numbers) > 1
    job = JobId(numbers.pop()) if len(numbers) == 1 else None
    cluster = next((decode_output(named or other) for _, named, other in found if named or other), "")
    return SbatchAnswer(code, out, err, job, argv, cluster, is_ambiguous)


def withdrawal() -> SlurmError:
    """Return the error of a submission whose job directory is missing."""
    return SubmitRefused(
        "The job was not submitted: it has no job directory, because the connection failed "
        "before, or another agent has removed the directory.",
        hint="Run the cell again.",
    )


def foreign_cluster_error(job: JobId, cluster: str, configuration: Mapping[str, str]) -> SlurmError | None:
    """Return the error of a job that sbatch has put on another cluster; its number means another job on this one."""
    if cluster.lower() == configuration.get("ClusterName", "").lower():
        return None
    name = printable(cluster)
    return SubmitRefused(
        f"sbatch put the job on cluster {name}, as job {job}. It is not followed.",
        hint=f"`%scancel -M {name} {job}` cancels it. Leave out --clusters, and unset SBATCH_CLUSTERS.",
    )


def awaited(trouble: str = "", *, is_cancelled: bool) -> SlurmError:
    """Return the error of a submission whose answer is still awaited, with the trouble on the way to it."""
    if is_cancelled:
        said = "sbatch has not answered yet. The job is cancelled as soon as it is found in the queue."
        return SubmissionUnknown(said, hint=trouble)
    return SubmissionUnknown(
        "sbatch has not answered yet. jupyter_slurm is checking whether the job is in the queue"
        + (f" ({trouble})." if trouble else "."),
        hint="Do not submit the job again. It will be found as soon as the controller answers.",
    )


def absence(answer: SbatchAnswer | None) -> SlurmError:
    """Return the error of a submission whose job is proved not to exist."""
    said = ("; ".join(answer.remarks) if answer else "") or "sbatch ended without an answer"
    return ControllerError(
        f"The job is not in the queue ({said}).",
        hint="Run the cell again: there are no traces of a run.",
    )


def refusal(
    answer: SbatchAnswer,
    argv: Sequence[str],
    known: FeasibilityWarnings | None = None,
    env: Mapping[str, str] | None = None,
) -> SlurmError:
    """Return the error of a refusal by sbatch.

    Parameters
    ----------
    answer : SbatchAnswer
        Answer of sbatch.
    argv : sequence of str
        Its command line.
    known : FeasibilityWarnings, optional
        Reasons known before.
    env : mapping, optional
        Its environment. A variable that sbatch reads in place of an option is named if the refusal fits it.
    """
    said = "\n".join(line.removeprefix("sbatch: error: ") for line in answer.remarks) or f"exit code {answer.exit_code}"
    if is_failure(answer.exit_code, said):
        return UsageError(
            f"The modules of the environment cannot be loaded, so nothing was submitted: {said}",
            hint="List the available modules with `module avail` on the cluster.",
        )
    said = re.sub(r"^Batch job submission failed: ", "", said, flags=re.MULTILINE)
    option = next((name for sign, name in _BLAMED if sign in said.lower()), "")
    blamed = blamed_variables("sbatch", said, env or {}, _named_options(argv))
    hint = known.refused if known is not None else ""
    if blamed:
        names = [word.partition("=")[0] for word in blamed]
        said += f" ({', '.join(blamed)}{ENVIRONMENT})"
        removed = "; ".join(f"del os.environ[{name!r}]" for name in names)
        hint = f"Remove it with `import os; {removed}`, or type the option on the line."
    return SubmitRefused(
        f"sbatch refused the job: {said}",
        hint=hint or _hint(said, argv),
        argv=list(argv),
        exit_code=answer.exit_code,
        stderr=printable(decode_output(answer.stderr)),
        said=said,
        option=option,
        problems=known.problems() if known is not None else [],
    )


def _named_options(argv: Sequence[str]) -> set[str]:
    """Return the long names of the options on the command line; none if it has an option of a plugin."""
    try:
        return {option.name for option in OptionTable.for_command("sbatch").split(argv[1:]).options}
    except OptionError:
        return set()


def _hint(message: str, argv: Sequence[str]) -> str:
    low = message.lower()
    if "parameter too long" in low:
        return _too_long(argv)
    from jupyter_slurm.domain.advice.value_forms import value_form

    general = next((hint for sign, hint in _HINTS if sign in low), "`%%sbatch?` shows the options and examples.")
    return value_form(message) or general


def _too_long(argv: Sequence[str]) -> str:
    """Return the hint for a value beyond Slurm's limit of 1024 characters (job_mgr.c); sbatch names no option."""
    limit = "Slurm takes at most 1024 characters for a name, a comment or a path."
    at = max(range(len(argv)), key=lambda index: len(argv[index]), default=0)
    if not argv or len(argv[at]) <= _MAX_VALUE_LENGTH:
        return f"{limit} Shorten the longest value of the #SBATCH lines and of the SBATCH_ variables."
    option, sign, value = argv[at].partition("=")
    if not (option.startswith("--") and sign):  # `-J VALUE`
        option, value = (argv[at - 1] if at else argv[0]), argv[at]
    return f"{limit} The value of {option[:_SHOWN_LENGTH]} has {len(value)}. Shorten it."
