"""Variables that travel with a cell, and what comes back."""

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
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.handles.naming import meant
from jupyter_slurm.runner import values as file_of

__all__ = ["Outputs", "Parcel", "parcel", "read_outputs"]

_Item = tuple[dict[str, Any], list[Any]]
_CELL = re.compile("ipykernel|ipython-input")  # in what IPython calls the source of a cell
_LAMBDA = "<lambda>"
_MAKE_CLASSES = frozenset({"namedtuple", "NamedTuple", "make_dataclass", "Enum", "IntEnum", "Flag", "IntFlag"})
_ANOTHER = "{} cannot travel: it is not the {} that travels, but another one; give it a name of its own"
_SHELLS = frozenset({"get_ipython", "display", "exit", "quit", "In", "Out", "_", "__", "___"})


class Parcel:
    """What a cell sends along, ready to travel, and the names of what is to come back.

    Parameters
    ----------
    sent, wanted : sequence of str
        Names of variables.
    namespace : mapping
        Where they are.
    limit : int
        Most bytes of what is sent, and of each value that comes back.
    given : set of str
        Names of variables that each task of the job gets without that.

    Raises
    ------
    UsageError
        Something cannot travel: all of that by name, with the reason. Nothing was written.
    """

    def __init__(
        self,
        sent: Sequence[str],
        wanted: Sequence[str],
        namespace: Mapping[str, Any],
        limit: int,
        given: Set[str] = frozenset(),
    ) -> None:
        self.sent, self.wanted, self.limit = list(sent), list(wanted), limit
        self._items = _Packer(namespace, self.sent, given).items()
        sizes = {item.get("name", ""): file_of.size_of(item) for item, _ in self._items}
        if sum(sizes.values()) > limit:
            said = ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items() if size > limit / 100)
            raise UsageError(
                f"What travels with the cell is larger than {limit / 1e6:.1f} MB: {said}.",
                hint="Let the job read it from a file, or set c.Settings.values_limit.",
            )

    @contextlib.contextmanager
    def on_disk(self) -> Iterator[dict[str, Any]]:
        """Put what is sent into a private file for as long as the submission takes; gives what the API is told."""
        told = {"in": self.sent, "out": self.wanted, "limit": self.limit}
        if not self._items:
            yield told
            return
        with tempfile.TemporaryDirectory(prefix="jupyter-slurm-") as folder:
            path = os.path.join(folder, "in.values")
            file_of.write(path, self._items)
            yield {**told, "file": path}


def parcel(
    words: Mapping[str, str | None], namespace: Mapping[str, Any], limit: int, given: Set[str] = frozenset()
) -> Parcel:
    """Return what ``in=`` and ``out=`` of a magic line ask for; see :class:`Parcel`."""
    asked = {word: _names(word, words[word] or "") for word in ("in", "out") if word in words}
    return Parcel(asked.get("in", []), asked.get("out", []), namespace, limit, given)


def _names(word: str, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"{word}={text}: {name!r} is no name of a variable.", hint=f"For example {word}=x,model.")
    return names


