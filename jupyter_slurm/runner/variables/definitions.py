"""Names of a notebook: source of functions and classes, names that the source uses, suggestions for misspellings."""

from __future__ import annotations
import __future__

import ast
import builtins
import contextlib
import inspect
import linecache
import os
import re
import symtable
import sys
import types
from difflib import get_close_matches
from typing import Any, Iterable, Iterator, Mapping

__all__ = [
    "has_text_for_annotations",
    "home_of",
    "is_of_the_notebook",
    "names_used",
    "outermost",
    "source_of",
    "submodules_used",
    "suggest_name",
]

_CELL = re.compile("ipykernel|ipython-input")  # in IPython's file names for the source of cells
_MAKE_CLASSES = frozenset({"namedtuple", "NamedTuple", "make_dataclass", "Enum", "IntEnum", "Flag", "IntFlag"})
_SHELLS = frozenset({"get_ipython", "display", "exit", "quit", "In", "Out", "_", "__", "___"})
_NOT_ONES_OWN = frozenset({*dir(builtins), "In", "Out", "exit", "get_ipython", "quit"})


def is_of_the_notebook(value: Any) -> bool:
    """Return whether a function or class was defined in a cell, or by a job that sent it back."""
    made_of = inspect.getattr_static(value, "__wrapped__", None)  # results of lru_cache and compilers are not functions
    return (isinstance(value, (types.FunctionType, type)) or isinstance(made_of, types.FunctionType)) and getattr(
        value, "__module__", None
    ) == "__main__"


def outermost(kind: type, namespace: Mapping[str, object]) -> type:
    """Return the notebook's class whose definition contains a class; the class itself if there is none."""
    own, *inner = kind.__qualname__.split(".")
    outer = found = namespace.get(own)
    for name in inner:
        found = getattr(found, name, None)
    return outer if isinstance(outer, type) and is_of_the_notebook(outer) and found is kind else kind


def home_of(name: str, value: Any) -> str | None:
    """Return the public module of a name: the shortest one, because the innermost is private and may change."""
    parts = str(getattr(value, "__module__", None) or "__main__").split(".")
    homes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    found = (home for home in homes if getattr(sys.modules.get(home), name, None) is value)
    return next(found, None) if homes[0] != "__main__" else None


def source_of(value: Any, name: str, namespace: Mapping[str, object]) -> tuple[str, str] | None:
    """Return the source of a function or class of the notebook, by its name, and the name of its cell."""
    inner = inspect.unwrap(value)
    is_whole = inner.__qualname__ == inner.__name__ and not hasattr(value, "registry")  # singledispatch has parts
    if not is_whole or (inner is not value and namespace.get(value.__name__) is not value):
        return None
    code = getattr(inner, "__code__", None)
    for filename in [code.co_filename] if code else _cells(inner, namespace):
        lines = linecache.getlines(filename)
        for first, source, is_decorated in _definitions(lines, name, is_class=code is None):
            if (code is None or code.co_firstlineno == first) and (is_decorated or inner is value):
                return source, os.path.basename(filename)
    return None


def _definitions(lines: list[str], name: str, *, is_class: bool) -> Iterator[tuple[int, str, bool]]:
    """Find the definitions of a name, the last one first: first line, source, and whether it is decorated."""
    wanted = (ast.ClassDef,) if is_class else (ast.FunctionDef, ast.AsyncFunctionDef)
    text = "".join(lines)
    with contextlib.suppress(SyntaxError, ValueError):
        for node in reversed(ast.parse(text).body):
            if isinstance(node, wanted) and node.name == name:
                first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                yield first, "".join(lines[first - 1 : node.end_lineno]), bool(node.decorator_list)
            elif isinstance(node, ast.Assign) and _defines(node, name, is_class=is_class):
                yield node.lineno, (ast.get_source_segment(text, node) or "") + "\n", False


def _defines(node: ast.Assign, name: str, *, is_class: bool) -> bool:
    """Return whether ``name = …`` counts as a definition: of a lambda, a namedtuple and the like."""
    if [ast.unparse(target) for target in node.targets] != [name]:
        return False
    if not is_class:
        return isinstance(node.value, ast.Lambda)
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).rpartition(".")[2] in _MAKE_CLASSES


def _cells(kind: type, namespace: Mapping[str, object]) -> list[str]:
    """Return the cells that may contain a class: those of its methods, then the others, the last run one first."""
    methods = [m for m in vars(kind).values() if isinstance(m, types.FunctionType) and m.__module__ == "__main__"]
    history: Any = namespace.get("In") or ()
    ran = {str(text).rstrip(): number for number, text in enumerate(history)}
    cells = [name for name in linecache.cache if _CELL.search(name)]
    cells.sort(key=lambda name: ran.get("".join(linecache.getlines(name)).rstrip(), -1))
    return [method.__code__.co_filename for method in reversed(methods)] + cells[::-1]


def names_used(source: str, namespace: Mapping[str, object]) -> set[str]:
    """Return the global names that a definition uses; builtins only if they are redefined."""
    tables, used = [symtable.symtable(source, "<cell>", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global()}
    return {name for name in used - _SHELLS if not (hasattr(builtins, name) and _is_pythons(name, namespace))}


def _is_pythons(name: str, namespace: Mapping[str, object]) -> bool:
    """Return whether a builtin name has its usual meaning. IPython wraps open()."""
    value, known = namespace.get(name), getattr(builtins, name)
    is_same = value is known or getattr(value, "__wrapped__", None) is known
    return name not in namespace or name.startswith("__") or is_same


def has_text_for_annotations(value: Any, source: str) -> bool:
    """Return whether a definition was compiled under ``from __future__ import annotations``."""
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is not None:
        return bool(code.co_flags & __future__.annotations.compiler_flag)
    kept, definition = vars(value).get("__annotations__") or {}, ast.parse(source).body[0]
    said = [node for node in getattr(definition, "body", ()) if isinstance(node, ast.AnnAssign)]
    return any(
        isinstance(kept.get(ast.unparse(node.target)), str) and not isinstance(node.annotation, ast.Constant)
        for node in said
    ) or any(has_text_for_annotations(one, "") for one in vars(value).values() if _is_method(one))


def _is_method(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and _CELL.search(value.__code__.co_filename) is not None


def submodules_used(source: str, namespace: Mapping[str, object]) -> list[str]:
    """Return the modules that a definition reaches through another module, as in ``urllib.request.urlopen``."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        path = ast.unparse(node).split(".") if isinstance(node, ast.Attribute) else []
        module = namespace.get(path[0]) if path else None
        for name in path[1:]:
            full = f"{module.__name__}.{name}" if isinstance(module, types.ModuleType) else ""
            module = getattr(module, name, None) if full else None
            if module is not None and sys.modules.get(full) is module:
                found.add(full)
    return sorted(found)


def suggest_name(name: str, namespace: Iterable[str]) -> str:
    """Return `` Did you mean NAME?`` for a similar variable of the user, or an empty text.

    Parameters
    ----------
    name : str
        The name that was typed.
    namespace : iterable of str
        The existing variables. Names that Python and IPython define are ignored.
    """
    own = [variable for variable in namespace if variable[:1] != "_" and variable not in _NOT_ONES_OWN]
    near = get_close_matches(name, own, n=1)
    return f" Did you mean {near[0]}?" if near else ""
