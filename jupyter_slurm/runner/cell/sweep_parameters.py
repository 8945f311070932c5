"""Parameters of a sweep, in the job directory: ``sweep.json``. Python 3.8+, standard library only.

::

    {"format": 1, "names": [name, …], "rows": [[literal, …], …]}

Task N of the array has row N. Values are written as literals of Python, so that a number, a text, None or a tuple keeps
its type in the job.
"""

from __future__ import annotations

import ast
import json
import warnings
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import JobDocument

FILE = "sweep.json"
INDEX = "task_index"

_NOT_FINITE = ("inf", "-inf", "nan")


def value_of(literal: str) -> Any:
    """Return the value of a literal. Invalid literals raise ValueError, among others."""
    if literal in _NOT_FINITE:
        return float(literal)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # text that is nearly a number: 0x1for
        return ast.literal_eval(literal)


def variables(folder: str, job: JobDocument, task: int) -> dict[str, object]:
    """Return the variables of an array task for its cell: its index, and its parameters in a sweep."""
    if not job.get("sweep"):
        return {INDEX: task}
    with open(f"{folder}/{FILE}", encoding="utf-8") as file:
        table = json.load(file)
    values = [value_of(literal) for literal in table["rows"][task]]
    return {INDEX: task, **dict(zip(table["names"], values))}
