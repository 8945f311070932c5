"""Task of a step: ``python -u step.py JOBDIR [args]``, started by srun. Python 3.8+, standard library only.

With a container image, the task prepares itself on the node and continues in the container (``contained_step.py``).

A single task writes directly into the files of the job directory, because srun forwards whole lines and a progress bar
has none. Of several tasks, the first one records figures and values; all of them print.
"""

from __future__ import annotations

import contextlib
import json
import os
import runpy
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import StepRequest

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("allocation/step.py")] + "loader.py")["load"]

_MARKS_OF_SRUN = ("SLURM_STEP_ID", "SLURM_STEPID")
# Prefixes of variables by which srun says how it has bound a task.
_BINDINGS = ("SLURM_CPU_BIND", "SLURM_MEM_BIND", "SLURM_TRES_BIND", "SLURMD_TRES_BIND")


def redirect(folder: str) -> None:
    """Redirect the output of this process into the files of the job directory."""
    for number, name in ((1, "stdout"), (2, "stderr")):
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        file = os.open(os.path.join(folder, name), flags, 0o600)
        os.dup2(file, number)
        os.close(file)


def record_start(place: JobDirectory) -> None:
    """Record number, nodes and start of the step. Errors are ignored."""
    env = os.environ
    told: dict[str, object] = {"id": env.get("SLURM_STEP_ID"), "nodes": env.get("SLURM_STEP_NODELIST")}
    told.update(time=time.time(), restarts=int(env.get("SLURM_RESTART_COUNT") or 0))
    with contextlib.suppress(OSError):
        place.put(os.path.join(place.folder, "started.json"), json.dumps(told))
    place.publish_event("started")


def hide_srun(asked: StepRequest) -> None:
    """Remove the variables by which MPI recognises a task of srun.

    ``from mpi4py import MPI`` ends a process that has them if its MPI does not support this Slurm. Libraries such as
    Lightning import it to look for ranks. Without them, one process is the only rank, as in a job without a step.

    A program in the process may submit a job (submitit, dask-jobqueue) or start a step. ``srun`` takes the binding of
    this task for a request, which fails in a job with other CPUs: these variables are removed in any case.
    """
    for name in [name for name in os.environ if name.startswith(_BINDINGS)]:
        del os.environ[name]
    if any(word.startswith("--mpi") for word in asked.get("options", ())) or "SLURM_MPI_TYPE" in os.environ:
        return  # the user has chosen how MPI finds its ranks
    for name in list(os.environ):
        if name in _MARKS_OF_SRUN or name.startswith(("PMI_", "PMI2_", "PMIX_")):
            del os.environ[name]


def expand(args: list[str], asked: StepRequest) -> list[str]:
    """Return the words of a command with the values of Slurm's variables, which only the node has.

    ``node_variables`` has the positions of the variables: word, and character. Single-quoted text has none. A variable
    that is not set stays as typed.
    """
    words, pattern = list(args), load("allocation.input_variables").NODE_VARIABLE
    for number, at in sorted(asked.get("node_variables", ()), reverse=True):
        found = pattern.match(words[number], at) if number < len(words) else None
        if found and (value := os.environ.get(found["braced"] or found["name"])) is not None:
            words[number] = words[number][:at] + value + words[number][found.end() :]
    return words


def become(argv: list[str]) -> int:
    """Replace this process by a program. Return the exit code if the program does not exist."""
    try:
        return int(load("proc").start_written(lambda: os.execvp(argv[0], argv)))  # noqa: S606 - the user's command
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be run on {os.uname().nodename}: {error.strerror}.\n")
        return 127 if isinstance(error, FileNotFoundError) else 126


def read_request(folder: str) -> StepRequest:
    """Return what the step requests."""
    with open(os.path.join(folder, "step.json"), encoding="utf-8", errors="surrogateescape") as file:
        asked: StepRequest = json.load(file)
    return asked


def run_python(step: Any, cell: Any, place: JobDirectory, args: list[str]) -> int:
    """Run a Python cell, a process for cells, or the server of a session; ``step`` is this module."""
    if place.job["kind"] == "session":
        return int(load("session.serve").SessionRun(place).run())
    place.offer()  # one directory for all tasks of the step
    if (rank := os.environ.get("SLURM_PROCID", "0")) != "0":
        place.suffix = f".rank{rank}"  # separate figures and values for each rank
    if place.job["kind"] == "process":
        return int(cell.load("allocation.process").serve(cell, step, place))
    return int(cell.run(place, args))


def main() -> int:
    """Run the program that the step requests."""
    folder, args = sys.argv[1], sys.argv[2:]
    cell = load("cell.run")
    place = cell.JobDirectory(folder)
    asked = read_request(folder)
    kind = place.job["kind"]
    if cpus := os.environ.pop("JUPYTER_SLURM_CPUS_PER_TASK", ""):
        os.environ["SLURM_CPUS_PER_TASK"] = cpus  # as in a job that is not a step
    if os.environ.get("SLURM_STEP_NUM_TASKS") == "1" and not asked["has_output"]:
        redirect(folder)
    if os.environ.get("SLURM_PROCID", "0") == "0":
        record_start(place)
    if isinstance(asked.get("umask"), int):
        os.umask(asked["umask"])
    if kind in ("kernel", "process"):
        load("proc").be_interactive(os.environ)
    if kind in ("kernel", "process", "session") or (kind == "python" and os.environ.get("SLURM_STEP_NUM_TASKS") == "1"):
        hide_srun(asked)
    if kind == "kernel":
        return int(cell.load("kernel.keeper").serve(cell, place))
    if kind == "script":
        args = [os.path.join(folder, place.job["script"]), *args]
        os.chmod(args[0], 0o700)
    elif kind == "command":
        args = expand(args, asked)
    if (place.job.get("environment") or {}).get("image"):
        return int(load("allocation.contained_step").enter(place, asked, args))
    if kind in ("process", "python", "session"):
        return run_python(sys.modules[__name__], cell, place, args)
    return become(args)


if __name__ == "__main__":
    sys.exit(main())
