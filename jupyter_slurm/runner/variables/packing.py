"""Requirements of a notebook's names on the remote side: definitions as source, imports, values.

Runs in the notebook's kernel, also without an installed jupyter_slurm (``transit.py``). Python 3.9+.
"""

from __future__ import annotations

import contextlib
import sys
import types
from typing import TYPE_CHECKING, AbstractSet, Any, Iterator, Mapping, Sequence

from . import values_file as file_of
from .definitions import (
    has_text_for_annotations,
    home_of,
    is_of_the_notebook,
    names_used,
    outermost,
    source_of,
    submodules_used,
    suggest_name,
)

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import PackedItem, ValuesItem

_LAMBDA = "<lambda>"
_ANOTHER = "{} cannot be sent: its name {} belongs to another object that is sent. Give it another name."


class CannotTravel(ValueError):
    """Some variables cannot be sent: one line for each."""


class TooLarge(CannotTravel):
    """The variables exceed the size limit; the message gives the limit and the largest variables."""


def packed(
    names: Sequence[str],
    namespace: Mapping[str, object],
    limit: int,
    given: AbstractSet[str] = frozenset(),
    safe: bool = False,
) -> list[PackedItem]:
    """Return the items of variables in the order in which they can be used.

    Parameters
    ----------
    names : sequence of str
        The variables.
    namespace : mapping
        Their namespace.
    limit : int
        Maximum number of bytes.
    given : set of str
        Variables that the remote side sets itself, with another value for each task.
    safe : bool
        Whether values get their safe form, if they have one.

    Raises
    ------
    CannotTravel
        Some variables cannot be sent: names and reasons.
    TooLarge
        The variables exceed the limit.
    """
    packer = _Packer(namespace, names, given, limit, safe)
    items = packer.items()
    # of all variables, if one item holds several
    sizes = {item.get("name", ""): file_of.size_of(item) for item, _ in items}
    if packer.larger or sum(sizes.values()) > limit:
        told = [f"{name} {size / 1e6:.1f} MB" for name, size in sizes.items() if size > limit / 100]
        told += [f"{name} {size / 1e6:.1f} MB or more" for name, size in packer.larger.items()]
        raise TooLarge(f"larger than {limit / 1e6:.1f} MB: {', '.join(told)}")
    return items