class _Packer:
    """Collect what some names need on the other side."""

    def __init__(self, namespace: Mapping[str, Any], names: Sequence[str], given: Set[str]) -> None:
        self._namespace, self._names, self._given = namespace, names, given
        self._imports: dict[str, _Item] = {}
        self._sources: dict[str, _Item] = {}
        self._aliases: dict[str, tuple[str, _Item]] = {}  # of what
        self._defined: dict[str, Any] = {}  # what travels as source
        self._needs: dict[str, set[str]] = {}  # of definitions: what they use, maybe as they are made
        self._by_value: dict[str, Any] = {}  # functions of which there is no source
        self._troubles: list[str] = []

    def items(self) -> list[_Item]:
        """Return the items in the order in which they can be used: imports, definitions, values."""
        for name in self._names:
            self._define_what_is_needed(name)
        self._troubles += [_ANOTHER.format(name, name) for name in self._aliases if name in self._sources]
        pickled = {name: self._pickled(name) for name in dict.fromkeys([*self._names, *self._by_value])}
        if self._troubles:
            raise UsageError("Not submitted: " + "\n".join(dict.fromkeys(self._troubles)))
        values = {name: found for name, found in pickled.items() if found is not None}
        return [*self._imports.values(), *self._in_order(values)]

    def _in_order(self, values: dict[str, tuple[_Item, set[str]]]) -> Iterator[_Item]:
        """Give definitions behind what they use, values too (``def f(rate=RATE)``), and the other values at the end."""
        begun, made = set[str](), set[str]()

        def give(own: str) -> Iterator[_Item]:
            begun.add(own)
            for name in sorted(self._needs[own]):
                made_of = values[name][1] if name in values else {name} & self._sources.keys()
                whole = made_of.isdisjoint(begun - made)  # else it is made of what uses it
                for needed in sorted(made_of - begun):
                    yield from give(needed)
                if name in values and whole:
                    yield values.pop(name)[0]
            yield self._sources[own]
            yield from (alias for of, alias in self._aliases.values() if of == own)
            made.add(own)

        for own in self._sources:
            if own not in begun:
                yield from give(own)
        yield from (item for item, _ in values.values())

    def _define_what_is_needed(self, name: str) -> None:
        if name in self._given:
            self._troubles.append(
                f"{name} is another one in each task of the job, and in={name} one for all: leave it out"
            )
            return
        if name not in self._namespace:
            self._troubles.append(f"there is no variable {name}.{meant(name, self._namespace)}")
            return
        value = self._namespace[name]
        if isinstance(value, types.ModuleType):
            self._import(name, value)
        elif _is_of_the_notebook(value):
            self._define(name, value)
        elif _is_of_the_notebook(type(value)):
            kind = _outermost(type(value), self._namespace)
            self._define(kind.__name__, kind)

    def _pickled(self, name: str) -> tuple[_Item, set[str]] | None:
        """Return a value's item, and the definitions that it needs; None where it travels in another way."""
        value = self._namespace.get(name)
        is_source = _is_of_the_notebook(value) and name not in self._by_value
        if name not in self._namespace or isinstance(value, types.ModuleType) or is_source:
            return None
        used: set[str] = set()
        try:
            return file_of.pack(name, value, self._defined, used), used
        except Exception as error:  # noqa: BLE001 - whatever a value of the person's raises
            self._troubles.append(f"{name} ({type(value).__name__}) cannot travel: {error}")
            return None

    def _import(self, name: str, module: types.ModuleType) -> None:
        said = f"import {module.__name__}" + ("" if name == module.__name__ else f" as {name}")
        self._imports[name] = ({"kind": "import", "source": said}, [])

    def _define(self, name: str, value: Any) -> None:
        """Send a function or class as its source, with what it uses."""
        own = value.__name__ if value.__name__ != _LAMBDA else name
        is_known = own in self._sources and self._defined[own] is value
        found = None if is_known else _source(value, own, self._namespace)
        if found is not None and own in self._sources:
            self._troubles.append(_ANOTHER.format(name, own))
            return
        if found is None and not is_known:
            self._without_source(name, value)
            return
        if name != own:
            alias = {"kind": "source", "name": name, "source": f"{name} = {own}", "filename": f"<{name}>"}
            self._aliases[name] = (own, (alias, []))
        if found is None:
            return
        source, filename = found
        self._defined[own] = value
        item = {"kind": "source", "name": own, "source": source, "filename": f"{filename} ({own})"}
        item |= {"future": ["annotations"]} if _has_text_for_annotations(value, source) else {}
        self._sources[own], self._needs[own] = (item, []), set()  # before what it uses, which may use it
        for used in sorted(_used(source, self._namespace)):
            if used != own and used not in self._given and used in self._namespace:
                self._need(own, used)
        for module in _submodules(source, self._namespace):
            self._import(module, sys.modules[module])

    def _without_source(self, name: str, value: Any) -> None:
        """Send a closure, or a lambda without a name of its own, as one within a list travels; refuse all else."""
        if isinstance(value, types.FunctionType) and not (hasattr(value, "__wrapped__") or hasattr(value, "registry")):
            self._by_value[name] = value
        else:
            self._troubles.append(
                f"{name} cannot travel: its source is not known; def or class at the left of a cell would do"
            )

    def _need(self, user: str, used: str) -> None:
        value = self._namespace[used]
        if isinstance(value, types.ModuleType):
            self._import(used, value)
        elif _is_of_the_notebook(value):
            self._define(used, value)
            known = self._defined.get(value.__name__) is value  # under its own name; else by value, or as a lambda
            self._needs[user].add(value.__name__ if known else used)
        elif used in self._names:
            self._needs[user].add(used)
        elif home := _home(used, value):
            self._imports[used] = ({"kind": "import", "source": f"from {home} import {used}"}, [])
        else:
            self._troubles.append(f"{user} uses {used}, which does not travel with it: add it, in=…,{used}")


def _is_of_the_notebook(value: Any) -> bool:
    made_of = inspect.getattr_static(value, "__wrapped__", None)  # what lru_cache and compilers give is no function
    return (isinstance(value, types.FunctionType | type) or isinstance(made_of, types.FunctionType)) and getattr(
        value, "__module__", None
    ) == "__main__"


def _outermost(kind: type, namespace: Mapping[str, Any]) -> type:
    """Return the class of the notebook in whose definition a class stands; itself where it stands alone."""
    own, *inner = kind.__qualname__.split(".")
    outer = found = namespace.get(own)
    for name in inner:
        found = getattr(found, name, None)
    return outer if isinstance(outer, type) and _is_of_the_notebook(outer) and found is kind else kind


def _home(name: str, value: Any) -> str | None:
    """Return the module that others have a name from: the shortest, since the innermost is private, and moves."""
    parts = str(getattr(value, "__module__", None) or "__main__").split(".")
    homes = [".".join(parts[:count]) for count in range(1, len(parts) + 1)]
    found = (home for home in homes if getattr(sys.modules.get(home), name, None) is value)
    return next(found, None) if homes[0] != "__main__" else None


