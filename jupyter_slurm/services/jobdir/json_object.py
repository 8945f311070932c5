"""Frozen dataclasses of JSON objects: unknown fields are kept, and missing fields stay absent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import FrozenInstanceError, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Self, TypeVar, dataclass_transform

__all__ = ["JsonObject", "attributes_of", "json_object", "optional_object"]

_T = TypeVar("_T")

# For each class, by key of the document: the attribute, the class of its object, and whether it is a list.
_ATTRIBUTES: dict[type, dict[str, tuple[str, Any, bool]]] = {}


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
def json_object(cls: type[_T]) -> type[_T]:
    """Make a frozen dataclass with methods in ``JsonObject``: generated ones cost each agent start 12 ms."""
    made = dataclass(init=False, repr=False, eq=False)(cls)
    _ATTRIBUTES[made] = {
        one.metadata.get("key", one.name): (one.name, one.metadata.get("part"), one.metadata.get("is_list", False))
        for one in fields(made)  # type: ignore[arg-type]
        if one.name not in ("given", "extra")
    }
    return made


@json_object
class JsonObject:
    """Object of a JSON document.

    Attributes
    ----------
    given : frozenset of str
        Names of attributes that are also written if None, because the document had them.
    extra : mapping or None
        Fields of the document that are unknown to this version.
    """

    given: frozenset[str] = frozenset()
    extra: Mapping[str, Any] | None = None

    if not TYPE_CHECKING:

        def __init__(self, **values):
            self.__dict__.update(values)

    def __setattr__(self, name: str, value: object) -> None:
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.to_json() == other.to_json()

    def __repr__(self) -> str:
        return f"{type(self).__name__}.from_json({self.to_json()!r})"

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Make an object from a document that is valid by the schema."""
        known, values, given, extra = _ATTRIBUTES[cls], dict[str, Any](), list[str](), dict[str, Any]()
        for key, value in document.items():
            if key not in known:
                extra[key] = value
                continue
            name, part, is_list = known[key]
            given.append(name)
            if part is not None and value is not None:
                value = [part.from_json(item) for item in value] if is_list else part.from_json(value)
            values[name] = value
        return cls(**values, given=frozenset(given), extra=extra or None)

    def to_json(self) -> dict[str, Any]:
        """Return the document."""
        document: dict[str, Any] = {}
        for key, (name, part, is_list) in _ATTRIBUTES[type(self)].items():
            value = getattr(self, name)
            if value is None and name not in self.given:
                continue
            if part is not None and value is not None:
                value = [item.to_json() for item in value] if is_list else value.to_json()
            document[key] = value
        return document | dict(self.extra or {})


def optional_object(cls: type[JsonObject], key: str | None = None) -> Any:
    """Return the field of an optional object; ``key``: its name in the document, if different."""
    return field(default=None, metadata={"part": cls, **({"key": key} if key else {})})


def attributes_of(cls: type[JsonObject]) -> Mapping[str, tuple[str, type[JsonObject] | None, bool]]:
    """Return by key of the document: the attribute, the class of its object, and whether it is a list."""
    return _ATTRIBUTES[cls]
