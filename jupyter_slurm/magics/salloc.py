"""Magic ``%salloc``."""

from __future__ import annotations

import contextlib
import difflib
import re
import shlex
import sys
from collections import ChainMap
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.allocations.allocation import Allocation, allocate, allocations, open_allocations
from jupyter_slurm.client.allocations.choice import choose
from jupyter_slurm.client.allocations.kernel_end import is_for_this_notebook
from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.sessions.launch import idle_time
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import Submission
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line
from jupyter_slurm.domain.magic_line.tokenizer import tokenize
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.options.step_options import needs_terminal, terminal_hint
from jupyter_slurm.errors import OptionError, SlurmError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import (
    ENVIRONMENT_WORDS,
    cell_python,
    environment_name,
    is_test,
    mention,
    slurm_options,
)
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.sbatch import check
from jupyter_slurm.magics.user_namespace import lookup_in, variables

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.estimate import Estimate

__all__ = ["KEYWORDS", "run"]

KEYWORDS = {
    "as": True,
    "env": True,
    "image": True,
    "keep": False,
    "lease": True,
    "modules": True,
    "on": True,
    "python": True,
    "release": False,
    "wait": False,
}
"""The keywords of ``%salloc``, and whether each takes a value."""

_NO_COMMAND = "%salloc runs no command: it opens an allocation for later cells."


def run(shell: Any, line: str, local_ns: Mapping[str, object]) -> Allocation | Estimate:
    """Request an allocation, show an existing one, or release one."""
    cluster, prefix = current(), "%salloc "
    with pointing_at(prefix, line):
        # The options of sbatch, because a batch job holds the allocation.
        table = option_table(cluster, "sbatch")
        try:
            parsed = parse_cell_line(line, table, KEYWORDS, lookup_in(shell, local_ns), variables(line, cluster))
        except UsageError as error:
            _explain_command(error, line, cluster)
            raise
        check(parsed)
    if parsed.args:
        end = next(token.start for token in tokenize(line) if token.text == "--")
        raise UsageError(_NO_COMMAND, hint=_command_hint(line[:end], parsed.args, cluster))
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    if "release" in parsed.keywords or "on" in parsed.keywords:
        return _show_or_release(shell, cluster, parsed, namespace)
    try:
        if is_test(parsed):
            from jupyter_slurm.client.submission.estimate import estimate_allocation  # rarely used

            return estimate_allocation(cluster, _holder(cluster, parsed))
        allocation = _request_allocation(cluster, parsed, namespace)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, prefix, line, parsed, "")
        raise
    return _show(shell, allocation, parsed)


def _explain_command(error: UsageError, line: str, cluster: Cluster) -> None:
    """Replace the reason of an error if its word begins a command, as a line of Slurm's own salloc may have."""
    if "span" not in error.details:
        return
    start, end = error.details["span"]
    word = line[start:end]
    is_terminal = word in ("--pty", "--interactive")
    is_python = word == "python" and line[end:].strip()
    meant = str(error.details.get("suggestion") or "")
    is_option = meant.startswith("-") or word.startswith("-") or "=" in word
    is_other = "suggestion" in error.details and not is_option
    if is_terminal or is_python or (is_other and not difflib.get_close_matches(word, KEYWORDS, cutoff=0.75)):
        words = [token.text for token in tokenize(line[start:])]
        error.message = f"{word} is an option of srun, and a cell has no terminal." if is_terminal else _NO_COMMAND
        error.args, error.hint = (error.message,), _command_hint(line[:start], words, cluster)


