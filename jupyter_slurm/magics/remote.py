"""Magics ``%%remote`` and ``%remote``."""

from __future__ import annotations

import sys
from collections import ChainMap
from collections.abc import Mapping
from typing import Any

from jupyter_slurm.client.allocations.allocation import Allocation, RemoteCell, Step
from jupyter_slurm.client.allocations.choice import choose
from jupyter_slurm.client.allocations.remote_cells import (
    ensure_process,
    restart,
    run_and_print,
    running_in,
    start_cell,
    status,
    stop,
)
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.interrupts import WaitInterrupted
from jupyter_slurm.client.kernels.kernel import running_kernel
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.scripts.script import classify
from jupyter_slurm.errors import OptionError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import (
    ENVIRONMENT_WORDS,
    OF_JOBS_ALONE,
    as_python,
    cell_name,
    check_step,
    environment_name,
    mention,
    named_python,
    pack_cell_variables,
)
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.srun import report_allocation
from jupyter_slurm.magics.user_namespace import lookup_in, variables

__all__ = ["CELL_KEYWORDS", "LINE_KEYWORDS", "run_cell", "run_line"]

CELL_KEYWORDS: dict[str, bool | None] = {
    "as": True,
    "env": True,
    "image": True,
    "in": True,
    "kernel": None,
    "modules": True,
    "nowait": False,
    "on": True,
    "out": True,
    "python": True,
}
"""The keywords of ``%%remote``, and whether each takes a value; None: the value is optional."""

LINE_KEYWORDS: dict[str, bool | None] = {
    "interrupt": False,
    "kernel": None,
    "on": True,
    "restart": False,
    "status": False,
    "stop": False,
}
"""The keywords of ``%remote``."""

_said: dict[str, str] = {}  # by cluster: the last reported allocation and process


def run_cell(shell: Any, line: str, cell: str, local_ns: Mapping[str, object]) -> RemoteCell | None:
    """Run ``%%remote``: a cell in the process of an allocation, or in a remote kernel."""
    remote: RemoteCell | None = None
    try:
        remote, words = _send(shell, line, cell, local_ns)
        if name := words.get("as"):
            shell.push({name: remote})
        if "out" in words:
            remote._listener = shell.push
        if "nowait" in words:
            mention(shell, remote)
            return remote
        run_and_print(remote, shell)
    except WaitInterrupted:
        raise
    except KeyboardInterrupt:  # outside the wait for the cell
        if remote is None:
            raise WaitInterrupted("Interrupted before the cell was sent: nothing runs.") from None
        raise WaitInterrupted(
            f"Stopped waiting. {remote.title} was sent. `%remote` shows its state, `%remote interrupt` interrupts it."
        ) from None
    return None


def _send(
    shell: Any, line: str, cell: str, local_ns: Mapping[str, object]
) -> tuple[RemoteCell, Mapping[str, str | None]]:
    """Submit a cell; return it, and the keywords of its line."""
    cluster, prefix = current(), "%%remote "
    parsed = _parsed(shell, cluster, prefix, line, CELL_KEYWORDS, local_ns)
    if parsed.args:
        raise UsageError(
            "%%remote takes no arguments after --.", hint="Send variables with in=NAME. Earlier variables stay."
        )
    if classify(cell, as_python) != "python":
        raise UsageError("%%remote runs Python, and this cell is a script.", hint="Use %%srun for scripts.")
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    submission = Submission("python", cell, filename=cell_name(shell), values=pack_cell_variables(parsed, namespace))
    if "kernel" in parsed.keywords:
        allocation, process = _kernel(cluster, parsed, namespace)
    else:
        allocation = _allocation(cluster, parsed, namespace)
        try:
            model = Submission(
                "process",
                "",
                parsed.options,
                python=named_python(parsed, cluster),
                default_python=python_named(None, cluster),
                env=environment_name(parsed),
            )
            process = ensure_process(cluster, allocation, model)
        except (SubmitRefused, OptionError) as error:
            add_blame(error, prefix, line, parsed, "")
            raise
    _report_process(cluster, allocation, process)
    return start_cell(cluster, allocation, process, submission), parsed.keywords


