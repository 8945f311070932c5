"""Sweeps: arrays in which each task has a row of a table of parameters.

Typed form: ``lr:1e-4,1e-3;gamma:0.9,1``. Semicolons separate parameters, commas separate values; brackets and quotes
group. A Python literal is its value, any other text is a string.
"""

from __future__ import annotations

import itertools
import json
import keyword
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from jupyter_slurm.domain.ids import TaskRange
from jupyter_slurm.domain.scripts.script import header_lines, interpreter_words, quote_argv
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.cell.sweep_parameters import INDEX, value_of

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["MAX_SWEEP_TASKS", "Sweep", "task_script", "to_literal", "typed_literal"]

#: A larger number of tasks is a typing error, and exceeds every cluster's MaxJobCount.
MAX_SWEEP_TASKS: Final = 1_000_000

_EXAMPLE = "Write it like sweep=lr:1e-4,1e-3;gamma:0.9,1, or sweep=NAME of a list of dicts."
_MAX_LITERAL_CHARACTERS = 4096
_OPEN, _CLOSE = "([{", ")]}"
_PROTECTED_VARIABLES = {"CUDA_VISIBLE_DEVICES", "HOME", "LD_LIBRARY_PATH", "LD_PRELOAD", "PATH", "PYTHONPATH", "TMPDIR"}
_CALL = re.compile(r"(?:\w+\.)*(?:range|arange|linspace|logspace|geomspace)\(.*\)", re.DOTALL)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Sweep:
    """A table of parameters.

    Attributes
    ----------
    names : tuple of str
        Names of the parameters, valid as names of variables.
    rows : tuple of tuples of str
        Their values as Python literals, one row for each task.
    """

    names: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        """Refuse names that are not valid for variables, tables that are too long, and tables without rows."""
        for name in self.names:
            if not name.isidentifier() or keyword.iskeyword(name) or name == INDEX:
                raise UsageError(f"sweep=: {name!r} is not a valid parameter name.", hint=_EXAMPLE)
            if name in _PROTECTED_VARIABLES or name.startswith(("SLURM_", "SBATCH_")):
                raise UsageError(
                    f"sweep=: the parameter {name} would change how a script finds its commands or its job.",
                    hint="Give the parameter another name.",
                )
        if len(set(self.names)) < len(self.names):
            raise UsageError("sweep=: a parameter is given twice.", hint="Give each parameter its values once.")
        if any(len(literal) > _MAX_LITERAL_CHARACTERS for row in self.rows for literal in row):
            raise UsageError(
                f"sweep=: a value is longer than {_MAX_LITERAL_CHARACTERS} characters.",
                hint="Send the long value with in=, and select it by a parameter.",
            )
        if not self.names or not self.rows:
            raise UsageError("sweep=: there are no values.", hint=_EXAMPLE)

    @classmethod
    def typed(cls, text: str, *, zipped: bool) -> Sweep:
        """Parse the typed value of ``sweep=``.

        Raises
        ------
        UsageError
            The value cannot be parsed, or has too many rows.
        """
        columns: list[tuple[str, list[str]]] = []
        for piece in _split(text, ";"):
            name, colon, values = piece.partition(":")
            literals = [value.strip() for value in _split(values, ",")]
            if not colon or not all(literals):
                raise UsageError(f"sweep=: {piece.strip()!r} is not NAME:VALUE,VALUE…", hint=_EXAMPLE)
            columns.append((name.strip(), [_no_call(name.strip(), value) for value in literals]))
        return cls.from_columns(columns, zipped=zipped)

    @classmethod
    def from_columns(cls, columns: Sequence[tuple[str, Sequence[str]]], *, zipped: bool) -> Sweep:
        """Combine the values of several parameters: all combinations, or (``zipped``) the first with the first etc."""
        lengths = {name: len(values) for name, values in columns}
        count = math.prod(lengths.values())
        if zipped and len(set(lengths.values())) > 1:
            said = ", ".join(f"{length} of {name}" for name, length in lengths.items())
            raise UsageError(
                f"sweep= with `zip` needs the same number of values for each parameter, but there are {said}.",
                hint=_EXAMPLE,
            )
        if not zipped and count > MAX_SWEEP_TASKS:
            raise UsageError(
                f"sweep= would create {count:,} tasks, which are too many.",
                hint="Use `zip` to combine the values side by side, or give fewer values.",
            )
        lists = [values for _, values in columns]
        rows = zip(*lists, strict=True) if zipped else itertools.product(*lists)
        return cls(tuple(name for name, _ in columns), tuple(map(tuple, rows)))

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[Any, Any]]) -> Sweep:
        """Build a sweep from rows, a mapping for each task.

        Raises
        ------
        UsageError
            The rows have different parameters, or a value has no literal. The message names the value and the reason.
        """
        names: tuple[str, ...] = ()
        table = []
        for number, row in enumerate(rows):
            if number == 0:
                names = tuple(map(str, row))
            if set(names) != set(map(str, row)):
                own = ", ".join(map(str, row))
                raise UsageError(
                    f"sweep=: row {number} has the parameters {own}, row 0 has {', '.join(names)}.",
                    hint="Give every row a value for each parameter. None is a valid value.",
                )
            values = {str(name): value for name, value in row.items()}
            table.append(tuple(to_literal(name, values[name]) for name in names))
        return cls(names, tuple(table))

    def as_dict(self) -> api.Sweep:
        """Return the table in the form of the API."""
        return {"names": self.names, "rows": self.rows}

    def as_file(self) -> bytes:
        """Return the table in the form of the job directory (runner/cell/sweep_parameters.py)."""
        return json.dumps({"format": 1, **self.as_dict()}, separators=(",", ":")).encode()

    def tasks(self, requested: str | None) -> str:
        """Return the rows that run, in the form of --array: all rows, or the requested ones.

        Raises
        ------
        UsageError
            A requested row does not exist.
        """
        if requested is None:
            return f"0-{len(self.rows) - 1}"
        highest = max((last for _, last, _ in TaskRange.requested(requested).ranges), default=0)
        if highest >= len(self.rows):
            raise UsageError(
                f"--array={requested}: the sweep has no row {highest}.",
                hint=f"Choose rows from 0-{len(self.rows) - 1}, or leave --array out to run all rows.",
            )
        return requested

    def as_shell(self) -> str:
        """Return shell text that sets the variables of a task. :func:`quote_argv` quotes every word.

        Raises
        ------
        UsageError
            A parameter is not valid as an environment variable.
        """
        for name in self.names:
            if not _VARIABLE.fullmatch(name):
                raise UsageError(
                    f"sweep=: {name!r} is not a valid name of an environment variable.",
                    hint="Use ASCII letters, digits and underscores.",
                )
        lines = [f'case "${INDEX}" in']
        for task, row in enumerate(self.rows):
            values = {INDEX: str(task), **dict(zip(self.names, map(_as_variable, row), strict=True))}
            words = quote_argv(["export", *(f"{name}={value}" for name, value in values.items())])
            lines.append(f"{task}) {words} ;;")
        return "\n".join([*lines, "esac", ""])


