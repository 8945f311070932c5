"""Values in a magic line: ``{name}``, ``$name``, ``${name}`` of Python, else ``$NAME`` and ``~`` as in a shell.

A name that neither Python nor the environment knows stays as typed, for the cluster or for awk. The braces may contain
a name, its attributes and its items (``{job.id}``, ``{runs[0].folder}``, ``{paths['data']}``), and arithmetic with them
(``{n + 1}``, ``{n:03}``). Nothing is called. Any other text of Python names is refused, because the job would get the
braces: a call, a missing attribute, a private attribute, a method. A function, class or module (``awk {print}``),
doubled braces and ``$$`` stay as typed. So does text in single quotes or after a backslash.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import ModuleType
from typing import Any

from jupyter_slurm.domain.magic_line.expression import MISSING, Lookup, value_of_expression
from jupyter_slurm.domain.scripts.sweep_parameters import to_literal
from jupyter_slurm.errors import UsageError

__all__ = ["MISSING", "Lookup", "expand_at", "variable_at"]

_NAME = r"[A-Za-z_][A-Za-z0-9_]*"
_STEP = r"""\.[A-Za-z][A-Za-z0-9_]*|\[-?[0-9]{1,9}\]|\['[^'\]\\]*'\]|\["[^"\]\\]*"\]"""
_REFERENCE = re.compile(rf"\{{(?P<path>{_NAME}(?:{_STEP})*)\}}|\$(?P<name>{_NAME})|\$\{{(?P<braced>{_NAME})\}}")
_STEPS = re.compile(_STEP)
_VARIABLE = re.compile(rf"\$(?P<name>{_NAME})|\$\{{(?P<braced>{_NAME})\}}")
_HOME = re.compile(r"~(?=/|\s|\Z)")


def expand_at(text: str, at: int, lookup: Lookup, *, is_sweep: bool = False) -> tuple[str, int] | None:
    """Expand the reference at a position.

    Parameters
    ----------
    text : str
        The line.
    at : int
        Position of a ``{`` or ``$``.
    lookup : callable
        Returns the value of a Python name, or :data:`MISSING`.
    is_sweep : bool
        Whether the value is a list of values of a sweep, whose parser would otherwise read its text again.

    Returns
    -------
    (str, int) or None
        The value as text, and the position after the reference; None if the text stays as typed.

    Raises
    ------
    UsageError
        The reference calls a function, fails, or has no value; ``details["span"]`` has its position.
    """
    match = _REFERENCE.match(text, at)
    if match is None and text[at] == "{" and text[max(at - 1, 0) : at] not in ("{", "$"):
        return _expand_expression(text, at, lookup, is_sweep)
    if match is None or text[max(at - 1, 0) : at] == text[at]:
        return None
    path = match["path"] or match["name"] or match["braced"]
    name = re.match(_NAME, path)
    assert name is not None
    first = value = lookup(name[0])
    steps = _STEPS.findall(path[name.end() :])
    for step in steps:
        value = MISSING if value is MISSING else _follow(value, step)
    if value is MISSING or callable(value) or isinstance(value, ModuleType):
        if steps and first is not MISSING:
            raise _unknown_reference_error(match, value)
        return None
    return _as_text(value, is_sweep), match.end()


def variable_at(text: str, at: int, variables: Mapping[str, str]) -> tuple[str, int] | None:
    """Expand the variable (``$NAME``, ``${NAME}``), or the ``~`` of the user's own home, at a position.

    Returns
    -------
    (str, int) or None
        The value, and the position after the variable; None if the text stays as typed.
    """
    if match := _HOME.match(text, at):
        return (variables["HOME"], match.end()) if "HOME" in variables else None
    match = _VARIABLE.match(text, at)
    if match is None or text[max(at - 1, 0) : at] == "$":
        return None
    name = match["name"] or match["braced"]
    return (variables[name], match.end()) if name in variables else None


def _expand_expression(text: str, at: int, lookup: Lookup, is_sweep: bool) -> tuple[str, int] | None:
    """Expand ``{n + 1}`` and ``{n:03}`` if Python has such names."""
    close = text.find("}", at)
    if close < 0:
        return None
    try:
        value = value_of_expression(text[at + 1 : close], lookup)
    except UsageError as error:
        error.details["span"] = [at, close + 1]
        raise
    if value is MISSING or callable(value) or isinstance(value, ModuleType):
        return None
    return _as_text(value, is_sweep), close + 1


def _unknown_reference_error(match: re.Match[str], value: Any) -> UsageError:
    """Return the error text for ``{job.nothing}`` and ``{job.cancel}``, if Python has the first name."""
    why = "Python has no such value" if value is MISSING else "this is not a value, and functions are not called"
    hint = "Put the text in single quotes to keep it as typed."
    return UsageError(f"{match[0]}: {why}.", hint=hint, span=[*match.span()])


def _follow(value: Any, step: str) -> Any:
    try:
        if step.startswith("."):
            return getattr(value, step[1:])
        inside = step[1:-1]
        return value[inside[1:-1] if inside[0] in "'\"" else int(inside)]
    except (AttributeError, LookupError, TypeError):
        return MISSING


def _as_text(value: Any, is_sweep: bool) -> str:
    """Return a value as one word: a list or tuple in Slurm's form, with commas; the values of a sweep as literals."""
    if is_sweep and isinstance(value, Iterable) and not isinstance(value, str | bytes | Mapping):
        return ",".join(map(_literal, value))
    if isinstance(value, list | tuple):
        return ",".join(str(item) for item in value)
    return str(value)


def _literal(value: Any) -> str:
    """Return a value of a sweep as a literal; a path or a date, for example, as its text."""
    if getattr(value, "shape", None) == () and value.dtype.kind in "fiub":
        return str(value)  # repr() of a number of single precision in Python has more digits
    try:
        return to_literal("a value", value)
    except UsageError:
        has_text = getattr(type(value), "__str__", None) is not object.__str__
        if isinstance(value, Iterable) or not has_text:
            raise
        return repr(str(value))
