"""Variables that travel with a cell, and what comes back."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import types
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.handles.definitions import (
    has_text_for_annotations,
    home_of,
    is_of_the_notebook,
    names_used,
    outermost,
    source_of,
    submodules_used,
)
from jupyter_slurm.handles.naming import meant
from jupyter_slurm.runner import values as file_of

__all__ = ["Outputs", "Parcel", "parcel", "read_outputs"]

_Item = tuple[dict[str, Any], list[Any]]
_LAMBDA = "<lambda>"
_ANOTHER = "{} cannot travel: it is not the {} that travels, but another one; give it a name of its own"


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
        self._by_value: dict[str, Any] = {}  # functions and classes of which there is no source
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
        elif is_of_the_notebook(value):
            self._define(name, value)
        elif is_of_the_notebook(type(value)):
            kind = outermost(type(value), self._namespace)
            self._define(kind.__name__, kind)

    def _pickled(self, name: str) -> tuple[_Item, set[str]] | None:
        """Return a value's item, and the definitions that it needs; None where it travels in another way."""
        value = self._namespace.get(name)
        is_source = is_of_the_notebook(value) and name not in self._by_value
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
        found = None if is_known else source_of(value, own, self._namespace)
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
        item |= {"future": ["annotations"]} if has_text_for_annotations(value, source) else {}
        self._sources[own], self._needs[own] = (item, []), set()  # before what it uses, which may use it
        for used in sorted(names_used(source, self._namespace)):
            if used != own and used not in self._given and used in self._namespace:
                self._need(own, used)
        for module in submodules_used(source, self._namespace):
            self._import(module, sys.modules[module])

    def _without_source(self, name: str, value: Any) -> None:
        """Send a closure, or a class that a job has brought back, as one within a list travels; refuse all else."""
        if isinstance(value, types.FunctionType | type) and not (
            hasattr(value, "__wrapped__") or hasattr(value, "registry")
        ):
            if self._namespace.get(name) is value:  # else it travels with the values that are of it
                self._by_value[name] = value
        else:
            self._troubles.append(
                f"{name} cannot travel: its source is not known; def or class at the left of a cell would do"
            )

    def _need(self, user: str, used: str) -> None:
        value = self._namespace[used]
        if isinstance(value, types.ModuleType):
            self._import(used, value)
        elif is_of_the_notebook(value):
            self._define(used, value)
            known = self._defined.get(value.__name__) is value  # under its own name; else by value, or as a lambda
            self._needs[user].add(value.__name__ if known else used)
        elif used in self._names:
            self._needs[user].add(used)
        elif home := home_of(used, value):
            self._imports[used] = ({"kind": "import", "source": f"from {home} import {used}"}, [])
        else:
            self._troubles.append(f"{user} uses {used}, which does not travel with it: add it, in=…,{used}")


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
