"""Magics ``%%sbatch`` and ``%sbatch``."""

from __future__ import annotations

import difflib
import functools
import sys
from collections import ChainMap
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypedDict

from jupyter_slurm.client.clusters.cluster import Cluster, for_submission
from jupyter_slurm.client.clusters.option_tables import option_table
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.output import live_view
from jupyter_slurm.client.submission.keywords import parse_restarts, parse_stage_words
from jupyter_slurm.client.submission.submit import Preview, Submission, preview, submit
from jupyter_slurm.domain.magic_line.expand import Lookup
from jupyter_slurm.domain.magic_line.parser import MagicLine, parse_cell_line, parse_line_magic
from jupyter_slurm.domain.magic_line.shell_operators import without_input
from jupyter_slurm.domain.options.option_parser import HET, OptionTable
from jupyter_slurm.domain.ranks import LAUNCHERS, several_tasks
from jupyter_slurm.domain.scripts.header_checks import check_equals_signs, header_warnings
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.domain.scripts.script import header_options, ignored_headers
from jupyter_slurm.errors import OptionError, SubmitRefused, UsageError
from jupyter_slurm.magics.cell_options import (
    ENVIRONMENT_WORDS,
    cell_kind,
    cell_label,
    cell_name,
    cell_python,
    check_name,
    environment_name,
    is_test,
    mention,
    pack_cell_variables,
    slurm_options,
)
from jupyter_slurm.magics.error_pointer import add_blame, pointing_at
from jupyter_slurm.magics.user_namespace import local_variables, lookup_in, parse_for_cluster, variables
from jupyter_slurm.runner.cell.sweep_parameters import INDEX

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.estimate import Estimate
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.domain.scripts.sweep_parameters import Sweep

__all__ = [
    "CELL_KEYWORDS",
    "FILE_KEYWORDS",
    "check",
    "find_launcher",
    "hint_at_launchers",
    "submit_cell",
    "submit_file",
]

FILE_KEYWORDS = {
    "after": True,
    "aftercorr": True,
    "afternotok": True,
    "afterany": True,
    "as": True,
    "env": True,
    "image": True,
    "modules": True,
    "resume": None,
    "show": False,
    "stage": True,
    "sweep": True,
    "sync": True,
    "wait": False,
    "zip": False,
}
"""The keywords of ``%sbatch``, and whether each takes a value."""

CELL_KEYWORDS = {**FILE_KEYWORDS, "python": True, "in": True, "out": True, "launcher": True}
"""The keywords of ``%%sbatch``."""

# Options with which sbatch does not submit this cell.
_REFUSED = {
    "wrap": (
        "--wrap is not possible in %%sbatch: the cell is the script.",
        "Put the command into the cell, or use %sbatch.",
    ),
    "wait": (
        "--wait is not supported: sbatch would keep running.",
        "Use the keyword `wait`, without dashes. It shows the output and can be interrupted.",
    ),
    "help": ("--help submits nothing.", "Use `%%sbatch?` for the help."),
    "usage": ("--usage submits nothing.", "Use `%%sbatch?` for the help."),
    "version": ("--version submits nothing.", "Use `%sinfo --version` for the version."),
}

_WRAPPER = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n{}\n"  # as sbatch itself writes it


class _Interpreter(TypedDict, total=False):
    """The Python of a submission, and the maximum number of restarts."""

    resume: int | None
    python: str
    default_python: str


class _FileParts(_Interpreter, total=False):
    """The parts of a file's submission that keywords of the line decide."""

    sweep: Sweep | None
    env: str | None
    stage: api.Stage | None
    cwd: str | None


def submit_cell(shell: Any, line: str, cell: str, local_ns: Mapping[str, object]) -> Job | Preview | Estimate:
    """Run ``%%sbatch``: submit the cell as a job."""
    cluster, prefix = for_submission(), "%%sbatch "
    with pointing_at(prefix, line):
        table, lookup = option_table(cluster, "sbatch"), lookup_in(shell, local_ns)
        parsed = parse_for_cluster(parse_cell_line, cluster, line, table, CELL_KEYWORDS, lookup)
        check(parsed)
    kind = cell_kind(shell, parsed, cell)
    header_options(cell)  # an open quote is refused before the submission, not by the node
    if kind == "script" and "python" in parsed.keywords and "resume" not in parsed.keywords:
        raise UsageError(
            "python= applies to Python cells, and this cell is a script.",
            hint="Name the interpreter in its first line.",
        )
    if kind == "script" and (both := [word for word in ("in", "out", "launcher") if word in parsed.keywords]):
        hint = "Call srun or torchrun in the script." if both[0] == "launcher" else "Pass arguments: `-- {x}`."
        raise UsageError(f"{both[0]}= applies to Python cells, and this cell is a script.", hint=hint)
    _check_header(cell, kind, table)
    if kind == "python" and "launcher" not in parsed.keywords:
        hint_at_launchers(parsed, cell, table)
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    sweep = _sweep(parsed, namespace)
    interpreter: _Interpreter = {**_pythons(parsed, cluster, kind), **_resumed(parsed, cluster, kind)}
    submission = Submission(
        kind,
        cell,
        slurm_options(parsed),
        parsed.args,
        **interpreter,
        env=environment_name(parsed),
        stage=parse_stage_words(parsed.keywords),
        filename=cell_name(shell) if kind == "python" else None,
        values=pack_cell_variables(parsed, namespace, _sweep_variables(parsed, cell, sweep)),
        sweep=sweep,
        launcher=find_launcher(parsed),
        label=cell_label(shell, parsed, cell),
    )
    if kind == "python" and submission.sweep is not None:
        from jupyter_slurm.client.submission.sweep_keyword import warn_hidden_functions

        warn_hidden_functions(submission.sweep, cell)
    return _submit(shell, cluster, parsed, _after(cluster, parsed, submission, namespace), prefix, line)