def _command_hint(options: str, command: Sequence[str], cluster: Cluster) -> str:
    """Return the way to run a command, or a shell, in the allocation that a line requests."""
    named = re.search(r"(?:^|\s)as=(\w+)", options)
    name = named[1] if named else "node"
    line = " ".join(["%salloc", *filter(None, [options.strip()]), *([] if named else [f"as={name}"])])
    words = list(command[1:] if command[:1] == ["srun"] else command)
    with contextlib.suppress(SlurmError):
        if needs_terminal(OptionTable.for_command("srun").split(words)):
            return f"Use `{line}`, then {terminal_hint(name, cluster.name if cluster.is_remote else '')}."
    run = f"%srun on={name} {shlex.join(words) or 'COMMAND'}"
    return f"Use `{line}`, then `{run}`. For a shell, use `jupyter slurm shell {name}` in a terminal."


def _show_or_release(shell: Any, cluster: Cluster, parsed: MagicLine, namespace: Mapping[str, object]) -> Allocation:
    """Show an existing allocation, or release it."""
    if parsed.options or parsed.keywords.keys() & {*ENVIRONMENT_WORDS, "keep", "lease", "python"}:
        raise UsageError(
            "`on=` and `release` need an open allocation and take no other options.",
            hint="Use `%salloc on=NAME` to show an allocation, `%salloc release on=NAME` to release it.",
        )
    allocation = choose(cluster, parsed.keywords.get("on"), namespace)
    if allocation is None:
        raise UsageError("No allocation is open.", hint="Request one with %salloc.")
    if "release" in parsed.keywords:
        allocation.release()
    return _show(shell, allocation, parsed)


def _request_allocation(cluster: Cluster, parsed: MagicLine, namespace: Mapping[str, object]) -> Allocation:
    name = parsed.keywords.get("as")
    before = namespace.get(name) if name else None
    if isinstance(before, Allocation) and before.is_open:
        raise UsageError(
            f"{name} is already an open allocation: {before!r}",
            hint=f"Use `%salloc on={name}` to show it, `%salloc release on={name}` to release it.",
        )
    # A notebook that is run again after a restart requests no second one.
    kept = (
        [one for one in allocations() if one.keep and one.label == name] if name and "keep" in parsed.keywords else []
    )
    if kept:
        raise UsageError(
            f"{name} is already a kept allocation: {kept[0]!r}",
            hint=f"Use `%salloc on={name} as={name}` to use it, `%salloc release on={name}` to release it.",
        )
    request, lease = _holder(cluster, parsed), _lease(parsed.keywords.get("lease"))
    keep = "keep" in parsed.keywords
    if not keep and (waiting := _kept_for_this_cell(cluster, request, lease, name)) is not None:
        sys.stdout.write(f"{waiting.title} is still open since the kernel before, and is used again.\n")
        return waiting
    return allocate(cluster, request, lease=lease, label=name, keep=keep)


def _kept_for_this_cell(cluster: Cluster, request: Submission, lease: float, name: str | None) -> Allocation | None:
    """Return the allocation that this cell requested before the kernel was restarted.

    The same was requested under the same name: a cell that was edited requests another allocation.
    """
    wanted = {"options": list(request.options), "env": request.env, "python": request.python}
    for one in open_allocations(cluster):
        if (one.label, one._data.get("lease")) != (name, lease) or not is_for_this_notebook(one):
            continue
        with contextlib.suppress(SlurmError):  # what cannot be compared is another one
            record = one.record
            if {word: record.get(word) for word in wanted} == wanted:
                return choose(cluster, one.id, {})
    return None


def _holder(cluster: Cluster, parsed: MagicLine) -> Submission:
    """Return the batch job that holds the allocation."""
    python, env = cell_python(parsed, cluster), environment_name(parsed)
    return Submission("allocation", "", slurm_options(parsed), python=python, env=env)


def _lease(text: str | None) -> float:
    return settings().allocation_lease if text is None else idle_time(text, word="lease")


def _show(shell: Any, allocation: Allocation, parsed: MagicLine) -> Allocation:
    if name := parsed.keywords.get("as"):
        shell.push({name: allocation})
    if "wait" in parsed.keywords and "release" not in parsed.keywords:
        if (notebook := live_view.notebook()) is not None:
            allocation._show(notebook)
        allocation.wait_granted()
    else:
        mention(shell, allocation)
    return allocation
