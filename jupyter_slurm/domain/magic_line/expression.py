"""Arithmetic in braces: ``{n + 1}``, ``{runs[i].seed * 2}``, ``{n:03}``. A syntax tree is evaluated, without calls."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Sized
from typing import Any, Final

from jupyter_slurm.errors import UsageError

__all__ = ["MISSING", "Lookup", "value_of_expression"]

#: Result of a lookup for an unknown name.
MISSING: Final = object()

Lookup = Callable[[str], Any]

_MAX_EXPRESSION_CHARACTERS = 200
_MAX_REPEATED_ITEMS = 10_000
_MAX_POWER_BITS = 10_000
_FUNCTIONS = frozenset({"abs", "float", "int", "len", "max", "min", "range", "repr", "round", "sorted", "str", "sum"})
# A width of four digits and more would be a mistake.
_FORMATTED = re.compile(r"(?P<value>[^:!]+)(?:!(?P<conversion>[rsa]))?(?P<spec>:(?!.*[0-9]{4})[^:{}\s]*)?")
_OPERATORS: Final[dict[type[ast.AST], Callable[..., Any]]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_REFUSED = (ast.BoolOp, ast.Call, ast.Compare, ast.IfExp, ast.JoinedStr)


class _Unsupported(Exception):
    """An expression with something else than names, attributes, items and arithmetic."""


def value_of_expression(inside: str, lookup: Lookup) -> Any:
    """Return the value of the text between two braces.

    Parameters
    ----------
    inside : str
        The text, at most 200 characters: names, attributes, items, numbers, strings and ``+ - * / // % **``, and a
        format as in an f-string (``n:03``, ``name!r``).
    lookup : callable
        Returns the value of a Python name, or :data:`MISSING`.

    Returns
    -------
    object
        The value, or a str if there was a format; :data:`MISSING` if the text is no expression, or has a name without
        a value.

    Raises
    ------
    UsageError
        The text is an expression of names that have values, but it calls a function, compares, or fails.
    """
    if len(inside) > _MAX_EXPRESSION_CHARACTERS:
        return MISSING
    tree, match = _parse(inside.strip()), None
    if tree is None and (match := _FORMATTED.fullmatch(inside.strip())):
        tree = _parse(match["value"])
    if tree is None or (match is None and isinstance(tree, ast.Name)) or not _has_own_names(tree, lookup):
        return MISSING
    try:
        value = _evaluate(tree, lookup)
        return value if match is None else _format(value, match["conversion"], match["spec"])
    except _Unsupported:
        raise _refusal(inside, "only names and arithmetic are evaluated, functions are not called") from None
    except Exception as error:  # noqa: BLE001 - operators of the user's own objects raise anything
        raise _refusal(inside, f"{type(error).__name__}: {error}") from None


def _parse(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _has_own_names(tree: ast.expr, lookup: Lookup) -> bool:
    """Return whether the text is an expression of Python names that all have values."""
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    own = {name for name in names if lookup(name) is not MISSING}
    kinds = (ast.Attribute, ast.BinOp, ast.Name, ast.Subscript, ast.UnaryOp, *_REFUSED)
    return isinstance(tree, kinds) and bool(own) and names <= own | _FUNCTIONS


def _evaluate(node: ast.expr | ast.Slice | None, lookup: Lookup) -> Any:
    match node:
        case None:
            return None
        case ast.Constant():
            return node.value
        case ast.Name() if (value := lookup(node.id)) is not MISSING:
            return value
        case ast.Attribute() if not node.attr.startswith("_"):
            return getattr(_evaluate(node.value, lookup), node.attr)
        case ast.Subscript():
            return _evaluate(node.value, lookup)[_evaluate(node.slice, lookup)]
        case ast.Slice():
            return slice(*(_evaluate(part, lookup) for part in (node.lower, node.upper, node.step)))
        case ast.UnaryOp() if type(node.op) in _OPERATORS:
            return _OPERATORS[type(node.op)](_evaluate(node.operand, lookup))
        case ast.BinOp() if type(node.op) in _OPERATORS:
            left, right = _evaluate(node.left, lookup), _evaluate(node.right, lookup)
            _check_size(node.op, left, right)
            return _OPERATORS[type(node.op)](left, right)
    raise _Unsupported


def _format(value: Any, conversion: str | None, spec: str | None) -> Any:
    converters: dict[str, Callable[[Any], str]] = {"r": repr, "s": str, "a": ascii}
    value = converters[conversion](value) if conversion else value
    return value if spec is None else format(value, spec[1:])


def _check_size(kind: ast.operator, left: Any, right: Any) -> None:
    """Refuse what would fill the memory: a typing error must not stop the notebook."""
    match kind, left, right:
        case ast.Pow(), int(), int() if right * left.bit_length() > _MAX_POWER_BITS:
            raise OverflowError("the number is too large")
        case ast.Mult(), Sized(), int() if len(left) * right > _MAX_REPEATED_ITEMS:
            raise OverflowError("the value is too long")
        case ast.Mult(), int(), Sized() if len(right) * left > _MAX_REPEATED_ITEMS:
            raise OverflowError("the value is too long")
        case ast.Mod(), (str() | bytes()), _:
            raise _Unsupported


def _refusal(inside: str, why: str) -> UsageError:
    return UsageError(
        f"{{{inside}}}: {why}.",
        hint="Assign the value in an earlier cell (value = …), and write {value}. Put the text in single quotes to "
        "keep it as typed.",
    )