class _Packer:
    """Collector of the requirements of names."""

    def __init__(
        self, namespace: Mapping[str, object], names: Sequence[str], given: AbstractSet[str], limit: int, safe: bool
    ) -> None:
        self._namespace, self._names, self._given, self._limit = namespace, names, given, limit
        self._safe = safe
        self.larger: dict[str, int] = {}  # values that exceed the limit alone, with their known bytes
        self._imports: dict[str, PackedItem] = {}
        self._sources: dict[str, PackedItem] = {}
        self._aliases: dict[str, tuple[str, PackedItem]] = {}  # definition and item of each alias
        self._defined: dict[str, object] = {}  # objects sent as source
        self._needs: dict[str, set[str]] = {}  # of definitions: names that they use, perhaps while being defined
        self._by_value: dict[str, object] = {}  # functions and classes without source
        self._troubles: list[str] = []

    def items(self) -> list[PackedItem]:
        """Return the items in the order in which they can be used: imports, definitions, values."""
        for name in self._names:
            self._define_what_is_needed(name)
        self._troubles += [_ANOTHER.format(name, name) for name in self._aliases if name in self._sources]
        names = [name for name in dict.fromkeys([*self._names, *self._by_value]) if self._is_pickled(name)]
        values = {name: found for name in names if (found := self._pickled(name, len(names) > 1))}
        if self._troubles:
            raise CannotTravel("\n".join(dict.fromkeys(self._troubles)))
        return [*self._imports.values(), *self._joined(list(self._in_order(dict(values))), values)]

    def _joined(self, items: list[PackedItem], values: Mapping[str, file_of.PackedValue]) -> list[PackedItem]:
        """Move values with shared objects to the first of them, if their requirements precede it."""
        for group in file_of.together(values):
            places = [at for at, (item, _) in enumerate(items) if item["kind"] == "pickle" and item["name"] in group]
            needed = set[str]().union(*(values[name].met for name in group))
            behind = {item["name"] for item, _ in items[places[0] :] if item["kind"] == "source"}
            if len(group) > 1 and needed.isdisjoint(behind):
                with contextlib.suppress(Exception):  # on failure each value stays alone, which is possible
                    named = {name: self._namespace[name] for name in group}
                    found = file_of.PackedValue(named, self._defined, limit=self._limit)
                    items[places[0]] = found.item, found.pieces
                    for at in reversed(places[1:]):
                        del items[at]
        return items

    def _in_order(self, values: dict[str, file_of.PackedValue]) -> Iterator[PackedItem]:
        """Put definitions after the names and values that they use (``def f(rate=RATE)``), and other values last."""
        begun, made = set[str](), set[str]()

        def give(own: str) -> Iterator[PackedItem]:
            begun.add(own)
            for name in sorted(self._needs[own]):
                made_of = values[name].met if name in values else {name} & self._sources.keys()
                whole = made_of.isdisjoint(begun - made)  # otherwise it consists of definitions that use it
                for needed in sorted(made_of - begun):
                    yield from give(needed)
                if name in values and whole:
                    found = values.pop(name)
                    yield found.item, found.pieces
            yield self._sources[own]
            yield from (alias for of, alias in self._aliases.values() if of == own)
            made.add(own)

        for own in self._sources:
            if own not in begun:
                yield from give(own)
        yield from ((found.item, found.pieces) for found in values.values())

    def _define_what_is_needed(self, name: str) -> None:
        if name in self._given:
            self._troubles.append(
                f"{name} differs in each task of the job, and in={name} would set one value. Omit it."
            )
            return
        if name not in self._namespace:
            self._troubles.append(f"there is no variable {name}.{suggest_name(name, self._namespace)}")
            return
        value = self._namespace[name]
        if isinstance(value, types.ModuleType):
            self._import(name, value)
        elif is_of_the_notebook(value):
            self._define(name, value)
        elif is_of_the_notebook(type(value)):
            kind = outermost(type(value), self._namespace)
            self._define(kind.__name__, kind)

    def _is_pickled(self, name: str) -> bool:
        """Return whether a variable can only be sent as a pickle."""
        value = self._namespace.get(name)
        is_source = is_of_the_notebook(value) and name not in self._by_value
        return name in self._namespace and not isinstance(value, types.ModuleType) and not is_source

    def _pickled(self, name: str, compared: bool) -> file_of.PackedValue | None:
        """Return a value as a pickle; None if it cannot be sent."""
        value = self._namespace[name]
        try:
            return file_of.PackedValue({name: value}, self._defined, compared, self._limit, self._safe)
        except file_of.SizeLimitExceeded as error:
            self.larger[name] = error.size
            return None
        except Exception as error:  # noqa: BLE001 - a value of the user may raise anything
            self._troubles.append(f"{name} ({type(value).__name__}) cannot be sent: {error}")
            return None

    def _import(self, name: str, module: types.ModuleType) -> None:
        said = f"import {module.__name__}" + ("" if name == module.__name__ else f" as {name}")
        self._imports[name] = ({"kind": "import", "source": said}, [])

    def _define(self, name: str, value: Any) -> None:
        """Send a function or class as its source, with the names that it uses."""
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
            alias: ValuesItem = {"kind": "source", "name": name, "source": f"{name} = {own}", "filename": f"<{name}>"}
            self._aliases[name] = (own, (alias, []))
        if found is None:
            return
        source, filename = found
        self._defined[own] = value
        item: ValuesItem = {"kind": "source", "name": own, "source": source, "filename": f"{filename} ({own})"}
        if has_text_for_annotations(value, source):
            item["future"] = ["annotations"]
        self._sources[own], self._needs[own] = (item, []), set()  # before the names that it uses, which may use it
        for used in sorted(names_used(source, self._namespace)):
            if used != own and used not in self._given and used in self._namespace:
                self._need(own, used)
        for module in submodules_used(source, self._namespace):
            self._import(module, sys.modules[module])

    def _without_source(self, name: str, value: Any) -> None:
        """Send a closure, or a class that a job sent back, in the way of one inside a list. Refuse all others."""
        if isinstance(value, (types.FunctionType, type)) and not (
            hasattr(value, "__wrapped__") or hasattr(value, "registry")
        ):
            if self._namespace.get(name) is value:  # otherwise it is sent with its instances
                self._by_value[name] = value
        else:
            self._troubles.append(
                f"{name} cannot be sent: its source is unknown. Define it with def or class at the top level of a cell."
            )

    def _need(self, user: str, used: str) -> None:
        value: Any = self._namespace[used]
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
            self._troubles.append(f"{user} uses {used}, which is not sent. Add it: in=…,{used}.")
