"""Generator of ``jupyter_slurm/domain/api_types.py``, the objects of ``openapi.yaml`` as typed dictionaries, and of
``openapi.json``, the same document as the agent reads it.

Run it after each change of the document, from any folder (``make api-types`` does)::

    .venv/bin/python tests/agent/api_types.py

Components keep their names. Unnamed request bodies and answers get the name of their operation (``CancelJobRequest``,
``AdmitKeyResponse``). An object inside another gets both names (``ResourcesPartition``).
"""

from __future__ import annotations

import json
import keyword
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

_PACKAGE = Path(__file__).resolve().parents[2] / "jupyter_slurm"

_HEAD = '''\
"""The objects of the API (generated from ``agent/openapi.yaml`` by ``tests/agent/api_types.py``; not edited by hand).

Imported as ``from jupyter_slurm.domain import api_types as api``, and where that is enough for type checkers only, so
that ``api.Job`` is the object of the document and ``Job`` may be a class.

Enumerations are texts, with their values beside them: what is newer than this package may say others. Arrays are
``Sequence``: tuples are sent as they are. Objects that the document leaves open are ``Mapping[str, Any]``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict
'''

_SCALARS = {"string": "str", "integer": "int", "number": "float", "boolean": "bool", "null": "None"}


class ApiTypes:
    """The classes of a document, each after the classes that it inherits from or names at run time."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        self._components: Mapping[str, Any] = spec["components"]["schemas"]
        self._classes: dict[str, str] = {}
        for name in self._components:
            self._type_of({"$ref": f"#/components/schemas/{name}"}, name)
        for operation in _operations(spec):
            name = operation["operationId"][0].upper() + operation["operationId"][1:]
            if "requestBody" in operation:
                self._type_of(_json_schema(operation["requestBody"]), f"{name}Request")
            for status, response in operation["responses"].items():
                if status.startswith("2"):
                    self._type_of(_json_schema(response), f"{name}Response")

    def as_module(self) -> str:
        """Return the text of the module, formatted as ruff does it."""
        names = [f'    "{name}",\n' for name in sorted(self._classes)]
        return "\n\n".join([_HEAD + "\n__all__ = [\n" + "".join(names) + "]\n", *self._classes.values()])

    def _type_of(self, schema: Mapping[str, Any], name: str) -> str:
        """Return the annotation of a schema; ``name`` is the name of a class that has to be created for it."""
        if "$ref" in schema:
            target = schema["$ref"].rpartition("/")[2]
            return self._type_of(self._components[target], target)
        if "oneOf" in schema:
            return _union(self._type_of(each, name) for each in schema["oneOf"])
        if "allOf" in schema:
            return self._extended(schema, name)
        if "enum" in schema or "const" in schema:
            return _union("None" if each is None else "str" for each in schema.get("enum", ["const"]))
        if "type" not in schema:
            return "Any"
        kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        return _union(self._type_of_kind(kind, schema, name) for kind in kinds)

    def _type_of_kind(self, kind: str, schema: Mapping[str, Any], name: str) -> str:
        if kind in _SCALARS:
            return _SCALARS[kind]
        if kind == "array":
            return f"Sequence[{self._type_of(schema.get('items', {}), _singular(name))}]"
        if "properties" in schema:
            self._make(name, schema)
            return name
        values = schema.get("additionalProperties")
        return f"Mapping[str, {self._type_of(values, name)}]" if values else "Mapping[str, Any]"

    def _extended(self, schema: Mapping[str, Any], name: str) -> str:
        (base,) = schema["allOf"]
        inherited = self._type_of(base, name)
        if "properties" not in schema:
            return inherited
        self._make(name, schema, inherited)
        return name

    def _make(self, name: str, schema: Mapping[str, Any], base: str = "TypedDict") -> None:
        if name in self._classes:
            return
        required = schema.get("required", ())
        is_total = base != "TypedDict" or bool(required)
        fields: dict[str, tuple[str, str]] = {}
        for key, value in schema["properties"].items():
            annotation = self._type_of(value, _inner_name(name, key))
            optional = is_total and key not in required
            fields[key] = f"NotRequired[{annotation}]" if optional else annotation, _remark(value)
        self._classes[name] = _class_text(name, base, is_total, fields)


def _operations(spec: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for item in spec["paths"].values():
        yield from (item[method] for method in ("get", "post") if method in item)


def _json_schema(content: Mapping[str, Any]) -> Mapping[str, Any]:
    schema: Mapping[str, Any] = content["content"].get("application/json", {}).get("schema", {"type": "string"})
    return schema


def _union(kinds: Iterator[str]) -> str:
    return " | ".join(dict.fromkeys(kinds))


def _inner_name(owner: str, key: str) -> str:
    """Name the class below a key: ``Images.images`` are each an Image, ``Resources.partitions`` ResourcesPartition."""
    words = "".join(word.capitalize() for word in key.split("_"))
    return words if words == owner else owner + words


def _singular(name: str) -> str:
    if name.endswith("Response"):
        return f"{name}Item"
    return name if name.endswith("ss") else name.removesuffix("s")


def _remark(schema: Mapping[str, Any]) -> str:
    values = [value for value in schema.get("enum", ()) if value is not None]
    return "  # " + ", ".join(values) if values else ""


def _class_text(name: str, base: str, is_total: bool, fields: Mapping[str, tuple[str, str]]) -> str:
    if any(map(keyword.iskeyword, fields)):
        # Evaluated when the module is imported, hence in quotes.
        rows = [f'        "{key}": "{annotation}",{remark}\n' for key, (annotation, remark) in fields.items()]
        total = "" if is_total else "    total=False,\n"
        return f'{name} = TypedDict(\n    "{name}",\n    {{\n{"".join(rows)}    }},\n{total})\n'
    rows = [f"    {key}: {annotation}{remark}\n" for key, (annotation, remark) in fields.items()]
    return f"class {name}({base}{'' if is_total else ', total=False'}):\n{''.join(rows)}"


def generate(document: bytes) -> str:
    """Return the module for a document."""
    return ApiTypes(yaml.safe_load(document)).as_module()


def as_json(document: bytes) -> str:
    """Return a document as JSON."""
    return json.dumps(yaml.safe_load(document), separators=(",", ":"), ensure_ascii=False) + "\n"


if __name__ == "__main__":
    content = (_PACKAGE / "agent/openapi.yaml").read_bytes()
    text = generate(content)
    (_PACKAGE / "agent/openapi.json").write_text(as_json(content), encoding="utf-8")
    (_PACKAGE / "domain/api_types.py").write_text(text, encoding="utf-8")
