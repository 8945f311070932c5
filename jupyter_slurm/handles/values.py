"""Variables that travel with a cell, and what comes back."""

from __future__ import annotations

import ast
import builtins
import contextlib
import linecache
import os
import re
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.handles.naming import meant
from jupyter_slurm.runner import values as file_of

__all__ = ["Outputs", "Parcel", "parcel", "read_outputs"]

_Item = tuple[dict[str, Any], list[Any]]
_CELL = re.compile("ipykernel|ipython-input")  # in what IPython calls the source of a cell
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

    Raises
    ------
    UsageError
        Something cannot travel: all of that by name, with the reason. Nothing was written.
    """

    def __init__(self, sent: Sequence[str], wanted: Sequence[str], namespace: Mapping[str, Any], limit: int) -> None:
        self.sent, self.wanted, self.limit = list(sent), list(wanted), limit
        self._items = _Packer(namespace, self.sent).items()
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


def parcel(words: Mapping[str, str | None], namespace: Mapping[str, Any], limit: int) -> Parcel:
    """Return what ``in=`` and ``out=`` of a magic line ask for."""
    asked = {word: _names(word, words[word] or "") for word in ("in", "out") if word in words}
    return Parcel(asked.get("in", []), asked.get("out", []), namespace, limit)


def _names(word: str, text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    for name in names:
        if not name.isidentifier():
            raise UsageError(f"{word}={text}: {name!r} is no name of a variable.", hint=f"For example {word}=x,model.")
    return names


class _Packer:
    """Collect what some names need on the other side."""

    def __init__(self, namespace: Mapping[str, Any], names: Sequence[str]) -> None:
        self._namespace, self._names = namespace, names
        self._imports: dict[str, _Item] = {}
        self._sources: dict[str, _Item] = {}
        self._troubles: list[str] = []

    def items(self) -> list[_Item]:
        """Return the items in the order in which they can be used: imports, definitions, values."""
        for name in self._names:
            self._define_what_is_needed(name)
        pickles = [item for name in self._names for item in self._pickled(name)]
        if self._troubles:
            raise UsageError("Not submitted: " + "\n".join(self._troubles), hint="in= takes names, with commas.")
        return [*self._imports.values(), *self._sources.values(), *pickles]

    def _define_what_is_needed(self, name: str) -> None:
        if name not in self._namespace:
            self._troubles.append(f"there is no variable {name}.{meant(name, self._namespace)}")
            return
        value = self._namespace[name]
        if isinstance(value, types.ModuleType):
            self._import(name, value)
        elif _is_of_the_notebook(value):
            self._define(name, value)
        elif _is_of_the_notebook(type(value)):
            self._define(type(value).__name__, type(value))

    def _pickled(self, name: str) -> Iterator[_Item]:
        value = self._namespace.get(name)
        if name not in self._namespace or isinstance(value, types.ModuleType) or _is_of_the_notebook(value):
            return
        try:
            yield file_of.pack(name, value, frozenset(self._sources))
        except Exception as error:  # noqa: BLE001 - whatever a value of the person's raises
            self._troubles.append(f"{name} ({type(value).__name__}) cannot travel: {error}")

    def _import(self, name: str, module: types.ModuleType) -> None:
        said = f"import {module.__name__}" + ("" if name == module.__name__ else f" as {name}")
        self._imports[name] = ({"kind": "import", "source": said}, [])

    def _define(self, name: str, value: Any) -> None:
        """Send a function or class as its source, with what it uses."""
        own = value.__name__
        if own in self._sources:
            return
        found = _source(value)
        if found is None:
            self._troubles.append(f"{name} cannot travel: its source is not known (a lambda, or made by other code)")
            return
        source, filename = found
        item = {"kind": "source", "name": own, "source": source, "filename": f"{filename} ({own})"}
        self._sources[own] = (item, [])  # before what it uses, which may use it
        for used in sorted(_used(source)):
            if used != own and used in self._namespace:
                self._need(own, used)
        self._sources[own] = self._sources.pop(own)  # behind it: decorators and base classes are used at once
        if name != own and name in self._names:
            alias = {"kind": "source", "name": name, "source": f"{name} = {own}", "filename": f"<{name}>"}
            self._sources[name] = (alias, [])

    def _need(self, user: str, used: str) -> None:
        value = self._namespace[used]
        if used in self._sources or used in self._names:
            return
        if isinstance(value, types.ModuleType):
            self._import(used, value)
        elif _is_of_the_notebook(value):
            self._define(used, value)
        elif (module := getattr(value, "__module__", None)) and getattr(sys.modules.get(module), used, None) is value:
            self._imports[used] = ({"kind": "import", "source": f"from {module} import {used}"}, [])
        else:
            self._troubles.append(f"{user} uses {used}, which does not travel with it: add it, in=…,{used}")


def _is_of_the_notebook(value: Any) -> bool:
    return isinstance(value, types.FunctionType | type) and getattr(value, "__module__", None) == "__main__"


def _source(value: Any) -> tuple[str, str] | None:
    """Return the source of a function or class of the notebook, and the name of its cell."""
    code = getattr(value, "__code__", None)
    codes = [code] if code else [c for member in vars(value).values() if (c := getattr(member, "__code__", None))]
    wanted = (ast.FunctionDef, ast.AsyncFunctionDef) if code else (ast.ClassDef,)
    cells = [c.co_filename for c in codes] or [name for name in linecache.cache if _CELL.search(name)]
    for filename in reversed(cells):
        lines = linecache.getlines(filename)
        with contextlib.suppress(SyntaxError, ValueError):
            for node in ast.parse("".join(lines)).body:
                if isinstance(node, wanted) and node.name == value.__name__:
                    first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
                    return "".join(lines[first - 1 : node.end_lineno]), os.path.basename(filename)
    return None


def _used(source: str) -> set[str]:
    """Return the names that a definition takes from outside, as far as its text tells."""
    tree = ast.parse(source)
    loaded = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    bound = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return {name for name in loaded - bound if not hasattr(builtins, name) and name not in _SHELLS}


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