def _source(value: Any, name: str, namespace: Mapping[str, Any]) -> tuple[str, str] | None:
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
    """Find what is defined under a name, the last one first: its first line, its source, whether it is decorated."""
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
    """Tell whether ``name = …`` is as good as a definition: of a lambda, or of a namedtuple and the like."""
    if [ast.unparse(target) for target in node.targets] != [name]:
        return False
    if not is_class:
        return isinstance(node.value, ast.Lambda)
    return isinstance(node.value, ast.Call) and ast.unparse(node.value.func).rpartition(".")[2] in _MAKE_CLASSES


def _cells(kind: type, namespace: Mapping[str, Any]) -> list[str]:
    """Return where a class may stand: where its methods do, then the cells, the one that ran last first."""
    methods = [m for m in vars(kind).values() if isinstance(m, types.FunctionType) and m.__module__ == "__main__"]
    ran = {str(text).rstrip(): number for number, text in enumerate(namespace.get("In") or ())}
    cells = [name for name in linecache.cache if _CELL.search(name)]
    cells.sort(key=lambda name: ran.get("".join(linecache.getlines(name)).rstrip(), -1))
    return [method.__code__.co_filename for method in reversed(methods)] + cells[::-1]


def _used(source: str, namespace: Mapping[str, Any]) -> set[str]:
    """Return the names that a definition takes from outside; those of Python only where they mean another thing."""
    tables, used = [symtable.symtable(source, "<cell>", "exec")], set()
    while tables:
        table = tables.pop()
        tables += table.get_children()
        used |= {each.get_name() for each in table.get_symbols() if each.is_referenced() and each.is_global()}
    return {name for name in used - _SHELLS if not (hasattr(builtins, name) and _is_pythons(name, namespace))}


def _is_pythons(name: str, namespace: Mapping[str, Any]) -> bool:
    """Tell whether a name of Python means what it means everywhere; IPython wraps open()."""
    value, known = namespace.get(name), getattr(builtins, name)
    is_same = value is known or getattr(value, "__wrapped__", None) is known
    return name not in namespace or name.startswith("__") or is_same


def _has_text_for_annotations(value: Any, source: str) -> bool:
    """Tell whether a definition was compiled under ``from __future__ import annotations``."""
    code = getattr(inspect.unwrap(value), "__code__", None)
    if code is not None:
        return bool(code.co_flags & __future__.annotations.compiler_flag)
    kept, definition = vars(value).get("__annotations__") or {}, ast.parse(source).body[0]
    said = [node for node in getattr(definition, "body", ()) if isinstance(node, ast.AnnAssign)]
    return any(
        isinstance(kept.get(ast.unparse(node.target)), str) and not isinstance(node.annotation, ast.Constant)
        for node in said
    ) or any(_has_text_for_annotations(one, "") for one in vars(value).values() if _is_method(one))


def _is_method(value: Any) -> bool:
    return isinstance(value, types.FunctionType) and _CELL.search(value.__code__.co_filename) is not None


def _submodules(source: str, namespace: Mapping[str, Any]) -> list[str]:
    """Return the modules that a definition reaches through another one, as in ``urllib.request.urlopen``."""
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


class Outputs(dict[str, Any]):
    """The variables that came back, by name.

    Attributes
    ----------
    errors : dict
        Why others did not: name to reason. To ask for one of them raises JobError with it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.errors: dict[str, str] = {}

    def __missing__(self, name: str) -> Any:
        if name in self.errors:
            raise JobError(f"{name} did not come back: {self.errors[name]}", hint="job.stderr may tell more.")
        raise KeyError(name)

    @property
    def is_one(self) -> bool:
        """Whether one name was asked for."""
        return len(self) + len(self.errors) == 1

    def troubles(self, heard: str) -> list[str]:
        """Return what is to be said of those that did not come back, beside what the job has printed about them."""
        return [
            f"{name} did not come back: {reason}"
            for name, reason in self.errors.items()
            if file_of.LEFT_OUT.format(name, reason) not in heard
        ]


def read_outputs(content: bytearray) -> Outputs:
    """Read what a job of ours left: each value for itself, so that one which cannot be read takes no other with it.

    Arrays stay where they lie in the content.
    """
    outputs = Outputs()
    try:
        header, items = file_of.read(file_of.Content(content))
    except file_of.Unreadable as error:
        raise JobError(f"The values of the job cannot be read: {error}.", hint="Run the cell again.") from error
    for item, pieces in items:
        if item["kind"] not in ("pickle", "error"):  # nothing that a job brings back is run here
            raise JobError("The values of the job cannot be read: they are no values.", hint="Run the cell again.")
        try:
            outputs[item["name"]] = file_of.unpack(item, pieces, header)
        except file_of.Unreadable as error:
            outputs.errors[item["name"]] = str(error).removeprefix(f"{item['name']}: ")
    return outputs