def _no_call(name: str, text: str) -> str:
    """Return a typed literal. Refuse a call that makes a list in Python, because it would be one string in a sweep."""
    if _CALL.fullmatch(text):
        hint = f"Write the values, sweep={name}:0,1,2, or grid = {{{name!r}: {text}}} before it, and sweep=grid."
        raise UsageError(f"sweep=: {name}:{text} would be one value, the text {text!r}.", hint=hint)
    return typed_literal(text)


def typed_literal(text: str) -> str:
    """Return a typed value as a literal: unchanged if it is a literal, else as a string."""
    try:
        value_of(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return repr(text)
    return text


def to_literal(name: str, value: Any) -> str:
    """Return the literal of a value.

    Raises
    ------
    UsageError
        The value has no literal: only numbers, strings, True, False, None and lists, tuples, sets and dicts of these
        have.
    """
    if getattr(value, "shape", None) == () and hasattr(value, "item"):
        value = value.item()  # of numpy
    literal = repr(value)
    try:
        back = value_of(literal)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        back = None
    if type(back) is type(value) and (back == value or value != value):  # NaN is not equal to itself
        return literal
    raise UsageError(
        f"sweep=: {name} is a {type(value).__name__}, which cannot be a parameter.",
        hint="Use numbers, text, True, False, None, and lists, tuples and dicts of them. Send any other "
        "object with in=, and select it by a parameter.",
    )


def task_script(text: str, *, script: str, variables: str | None = None, offset: int = 0) -> str:
    """Return the batch script that sets the variables of its task and then runs an unchanged script.

    Parameters
    ----------
    text : str
        The script. Its ``#SBATCH`` lines are copied, and the interpreter in its first line runs it.
    script : str
        Path of the script.
    variables : str, optional
        Path of the text of :meth:`Sweep.as_shell`, for a sweep.
    offset : int
        Difference between the index of a task and Slurm's index.
    """
    words = quote_argv([*interpreter_words(text), script])
    lines = ["#!/bin/sh", *header_lines(text), f"{INDEX}=$((SLURM_ARRAY_TASK_ID + {offset}))", f"export {INDEX}"]
    if variables is not None:
        lines.append(f". {quote_argv([variables])} || exit")
    return "\n".join([*lines, f'exec {words} "$@"', ""])


def _as_variable(literal: str) -> str:
    value = value_of(literal)
    text = value if isinstance(value, str) else literal
    if "\0" in text:
        raise UsageError("sweep=: a value holds a NUL byte.", hint="Remove the NUL byte.")
    return text


def _split(text: str, mark: str) -> list[str]:
    """Split at a separator outside brackets and quotes."""
    pieces, depth, quote, begin = [], 0, "", 0
    for at, char in enumerate(text):
        if quote:
            quote = "" if char == quote else quote
        elif char in "'\"" and text[:at].rstrip()[-1:] in ("", *":,;([{"):
            quote = char  # only at the beginning of a value; an apostrophe within a word is no quote
        elif char in _OPEN:
            depth += 1
        elif char in _CLOSE:
            depth = max(0, depth - 1)
        elif char == mark and not depth:
            pieces.append(text[begin:at])
            begin = at + 1
    return [*pieces, text[begin:]]
