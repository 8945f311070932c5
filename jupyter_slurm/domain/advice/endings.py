"""Explanations of how a job ended, and the next step for the user.

Sources: sbatch(1), "JOB STATE CODES" of squeue(1), the exit codes of POSIX shells, signal(7).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from jupyter_slurm.domain.records import JobRecord
from jupyter_slurm.domain.slurm_values import format_time_limit
from jupyter_slurm.domain.states import FINAL_STATES, JobState

__all__ = ["SIGNALS", "explain_end", "explain_failed_tasks", "is_near_limit", "own_exit_code"]

_MAX_WARNING_S: Final = 600.0  # seconds before the time limit, at most a part of the limit
_WARNING_SHARE: Final = 0.1

#: Numbers of signal(7) on Linux (x86, ARM). The numbers of this computer may differ: the job ran on another one.
SIGNALS: Final = {
    1: "SIGHUP",
    2: "SIGINT",
    3: "SIGQUIT",
    4: "SIGILL",
    5: "SIGTRAP",
    6: "SIGABRT",
    7: "SIGBUS",
    8: "SIGFPE",
    9: "SIGKILL",
    10: "SIGUSR1",
    11: "SIGSEGV",
    12: "SIGUSR2",
    13: "SIGPIPE",
    14: "SIGALRM",
    15: "SIGTERM",
    18: "SIGCONT",
    19: "SIGSTOP",
    24: "SIGXCPU",
    25: "SIGXFSZ",
    31: "SIGSYS",
}

# If slurmstepd cannot open the output file of a batch script, it ends the script with 53 as the signal.
_OUTPUT_FAILED_EXIT_CODE: Final = 53

_STATES: Final = {
    "BOOT_FAIL": ("A node did not boot.", "Submit the job again. Tell the administrators if the error returns."),
    "CANCELLED": ("The job was cancelled.", ""),
    "COMPLETED": ("The job has completed.", ""),
    "DEADLINE": ("The job was ended at its deadline.", "Submit it with a later --deadline or a shorter --time."),
    "NODE_FAIL": (
        "A node of the job failed.",
        (
            "Submit the job again. If that node fails again, exclude it with --exclude=NODE. A job with "
            "`resume` continues automatically."
        ),
    ),
    "OUT_OF_MEMORY": (
        "The job used more memory than it requested.",
        "Request more memory: --mem=… for each node, or --mem-per-cpu=….",
    ),
    "PREEMPTED": (
        "A job of higher priority took the nodes.",
        (
            "Submit it again under a QOS that is not preempted, or with --requeue, so that Slurm "
            "restarts it automatically. A job with `resume` also continues from its last state."
        ),
    ),
    "REVOKED": ("Another cluster of the federation runs the job.", "Find it with squeue --federation."),
}

_EXIT_CODES: Final = {
    126: (
        "A command was found but could not be run.",
        "Make it executable (chmod +x), or check that it was built for the nodes.",
    ),
    127: (
        "A command was not found.",
        (
            "Load its module or environment in the job, or give its full path. Nodes may not see the "
            "same directories as the login node."
        ),
    ),
}

_SIGNAL_STEPS: Final = {
    4: "Build the program for the nodes: it has instructions that the node's CPU does not know.",
    7: "Check the free space on the node. Often /dev/shm is full, or a file was deleted.",
    9: ("Often the job exceeded its memory limit: check MaxRSS in sacct, and request more with --mem=…."),
    11: ("Look for an error in the program, or for libraries that do not fit together: it accessed invalid memory."),
    15: "It was ended by scancel, preemption or the time limit.",
    24: "The CPU time limit of the shell (ulimit -t) was reached.",
    25: "The file size limit (ulimit -f) was reached.",
}


def explain_end(record: JobRecord) -> tuple[str, str]:
    """Explain how a job ended, and name the next step.

    Parameters
    ----------
    record : JobRecord
        Record of a finished job. Only state, exit code, signal, time limit and output path are used.

    Returns
    -------
    words, next_step : str
        The next step may be empty.
    """
    state = record.state
    if state.name == "TIMEOUT":
        limit = f" of {format_time_limit(record.time_limit)}" if record.time_limit else ""
        return (
            f"The job reached its time limit{limit}.",
            ("Submit it with a longer --time. A job with `resume` saves its state and continues automatically."),
        )
    if record.signal == _OUTPUT_FAILED_EXIT_CODE and state.name == "FAILED":
        where = f" ({record.stdout})" if record.stdout else ""
        return (
            f"The job's output file could not be opened{where}, so it never started.",
            (
                "Create the directory of --output where the nodes see it, and check that you may write to "
                "it. If you gave no --output, set c.JupyterSlurm.job_root, or over SSH job_root in the profile, "
                "to a directory that the nodes see."
            ),
        )
    if state.name == "CANCELLED" and state.by is not None:
        return f"The job was cancelled by user {state.by}.", ""
    if state.name in _STATES:
        return _STATES[state.name]
    return _explain_code(record.exit_code, record.signal)


def explain_failed_tasks(tasks: Mapping[str, int], first: int, exit_code: int | None, signal: int | None) -> str:
    """Return how many tasks of an array failed, and how the first of them ended.

    Parameters
    ----------
    tasks : mapping
        Number of tasks by state.
    first : int
        Index of the first failed task.
    exit_code, signal : int, optional
        End of that task.
    """
    not_failed = ("COMPLETED", "CANCELLED", "REVOKED")
    failed = sum(number for state, number in tasks.items() if state in FINAL_STATES and state not in not_failed)
    how = f", ended by signal {signal}" if signal else f", exit code {exit_code}" if exit_code else ""
    which = f"task {first}{how}" if failed == 1 else f"the first: task {first}{how}"
    return f"{failed} of {sum(tasks.values())} tasks failed ({which})."


def _explain_code(exit_code: int | None, signal: int | None) -> tuple[str, str]:
    if signal:
        return _explain_signal(signal, "The job")
    if exit_code in _EXIT_CODES:
        words, step = _EXIT_CODES[exit_code]
        return f"{words} (exit code {exit_code})", step
    if exit_code is not None and 128 < exit_code < 128 + 65:
        # A shell reports a killed program of its script in this way.
        return _explain_signal(exit_code - 128, "A program of the job")
    if exit_code:
        return f"The job ended with exit code {exit_code}.", "See the last lines of its output."
    return "The job failed.", "See the last lines of its output for the cause."


def _explain_signal(signal: int, actor: str) -> tuple[str, str]:
    name = SIGNALS.get(signal, f"signal {signal}")
    step = _SIGNAL_STEPS.get(signal, "See the last lines of its output for the cause.")
    return f"{actor} was ended by {name}.", step


def own_exit_code(state: JobState, exit_code: int | None, signal: int | None) -> int | None:
    """Return the exit code with which a job itself ended, if the job did so.

    Slurm also shows exit code 0 for a job that a signal ended (``0:15``), and for a job that ended before its start
    (``0:0``).
    """
    return None if signal or (exit_code == 0 and state.name != "COMPLETED") else exit_code


def is_near_limit(remaining: float, limit: float) -> bool:
    """Return whether a time limit (seconds) is so near that the user is notified."""
    return remaining <= min(_MAX_WARNING_S, limit * _WARNING_SHARE)
