"""Cells that run one after another in a Python process of an allocation, or in a remote kernel: ``%%remote``."""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from jupyter_slurm.client.allocations.allocation import (
    STILL_WAITS_TEXT,
    Allocation,
    KernelCell,
    RemoteCell,
    Step,
    start_step,
)
from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.printer import Printer
from jupyter_slurm.client.render.job_card import headline
from jupyter_slurm.client.render.present_size import format_size
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.scripts.environments import NO_ENVIRONMENT
from jupyter_slurm.errors import JobFailed, SlurmError, UsageError

__all__ = [
    "ensure_process",
    "restart",
    "run_and_print",
    "running_in",
    "start_cell",
    "status",
    "stop",
]

_PROCESS_OPTIONS = ("--overlap", "--nodes=1", "--ntasks=1")  # options of a process that the agent adds
_WAIT_REASON_INTERVAL_S = 3.0  # seconds between two checks of a waiting cell; the first check comes after one interval
_INTERRUPT_TIMEOUT_S = 10.0  # seconds for an interrupted cell
_END_TIMEOUT_S = 60.0  # seconds for a stopped process
_LINE_FLAGS = re.MULTILINE | re.DOTALL
_MAX_ERROR_CHARACTERS = 2000  # characters of an error message
_TRACEBACK = re.compile(r"^(?:(\w+) +)?Traceback \(most recent call last\):?$", re.MULTILINE)
_used: dict[str, Step] = {}  # by allocation: the process that this kernel used last


def running_in(allocation: Allocation) -> tuple[Step | None, Step | None]:
    """Return the process that runs or will start in an allocation, and the last process that had started before."""
    key = str(allocation.key)
    if (used := _used.get(key)) is not None and not used.refresh().is_finished:
        return used, None  # without a request for all earlier steps
    processes = [step for step in allocation.steps if step._data.get("kind") == "process"]
    going = [step for step in processes if not step._data.get("finished")]
    if going:
        _used[key] = going[0]
    # A process that never started (its Python is missing, or an option was wrong) had no variables and is no model.
    over = [step for step in processes if step not in going and step.id]
    return next(iter(going), None), next(reversed(over), None)


def _srun_options(process: Step) -> list[str]:
    """Return the options of srun with which a process was requested."""
    argv: Sequence[str] = process._data.get("argv") or []
    return [option for option in argv[1:-1] if option not in _PROCESS_OPTIONS]


def _process_python(process: Step) -> str:
    """Return the Python of a process."""
    return str((process._data.get("argv") or [""])[-1])


def ensure_process(cluster: Cluster, allocation: Allocation, requested: Submission) -> Step:
    """Return the process of an allocation. Start one if there is none.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the allocation.
    allocation : Allocation
        Allocation of the process.
    requested : Submission
        Process, with what the user named. A later process has all else from its predecessor.

    Raises
    ------
    UsageError
        The running process differs from the request.
    """
    going, ended = running_in(allocation)
    if going is not None:
        if _differs(requested, going):
            raise UsageError(
                f"{going.title} already runs with other options: srun "
                f"{' '.join([*_srun_options(going), _process_python(going)])}.",
                hint="Omit options, env=, image=, modules= and python=, or end the process first: %remote stop.",
            )
        return going
    process = _start(cluster, allocation, requested if ended is None else _like(ended, requested))
    if ended is not None:
        sys.stderr.write(f"{headline(ended._data)}\nA new process starts. The earlier variables are lost.\n")
    return process


def _differs(requested: Submission, process: Step) -> bool:
    """Return whether the user named something that a running process does not have."""
    options = [option for option in requested.options if option not in _PROCESS_OPTIONS]
    python, env = requested.python, requested.env
    return (
        bool(options and options != _srun_options(process))
        or bool(python and python != _process_python(process))
        or bool(env and env != _process_environment(process))
    )


def _like(process: Step, requested: Submission) -> Submission:
    """Return a request for a process like an ended one, except for what the user named."""
    env = _process_environment(process)
    if requested.env in (None, env):
        requested = replace(requested, env=env, python=requested.python or _process_python(process))
    return replace(requested, options=requested.options or _srun_options(process))


def _process_environment(process: Step) -> str:
    """Return the environment of a process, as the user named it."""
    return str((process.record.get("environment") or {}).get("name") or NO_ENVIRONMENT)


def _start(cluster: Cluster, allocation: Allocation, requested: Submission) -> Step:
    """Start a process for cells in an allocation."""
    process = start_step(cluster, allocation, requested)
    _used[str(allocation.key)] = process
    return process


def start_cell(cluster: Cluster, allocation: Allocation, process: Step, submission: Submission) -> RemoteCell:
    """Run a cell in a process, after the cells that were requested before."""
    cell = start_step(cluster, allocation, submission, process=process.key)
    assert isinstance(cell, RemoteCell)
    return cell


def run_and_print(cell: RemoteCell, shell: Any) -> None:
    """Wait for a cell, and print and show its output as if the cell had run in this kernel.

    Raises
    ------
    JobFailed
        The cell raised an error, or its process ended.
    WaitInterrupted
        The cell was interrupted; the message says whether the cell reacted.
    """
    cell._is_shown = True
    follower = cell._follow()
    limits = settings().output_limit, settings().display_limit
    with Printer(follower, shell, str(cell._data["process"]), *limits) as printer:
        try:
            _wait(cell, follower, printer)
        except KeyboardInterrupt:
            raise _interrupt(cell, follower, printer) from None
    if follower.error is not None:
        raise follower.error
    cell._data = follower.data
    log = follower.printed("stderr").rstrip()
    cell._restore_variables(log)
    if cell._data["state"] != "COMPLETED":
        raise _failure(cell, log)


