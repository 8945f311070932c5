"""Effective options of a submission, from the command line, the environment and the script; options of its outputs."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping, Sequence

from jupyter_slurm.domain.environment_variables import SBATCH_VARIABLES
from jupyter_slurm.domain.options.option_parser import HET, Option, OptionTable
from jupyter_slurm.domain.options.request import Request
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.errors import OptionError, UsageError
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import OutputsRecord

__all__ = ["options_in_force", "output_options"]

# Options that turn sbatch into something other than the submission of this script.
_NOT_HERE = {
    "wrap": "the cell is the script",
    "wait": "write `wait` (without dashes) to wait for the job",
    "test-only": "only on the line of %%sbatch, %sbatch or %salloc it shows when the job could start",
    "help": "`%%sbatch?` shows the help",
    "usage": "`%%sbatch?` shows the help",
    "version": "`%sinfo --version` shows the version",
}

# Options that components of a heterogeneous job inherit from the first one.
_PASSED_ON = ("account", "cluster", "clusters", "qos", "reservation", "time", "time-min")


def options_in_force(table: OptionTable, options: Sequence[str], text: str, env: Mapping[str, str]) -> list[Request]:
    """Return the effective options: environment over the script's header, command line over both (sbatch(1)).

    Parameters
    ----------
    table : OptionTable
        Options of sbatch.
    options : sequence of str
        Options of the command line.
    text : str
        The script. Its ``#PBS`` and ``#BSUB`` lines count over ``#SBATCH``, in each component.
    env : mapping
        Environment of sbatch.

    Returns
    -------
    list of Request
        One for each component of a heterogeneous job, first the one that runs the script; one for any other job.

    Raises
    ------
    OptionError
        An option is not allowed in its place.
    """
    typed = _components(table, options, is_typed=True)
    written = _components(table, header_options(text), is_typed=False)
    is_ignored = "SBATCH_IGNORE_PBS" in env or any("ignore-pbs" in one for one in (*typed, *written))
    other = {} if is_ignored else other_options(text)
    variables = {name: variable for variable, name in SBATCH_VARIABLES.items() if env.get(variable)}
    set_outside = {name: env[variable] for name, variable in variables.items()}
    found: list[Request] = []
    passed_on: dict[str, str | None] = {}
    for number in range(max(len(typed), len(written))):
        above = typed[number] if number < len(typed) else {}
        below = {**(written[number] if number < len(written) else {}), **other}
        own = {name: variable for name, variable in variables.items() if name not in above}
        found.append(Request({**passed_on, **below, **set_outside, **above}, own))
        if not number:
            passed_on = {name: value for name, value in {**below, **above}.items() if name in _PASSED_ON}
    return found


def _components(table: OptionTable, arguments: Sequence[str], *, is_typed: bool) -> list[dict[str, str | None]]:
    """Return the options of each component, by long name."""
    split = table.split(arguments)
    if split.rest and is_typed:
        raise OptionError(
            f"{split.rest[0]!r} is not an option of sbatch.",
            hint="Write the arguments of the script after `--`.",
            option=split.rest[0],
        )
    found: list[dict[str, str | None]] = [{}]
    for option in _allowed(split.options):
        if option.name == HET:
            found.append({})
        else:
            found[-1][option.name] = option.value
    return found


def _allowed(options: Sequence[Option]) -> Iterator[Option]:
    for option in options:
        if option.name in _NOT_HERE:
            raise OptionError(
                f"--{option.name} cannot be used: {_NOT_HERE[option.name]}.",
                hint=f"Leave --{option.name} out.",
                option=option.tokens[0],
            )
        yield option


def output_options(job: JobFolder, chosen: Mapping[str, str | None]) -> tuple[list[str], OutputsRecord]:
    """Add output paths if the user gave none; return the options to add and the effective patterns."""
    task = ".%a" if "array" in chosen else ""
    if "output" in chosen:
        output = chosen["output"]
        return [], OutputsRecord(stdout=output, stderr=chosen.get("error") or output)
    stderr = chosen.get("error")
    added = [f"--output={_literal(job.file('stdout'))}{task}"]
    if "error" not in chosen:
        stderr = job.file("stderr") + task
        added.append(f"--error={_literal(job.file('stderr'))}{task}")
    if "open-mode" not in chosen:
        added.append("--open-mode=append")  # a requeue would truncate earlier output
    return added, OutputsRecord(stdout=job.file("stdout") + task, stderr=stderr)


def _literal(path: str) -> str:
    """Escape a path for a filename pattern; a backslash would disable patterns and cannot be escaped."""
    if "\\" in path:
        raise UsageError(
            f"Job directories cannot be created in {posixpath.dirname(path)}, because its name has a backslash.",
            hint="Choose another directory: c.JupyterSlurm.job_root, or job_root in the profile of the cluster.",
        )
    return path.replace("%", "%%")
