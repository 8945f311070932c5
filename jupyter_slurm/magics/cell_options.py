"""Options common to the magics that take a cell or request resources."""

from __future__ import annotations

import keyword
import os
import sys
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from IPython.core.inputtransformer2 import TransformerManager

from jupyter_slurm.client.clusters.cluster import Cluster, current
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.jobs.request import origin
from jupyter_slurm.client.render.job_card import headline
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import python_named, runner_names
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.domain.options.option_parser import words_of
from jupyter_slurm.domain.scripts.environments import AUTOMATIC_ENVIRONMENT
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.domain.scripts.script import Kind, classify, header_options
from jupyter_slurm.errors import CellError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.in_out_variables import PackedVariables

__all__ = [
    "ENVIRONMENT_WORDS",
    "OF_JOBS_ALONE",
    "as_python",
    "cell_kind",
    "cell_label",
    "cell_name",
    "cell_python",
    "check_name",
    "check_step",
    "environment_name",
    "is_test",
    "mention",
    "named_python",
    "pack_cell_variables",
    "slurm_options",
]

ENVIRONMENT_WORDS = frozenset({"env", "image", "modules"})
"""Keywords that name an environment."""

OF_JOBS_ALONE: Mapping[str, bool | None] = {"resume": None}
"""Keywords of jobs that :func:`check_step` refuses for steps with the reason."""


def check_name(parsed: MagicLine) -> None:
    """Refuse an ``as=`` that is not a variable name."""
    name = parsed.keywords.get("as")
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"as={name} is not a Python variable name.", hint="Use for example as=job.")


def check_step(parsed: MagicLine) -> None:
    """Refuse an ``as=`` that is not a variable name, and keywords that steps do not have."""
    check_name(parsed)
    if "resume" in parsed.keywords:
        raise UsageError(
            "A step cannot resume, because Slurm requeues jobs and not steps.",
            hint="Use `%%sbatch resume`, or let the step save its state in checkpoint_dir() and run it again.",
        )


def is_test(parsed: MagicLine) -> bool:
    """Return whether the line only asks for an estimated start."""
    return any(option.name == "test-only" for option in parsed.parsed.options)


def slurm_options(parsed: MagicLine) -> list[str]:
    """Return the words of Slurm's options, without those for the handling of the job."""
    ours = ("wrap", "test-only")
    return words_of(parsed.parsed.options, lambda name: name not in ours)


def as_python(cell: str) -> str:
    """Convert magics and ``!commands`` to Python, independent of the notebook's extensions, which the node may lack."""
    transformer: Any = TransformerManager
    text: str = transformer().transform_cell(cell)
    return text


def cell_kind(shell: Any, parsed: MagicLine, cell: str) -> Kind:
    """Return the kind of the cell of a job, which has only its own variables and those that the line sends.

    Raises
    ------
    CellError
        The cell is neither a script nor Python, or its first line has a name without a value.
    """
    # A function that is sent brings other names.
    names = None if {"in", "sweep"} & parsed.keywords.keys() else runner_names(cell, shell)
    try:
        return classify(cell, as_python, names)
    except CellError as error:
        if name := error.details.get("variable"):
            error.hint = f"{error.hint} To send a variable of the notebook, add in={name} to the line."
        raise


def cell_python(parsed: MagicLine, cluster: Cluster) -> str:
    """Return the interpreter for a Python cell: the named one, else that of the kernel, or of the remote host."""
    named = parsed.keywords.get("python")
    if named and parsed.keywords.keys() & ENVIRONMENT_WORDS and "/" not in named:
        return named  # that of the environment, perhaps other than a local one of the same name
    return python_named(named, cluster)


def environment_name(parsed: MagicLine) -> str | None:
    """Return the environment that ``modules=`` and ``env=`` name together, or the one of ``image=``.

    With ``env=auto`` this waits until a job has made the environment.

    Raises
    ------
    UsageError
        ``modules=`` names no modules, or the keywords exclude each other.
    """
    modules, name, image = (parsed.keywords.get(word) for word in ("modules", "env", "image"))
    if name == AUTOMATIC_ENVIRONMENT and image is None:
        from jupyter_slurm.client.environments.automatic import automatic_environment

        name = automatic_environment(current(), parsed)
    if modules is None and image is None:
        return name
    from jupyter_slurm.client.sessions.launch import environment_named  # few lines name an image or modules

    return environment_named(name, image, modules)


def named_python(parsed: MagicLine, cluster: Cluster) -> str | None:
    """Return the interpreter that ``python=`` names; None: that of the environment, else the default one."""
    return cell_python(parsed, cluster) if "python" in parsed.keywords else None


def cell_label(shell: Any, parsed: MagicLine, cell: str) -> str | None:
    """Return the displayed name of the job of a cell: that of ``as=``, else the notebook with the cell's number.

    A name that an option gives takes the place of the latter.
    """
    is_named = (
        any(option.name == "job-name" for option in parsed.parsed.options)
        or any(word.startswith(("--job-name", "-J")) for word in header_options(cell))
        or "job-name" in other_options(cell)
        or "SBATCH_JOB_NAME" in os.environ
    )
    notebook = None if is_named else origin()["notebook"]
    return parsed.keywords.get("as") or (f"{notebook[:200]} {cell_name(shell)[2:]}" if notebook else None)


def cell_name(shell: Any) -> str:
    """Return the filename of the cell in tracebacks: the displayed number, which newer IPythons have advanced."""
    running = getattr(shell.displayhook, "exec_result", None)
    return f"In[{getattr(running, 'execution_count', None) or shell.execution_count}]"


def pack_cell_variables(
    parsed: MagicLine, namespace: Mapping[str, object], array_variables: Set[str] = frozenset()
) -> PackedVariables | None:
    """Return the packed variables of ``in=`` and ``out=``; ``given`` are names that each task gets otherwise."""
    if not {"in", "out"} & parsed.keywords.keys():
        return None
    from jupyter_slurm.client.submission.in_out_variables import (
        parcel,  # imports pickle and more; few cells have variables
    )

    return parcel(parsed.keywords, namespace, settings().values_limit, array_variables)


def mention(shell: Any, job: Job) -> None:
    """Print a line about a job that is not displayed: one made in a loop, or in the middle of a cell."""

    def look() -> None:
        shell.events.unregister("post_execute", look)
        if not job._is_shown:
            sys.stdout.write(f"{headline(job._data)}\n")

    shell.events.register("post_execute", look)