def _wait(cell: RemoteCell, follower: Follower, printer: Printer) -> None:
    """Print the output until the cell ends. If the cell does not start, show the reason."""
    due, said = time.monotonic() + _WAIT_REASON_INTERVAL_S, {""}
    while not follower.ended.is_set():
        printer.print_for(0.5)
        if follower.data["state"] != "PENDING" or time.monotonic() < due:
            continue
        with contextlib.suppress(SlurmError):  # the follower receives permanent errors
            if (why := _wait_reason(cell, follower)) not in said:
                said.add(why)
                sys.stderr.write(printable(f"{cell.title} waits for {why}") + "\n")
        due = time.monotonic() + _WAIT_REASON_INTERVAL_S


def _wait_reason(cell: RemoteCell, follower: Follower) -> str:
    """Return the reason why a cell waits; empty if it has started and much output is still to come."""
    allocation = cell.allocation
    if allocation.state != "RUNNING":
        return (
            f"its allocation ({allocation.state}): {follower.data.get('reason_text') or allocation.reason_text or ''}"
        )
    steps, process = allocation.steps, cell._data["process"]
    what = "kernel" if isinstance(cell, KernelCell) else "process"
    for step in steps:
        if step.key == cell.key:
            late = [one.key for one in steps if one.key in (cell.key, process) and one._data["state"] == "PENDING"]
            if len(late) == 2:
                return f"its {what} to begin"
            return "its turn: the kernel has other work" if late == [cell.key] and what == "kernel" else ""
        if step._data.get("process") == process and not step._data.get("finished"):
            return f"the cells before it in its {what}: {step.title}"
    return ""


def _interrupt(cell: RemoteCell, follower: Follower, printer: Printer) -> WaitInterrupted:
    """Interrupt a cell, and report whether the cell reacted. A second interrupt skips that wait."""
    was_sent = False
    try:
        try:
            if (told := cell.refresh()._data)["finished"]:
                return WaitInterrupted(f"{cell.title} has ended. The rest of its output is in {told['stdout']}.")
            cell.interrupt()
        except KeyboardInterrupt:
            cell.interrupt()
        was_sent = True
        deadline = time.monotonic() + _INTERRUPT_TIMEOUT_S
        while not follower.ended.is_set() and time.monotonic() < deadline:
            printer.print_for(0.2)
            if follower.data["state"] == "PENDING" and follower.data.get("reason_text"):
                break  # its allocation has not started
    except KeyboardInterrupt:
        if not was_sent:
            return WaitInterrupted(f"Whether {cell.title} was interrupted is unknown. Use `%remote` to check.")
    except SlurmError as error:
        return WaitInterrupted(f"{cell.title} could NOT be interrupted and keeps running: {error}")
    return WaitInterrupted(f"{cell.title} {_after_interrupt(cell, follower)}.")


def _after_interrupt(cell: RemoteCell, follower: Follower) -> str:
    """Return the state of a cell after an interrupt."""
    try:
        data = follower.data if follower.ended.is_set() else cell.refresh()._data
    except (SlurmError, KeyboardInterrupt):
        return "was sent an interrupt; `%remote` shows the result"
    if data["state"] == "PENDING":
        return STILL_WAITS_TEXT
    if data["finished"] and data.get("start_time") is None:
        return f"was cancelled before it started; {cell._survivor_text}"
    if data["finished"]:
        return f"was interrupted; {cell._survivor_text}"
    return (
        f"was interrupted but does not react, or not yet. It keeps running, and later cells wait. {cell._in_any_case}"
    )


def _raised(log: str) -> str:
    """Return the error at the end of a log with all lines of its message, else the last line of the log."""
    last = log.rpartition("\n")[2].strip()
    for found in _TRACEBACK.finditer(log):
        message = re.search(rf"^{found[1] or r'[^ ]'}.*", log[found.end() :].lstrip("\n"), _LINE_FLAGS)
        last = message[0] if message else last
    return last[:_MAX_ERROR_CHARACTERS]


def _failure(cell: RemoteCell, log: str) -> JobFailed:
    """Return the error for a cell whose output is already shown, so that its message suffices."""
    data, error = cell._data, cell._data.get("error")
    last = _raised(log) or f"exit code {data.get('exit_code')}"
    said, hint = (error["detail"], error.get("hint") or "") if error else (last, "")
    named = {name: data.get(name) for name in ("id", "state", "exit_code", "signal")}
    return JobFailed(f"{cell.title}: {printable(said)}", hint=hint, log=log, **named)


def stop(process: Step) -> None:
    """End a process, and wait for its end.

    Raises
    ------
    TimeoutError
        The process is still running.
    """
    process.cancel()
    process.wait(_END_TIMEOUT_S, check=False)


def restart(cluster: Cluster, allocation: Allocation, process: Step) -> Step:
    """Start a process with the settings of one that has ended."""
    return _start(cluster, allocation, _like(process, Submission("process", "")))


def status(allocation: Allocation, process: Step) -> str:
    """Return the state of a process and its current activity."""
    cells = [one for one in allocation.steps if one._data.get("process") == process.key and not one._data["finished"]]
    lines = [f"{headline(process.data)}, {_process_python(process)}", f"in {headline(allocation.data)}"]
    nothing = "    no cell of another notebook runs" if process._data["kind"] == "kernel" else "    no cell runs"
    lines += [f"    {headline(cell._data)}" for cell in cells] or [nothing]
    if memory := process.refresh()._data.get("memory"):
        lines.append(f"    memory: {format_size(memory['now'])}, at most {format_size(memory['most'])} so far")
    if process.id:
        lines.append(f"    its CPU time: %sstat -a -j {process.id} -o AveCPU")
    return "\n".join(lines)