def _sweep(parsed: MagicLine, namespace: Mapping[str, object]) -> Sweep | None:
    """Return the parameters of the tasks that ``sweep=`` requests."""
    if not {"sweep", "zip"} & parsed.keywords.keys():
        return None
    from jupyter_slurm.client.submission.sweep_keyword import parse_sweep  # few cells have a sweep

    return parse_sweep(parsed.keywords, namespace)


def _sweep_variables(parsed: MagicLine, cell: str, sweep: Sweep | None) -> set[str]:
    """Return the variables that each task of an array gets; none for other jobs."""
    is_array = (
        any(option.name == "array" for option in parsed.parsed.options)
        or any(word.startswith(("--array", "-a")) for word in header_options(cell))
        or "array" in other_options(cell)
    )
    return {INDEX, *(sweep.names if sweep else ())} if sweep or is_array else set()


def _resumed(parsed: MagicLine, cluster: Cluster, kind: str) -> _Interpreter:
    """Return the value of ``resume``; for a script, with the Python that supervises it on the node."""
    if "resume" not in parsed.keywords:
        return {}
    return {"resume": parse_restarts(parsed), **({"python": cell_python(parsed, cluster)} if kind == "script" else {})}


def submit_file(shell: Any, line: str, local_ns: Mapping[str, object]) -> Job | Preview | Estimate:
    """Run ``%sbatch job.sh args``, or ``%sbatch --wrap COMMAND``."""
    cluster, prefix = for_submission(), "%sbatch "
    with pointing_at(prefix, line):
        table = option_table(cluster, "sbatch")
        parsed, as_typed, local_name = _parse_file_line(line, cluster, table, lookup_in(shell, local_ns))
    namespace = ChainMap(dict(local_ns), shell.user_ns)
    more: _FileParts = {
        **_pythons(parsed, cluster, "script"),
        **_resumed(parsed, cluster, "script"),
        "sweep": _sweep(parsed, namespace),
        "env": environment_name(parsed),
        "stage": parse_stage_words(parsed.keywords),
        "cwd": None,
    }
    wrapped = [option.value for option in as_typed.parsed.options if option.name == "wrap"]
    if wrapped:
        if parsed.rest:
            raise UsageError(f"--wrap and the script {parsed.rest[0]!r} cannot be combined.", hint="Omit one of them.")
        text = _WRAPPER.format(wrapped[-1])
        submission = Submission("script", text, slurm_options(parsed), script_name="wrap", **more)
    elif not parsed.rest:
        raise UsageError(
            "%sbatch needs a script.", hint="Use `%sbatch [options] job.sh [arguments]`, or `%%sbatch` for a cell."
        )
    else:
        from jupyter_slurm.client.submission.script_files import read_script  # cells have no file

        script = read_script(cluster, parsed.rest[0], local_name)
        _check_header(script.text, "script", table)
        more["cwd"] = script.folder  # where sbatch would be called on the login node
        options = slurm_options(parsed)
        submission = Submission("script", script.text, options, parsed.rest[1:], script_name=script.name, **more)
    return _submit(shell, cluster, parsed, _after(cluster, parsed, submission, namespace), prefix, line)


def _parse_file_line(
    line: str, cluster: Cluster, table: OptionTable, lookup: Lookup
) -> tuple[MagicLine, MagicLine, str | None]:
    """Return a line of ``%sbatch``, the same without variables, and the script's name with those of this computer.

    The variables in a command (``--wrap``) are those of the node.
    """
    (words, read), (_, local_read) = (
        without_input(line, lookup, names) for names in (variables(line, cluster), local_variables(line))
    )
    parsed = parse_for_cluster(parse_line_magic, cluster, words, table, FILE_KEYWORDS, lookup)
    local, as_typed = (
        parse_line_magic(words, table, FILE_KEYWORDS, lookup, names) for names in (local_variables(words), {})
    )
    check(parsed, wrap=True)
    if read is None:
        return parsed, as_typed, next(iter(local.rest), None)
    if parsed.rest:
        hint = "Use `%sbatch [options] job.sh [arguments]`."
        raise UsageError(f"The line has two scripts: {parsed.rest[0]} and {read}.", hint=hint)
    parsed.rest.append(read)
    return parsed, as_typed, local_read


