"""Magics ``%srun`` and ``%%srun``."""

from __future__ import annotations

import contextlib
import sys
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.allocations.allocation import Allocation, Step, allocate, start_step
from jupyter_slurm.client.allocations.choice import choose
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.render.allocation_card import held_notes
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission, python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.options.option_parser import words_of
from jupyter_slurm.domain.options.step_options import (
    OF_STEPS,
    check_terminal,
    needs_terminal,
    step_options,
    without_shell_code,
)
from jupyter_slurm.domain.slurm_values import format_duration
from jupyter_slurm.errors import OptionError, SlurmError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import (
    ENVIRONMENT_WORDS,
    OF_JOBS_ALONE,
    cell_kind,
    cell_name,
    check_step,
    environment_name,
    is_test,
    mention,
    named_python,
    pack_cell_variables,
)
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.user_namespace import lookup_in, variables

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.estimate import Estimate

__all__ = ["CELL_KEYWORDS", "LINE_KEYWORDS", "report_allocation", "run_cell", "run_command"]

LINE_KEYWORDS = {"as": True, "env": True, "image": True, "modules": True, "on": True, "wait": False}
"""The keywords of ``%srun``, and whether each takes a value."""

CELL_KEYWORDS = {**LINE_KEYWORDS, "python": True, "in": True, "out": True}
"""The keywords of ``%%srun``."""


def run_command(shell: Any, line: str, local_ns: Mapping[str, object]) -> Step | Estimate:
    """Run ``%srun COMMAND``: a command as a step."""
    cluster, prefix = current(), "%srun "
    with pointing_at(prefix, line):
        table, lookup = option_table(cluster, "srun"), lookup_in(shell, local_ns)
        parsed = parse_line_magic(line, table, {**LINE_KEYWORDS, **OF_JOBS_ALONE}, lookup, variables(line, cluster))
        check_step(parsed)
    if not parsed.rest and not needs_terminal(parsed.parsed):
        raise UsageError(
            "%srun needs a command.",
            hint="Use `%srun [keywords] [options] COMMAND [arguments]`, or `%%srun` for a cell.",
        )
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    _check_interactive(cluster, parsed, namespace)
    submission = Submission(
        "command",
        "",
        parsed.options,
        parsed.rest,
        env=environment_name(parsed),
        node_variables=without_shell_code(parsed.rest, parsed.node_variables) or None,
    )
    return _start(shell, cluster, parsed, submission, namespace, (prefix, line))


def run_cell(shell: Any, line: str, cell: str, local_ns: Mapping[str, object]) -> Step | Estimate:
    """Run ``%%srun``: a script or a Python cell as a step."""
    cluster, prefix = current(), "%%srun "
    with pointing_at(prefix, line):
        table, lookup = option_table(cluster, "srun"), lookup_in(shell, local_ns)
        parsed = parse_cell_line(line, table, {**CELL_KEYWORDS, **OF_JOBS_ALONE}, lookup, variables(line, cluster))
        check_step(parsed)
    kind = cell_kind(shell, parsed, cell)
    if kind == "script" and (both := [word for word in ("python", "in", "out") if word in parsed.keywords]):
        raise UsageError(
            f"{both[0]}= applies to Python cells, and this cell is a script.", hint="Pass arguments: `-- {x}`."
        )
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    _check_interactive(cluster, parsed, namespace)
    submission = Submission(
        kind,
        cell,
        parsed.options,
        parsed.args,
        python=named_python(parsed, cluster) if kind == "python" else None,
        default_python=python_named(None, cluster) if kind == "python" else None,
        env=environment_name(parsed),
        filename=cell_name(shell) if kind == "python" else None,
        values=pack_cell_variables(parsed, namespace),
    )
    return _start(shell, cluster, parsed, submission, namespace, (prefix, line))


def _check_interactive(cluster: Cluster, parsed: MagicLine, namespace: Mapping[str, object]) -> None:
    """Refuse a terminal for a step, and a shell into which no text can be typed; name the open allocation, if any."""
    if is_test(parsed) or not needs_terminal(parsed.parsed):
        return
    allocation = None
    with contextlib.suppress(SlurmError):  # an allocation that is not found gets no terminal, either
        allocation = choose(cluster, parsed.keywords.get("on"), namespace)
    name = None if allocation is None else allocation.label or allocation.id
    keywords = [f"{word}={value}" for word, value in parsed.keywords.items() if word in ENVIRONMENT_WORDS]
    check_terminal(parsed.parsed, name, cluster.name if cluster.is_remote else "", keywords)