def run_line(shell: Any, line: str, local_ns: Mapping[str, object]) -> None:
    """Run ``%remote``: show the state of the process, interrupt it, end it, or start another one."""
    cluster, prefix = current(), "%remote "
    parsed = _parsed(shell, cluster, prefix, line, LINE_KEYWORDS, local_ns)
    asked = [word for word in parsed.keywords if word not in ("kernel", "on")] or ["status"]
    if parsed.options or parsed.args or len(asked) > 1:
        raise UsageError(
            "%remote takes one subcommand.",
            hint="Use `%remote [status|interrupt|restart|stop] [on=NAME] [kernel[=NAME]]`.",
        )
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    process: Step | None
    if "kernel" in parsed.keywords:
        if asked[0] in ("restart", "stop"):
            raise UsageError(
                "A kernel cannot be stopped or restarted from another notebook.",
                hint="Use the menu of its own notebook.",
            )
        allocation, process = _kernel(cluster, parsed, namespace)
    else:
        allocation = _allocation(cluster, parsed, namespace)
        process, _ = running_in(allocation)
    if process is None:
        raise UsageError(f"No process for cells runs in {allocation.title}.", hint="Run a %%remote cell to start one.")
    if asked == ["interrupt"]:
        _interrupt(allocation, process)
    elif asked != ["status"]:
        stop(process)
        sys.stdout.write(f"{process!r}\nAll its variables are lost.\n")
    if asked == ["restart"]:
        process = restart(cluster, allocation, process)
    if asked[0] in ("status", "restart"):
        sys.stdout.write(f"{status(allocation, process)}\n")


def _parsed(
    shell: Any,
    cluster: Cluster,
    prefix: str,
    line: str,
    keywords: Mapping[str, bool | None],
    local_ns: Mapping[str, object],
) -> MagicLine:
    with pointing_at(prefix, line):
        table, lookup = option_table(cluster, "srun"), lookup_in(shell, local_ns)
        parsed = parse_cell_line(line, table, {**keywords, **OF_JOBS_ALONE}, lookup, variables(line, cluster))
        check_step(parsed)
        return parsed


def _allocation(cluster: Cluster, parsed: MagicLine, namespace: Mapping[str, object]) -> Allocation:
    allocation = choose(cluster, parsed.keywords.get("on"), namespace)
    if allocation is None:
        raise UsageError("No allocation is open, and %%remote needs one.", hint="Request one with %salloc.")
    return allocation


def _kernel(cluster: Cluster, parsed: MagicLine, namespace: Mapping[str, object]) -> tuple[Allocation, Step]:
    """Return the intended remote kernel, and its allocation."""
    if parsed.options or parsed.keywords.keys() & {*ENVIRONMENT_WORDS, "python"}:
        raise UsageError(
            "The kernel already runs, so options of srun, env=, image=, modules= and python= have no effect.",
            hint="Omit them.",
        )
    allocation = choose(cluster, parsed.keywords["on"], namespace) if "on" in parsed.keywords else None
    return running_kernel(cluster, parsed.keywords["kernel"], allocation)


def _report_process(cluster: Cluster, allocation: Allocation, process: Step) -> None:
    """Print where a cell runs if that has changed: otherwise it looks like a local cell."""
    if _said.get(cluster.name) != process.key:
        _said[cluster.name] = str(process.key)
        report_allocation(allocation)
        if process._data["kind"] == "kernel":
            sys.stdout.write(f"{process.title}\n")


def _interrupt(allocation: Allocation, process: Step) -> None:
    """Interrupt the running cell; waiting cells continue to wait."""
    cells = [one for one in allocation.steps if one._data.get("process") == process.key]
    running = next((one for one in cells if one.state == "RUNNING"), None)
    if running is None:
        sys.stdout.write("No cell runs.\n")
        return
    running.interrupt()
    sys.stdout.write(f"{running.title} was sent an interrupt.\n")
