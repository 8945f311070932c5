"""What the magics that take a cell, or ask for resources, have in common."""

from __future__ import annotations

import keyword
import sys
from collections.abc import Mapping, Set
from typing import TYPE_CHECKING, Any

from IPython.core.inputtransformer2 import TransformerManager

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.client.render.job_card import headline
from jupyter_slurm.client.settings import settings
from jupyter_slurm.client.submission.submit import python_named
from jupyter_slurm.domain.magic_line.parser import MagicLine
from jupyter_slurm.errors import UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.submission.variables import PackedVariables

__all__ = ["as_python", "cell_name", "check_name", "is_test", "mention", "options_of", "parcel_of", "python_of"]


def check_name(parsed: MagicLine) -> None:
    """Refuse an ``as=`` that names no variable."""
    name = parsed.words.get("as")
    if name is not None and (not name.isidentifier() or keyword.iskeyword(name)):
        raise UsageError(f"as={name}: that is no name of a Python variable.", hint="For example as=job.")


def is_test(parsed: MagicLine) -> bool:
    """Tell whether Slurm is only asked when the job could start."""
    return any(option.name == "test-only" for option in parsed.parsed.options)


def options_of(parsed: MagicLine) -> list[str]:
    """Return the words of Slurm's options, without those that say what is to be done with them."""
    ours = ("wrap", "test-only")
    return [token for option in parsed.parsed.options if option.name not in ours for token in option.tokens]


def as_python(cell: str) -> str:
    """Make Python of magics and ``!commands``; not as the notebook does, which may know more than the node."""
    transformer: Any = TransformerManager
    text: str = transformer().transform_cell(cell)
    return text


def python_of(parsed: MagicLine, cluster: Cluster) -> str:
    """Return the interpreter for a Python cell: the one that was named, else the kernel's own, or the far side's."""
    named = parsed.words.get("python")
    if named and "env" in parsed.words and "/" not in named:
        return named  # the environment's own, which may be another than that of the same name here
    return python_named(named, cluster)


def cell_name(shell: Any) -> str:
    """Return what a traceback calls the cell: the number beside it, which newer IPythons have left behind by now."""
    running = getattr(shell.displayhook, "exec_result", None)
    return f"In[{getattr(running, 'execution_count', None) or shell.execution_count}]"


def parcel_of(
    parsed: MagicLine, namespace: Mapping[str, object], given: Set[str] = frozenset()
) -> PackedVariables | None:
    """Return what ``in=`` and ``out=`` ask for, ready to travel; ``given`` is there in each task without that."""
    if not {"in", "out"} & parsed.words.keys():
        return None
    from jupyter_slurm.client.submission.variables import parcel  # with all that pickles: few cells have values

    return parcel(parsed.words, namespace, settings().values_limit, given)


def mention(shell: Any, job: Job) -> None:
    """Say a line about a job that nobody shows: one made in a loop, or in the middle of a cell."""

    def look() -> None:
        shell.events.unregister("post_execute", look)
        if not job._is_shown:
            sys.stdout.write(f"{headline(job._data)}\n")

    shell.events.register("post_execute", look)