def _start(
    shell: Any,
    cluster: Cluster,
    parsed: MagicLine,
    submission: Submission,
    namespace: Mapping[str, object],
    typed: tuple[str, str],
) -> Step | Estimate:
    """Start the step, and apply the keywords."""
    try:
        allocation = choose(cluster, parsed.keywords.get("on"), namespace)
        if is_test(parsed):
            return _estimate(cluster, parsed, submission, allocation)
        if allocation is None:
            step = _start_in_own_allocation(cluster, parsed, submission)
        else:
            report_allocation(allocation)
            step = start_step(cluster, allocation, submission)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, *typed, parsed, submission.text)
        raise
    if name := parsed.keywords.get("as"):
        shell.push({name: step})
    if "out" in parsed.keywords:
        step._listener = shell.push
    if "wait" not in parsed.keywords:
        mention(shell, step)
        return step
    notebook = live_view.notebook()
    if notebook is not None:
        step._show(notebook)
    step._wait(None, check=True, echo=notebook is None)
    return step


def report_allocation(allocation: Allocation) -> None:
    """Print the allocation in use, and whether it ends soon.

    An allocation that was pending when Slurm was last asked may have started. The step shows whether it waits.
    """
    left = allocation.time_left
    state = "" if allocation.state == "PENDING" else allocation.state
    more = state if left is None else f"{format_duration(left)} left"
    sys.stdout.write(f"{allocation.title}{f', {more}' if more else ''}\n")
    for note in held_notes(allocation.data):
        if note.startswith("Warning"):
            sys.stderr.write(f"{note}\n")


def _estimate(cluster: Cluster, parsed: MagicLine, submission: Submission, allocation: Allocation | None) -> Estimate:
    """Ask Slurm for the estimated start of an allocation for this step alone."""
    from jupyter_slurm.client.submission.estimate import estimate_allocation  # rarely used

    if allocation is not None:
        raise UsageError(f"{allocation.title} is open, so the step starts at once.", hint="Omit --test-only.")
    if both := [word for word in ("wait", "as", "out") if word in parsed.keywords]:
        raise UsageError(f"--test-only starts nothing, so `{both[0]}` has no effect.", hint=f"Omit `{both[0]}`.")
    return estimate_allocation(cluster, _holder(cluster, parsed, submission)[0])


def _holder(cluster: Cluster, parsed: MagicLine, submission: Submission) -> tuple[Submission, list[str]]:
    """Return the batch job of an allocation for this step alone, and the options of the step."""
    known = {name for spec in option_table(cluster, "sbatch").specs for name in spec.names} - OF_STEPS
    resources = words_of(parsed.parsed.options, lambda name: name in known and name != "test-only")
    rest = words_of(parsed.parsed.options, lambda name: name not in known and name != "test-only")
    is_outside = not parsed.keywords.keys() & ENVIRONMENT_WORDS
    python = (is_outside and submission.python) or python_named(None, cluster)  # not one of an environment
    return Submission("allocation", "", resources, python=python), rest


def _start_in_own_allocation(cluster: Cluster, parsed: MagicLine, submission: Submission) -> Step:
    """Request an allocation for this step alone, as srun does, and start the step."""
    step_options(option_table(cluster, "srun"), parsed.options)  # a refusal comes before the allocation
    holder, rest = _holder(cluster, parsed, submission)
    allocation = allocate(cluster, holder, lease=settings().allocation_lease, once=True)
    try:
        number = f", {allocation.id}" if allocation.id else ""
        sys.stdout.write(f"No allocation is open. srun requests one for this step{number}.\n")
        return start_step(cluster, allocation, replace(submission, options=rest))
    except BaseException:  # including an interrupt: the allocation would stay unused
        try:
            allocation.release()
        except SlurmError as error:
            sys.stderr.write(f"{allocation.title} could NOT be released: {error}\n")
        raise