def _submit(
    shell: Any, cluster: Cluster, parsed: MagicLine, submission: Submission, prefix: str, line: str
) -> Job | Preview | Estimate:
    """Submit or preview, and apply the keywords."""
    try:
        if is_test(parsed):
            from jupyter_slurm.client.submission.estimate import estimate  # rarely used

            return estimate(cluster, submission)
        if "show" in parsed.keywords:
            return preview(cluster, submission)
        _warn_about_python(cluster, submission)
        job = submit(cluster, submission)
    except (SubmitRefused, OptionError) as error:
        add_blame(error, prefix, line, parsed, submission.text)
        raise
    if name := parsed.keywords.get("as"):
        shell.push({name: job})
    if "out" in parsed.keywords:
        job._listener = shell.push
    if "wait" in parsed.keywords:
        notebook = live_view.notebook()
        if notebook is not None:
            job._show(notebook)
        job._wait(None, check=True, echo=notebook is None)
    else:
        mention(shell, job)
    return job


def _after(cluster: Cluster, parsed: MagicLine, submission: Submission, namespace: Mapping[str, object]) -> Submission:
    """Add the dependency that ``after=`` requests."""
    if not any(word.startswith("after") for word in parsed.keywords):
        return submission
    from jupyter_slurm.client.submission.dependencies import dependency_options  # few cells have dependencies

    table, said = option_table(cluster, "sbatch"), submission.options
    added = dependency_options(parsed.keywords, namespace, cluster, table, said, submission.text)
    return replace(submission, options=[*added, *said])  # in front: for components, the first one has it


def check(parsed: MagicLine, *, wrap: bool = False) -> None:
    """Refuse options that contradict each other or prevent a submission."""
    for index, option in enumerate(parsed.parsed.options):
        if option.name in _REFUSED and not (wrap and option.name == "wrap"):
            message, hint = _REFUSED[option.name]
            at = sum(len(before.tokens) for before in parsed.parsed.options[:index])
            raise OptionError(
                message, hint=hint, option=option.name, span=list(parsed.spans[min(at, len(parsed.spans) - 1)])
            )
    without = "--test-only" if is_test(parsed) else "`show`" if "show" in parsed.keywords else None
    if without and (
        both := [word for word in ("wait", "as", "show") if word in parsed.keywords and word not in without]
    ):
        raise UsageError(f"{without} submits nothing, so `{both[0]}` has no effect.", hint="Omit one of them.")
    check_name(parsed)


def _pythons(parsed: MagicLine, cluster: Cluster, kind: str) -> _Interpreter:
    """Return the interpreter for a Python cell: the named one, or the default, which an environment may replace."""
    if "python" in parsed.keywords:
        return {} if kind == "script" else {"python": cell_python(parsed, cluster)}
    is_plain = not parsed.keywords.keys() & ENVIRONMENT_WORDS
    return {} if kind == "script" and is_plain else {"default_python": cell_python(parsed, cluster)}


def _warn_about_python(cluster: Cluster, submission: Submission) -> None:
    """Warn before the submission if the nodes may not see its Python; once for each."""
    python = submission.python or (None if submission.env else submission.default_python)
    if python is None or python in cluster.checked_pythons:
        return
    for warning in preview(cluster, submission).warnings:
        sys.stderr.write(f"Warning: {warning}\n")
    if cluster.is_remote and python == cluster.python:
        sys.stderr.write(
            f"Python cells on {cluster.name}: {cluster.python} of the node. Choose another with env=NAME.\n"
        )
    cluster.checked_pythons.add(python)


def _check_header(text: str, kind: str, table: OptionTable) -> None:
    """Refuse a blank beside an equals sign in ``#SBATCH``, and warn of what Slurm ignores."""
    check_equals_signs(text, table)
    lines = ignored_headers(text)
    if lines:
        where = ", ".join(map(str, lines))
        first = "first command" if kind == "script" else "first statement"
        sys.stderr.write(f"Warning: Slurm ignores #SBATCH in line {where}: it comes after the {first}.\n")
    sys.stderr.writelines(f"Warning: {warning}\n" for warning in header_warnings(text, table))


def find_launcher(parsed: MagicLine) -> str | None:
    """Return the launcher of the ranks of the cell; None if the cell runs once.

    Raises
    ------
    UsageError
        The launcher is unknown.
    """
    name = parsed.keywords.get("launcher")
    if name is None or name in LAUNCHERS:
        return name
    near = difflib.get_close_matches(name, LAUNCHERS, n=1)
    hint = f"Did you mean launcher={near[0]}?" if near else f"Use one of {', '.join(LAUNCHERS)}."
    raise UsageError(f"launcher={name} is not supported.", hint=hint)


def hint_at_launchers(parsed: MagicLine, cell: str, table: OptionTable) -> None:
    """Print, once in a kernel, that a cell with several tasks runs once, and which launcher runs it in each task."""
    options = [*table.split(header_options(cell)).options, *parsed.parsed.options]
    if any(option.name == HET for option in options):
        return  # no launcher supports components
    if several_tasks({option.name: option.value for option in options}):
        _show_hint()


@functools.cache
def _show_hint() -> None:
    sys.stderr.write(
        "This cell runs once, on the first node. Add launcher=srun to run it in each task (see %%sbatch?).\n"
    )
