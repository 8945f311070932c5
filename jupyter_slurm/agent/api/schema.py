"""Routes and validators generated from ``openapi.yaml``: the document drives the implementation."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from typing import Any

import fastjsonschema

from jupyter_slurm.errors import UsageError

__all__ = ["Document", "Operation", "load_document", "parse_json"]

Validator = Callable[[Any], Any]

DocumentPart = Mapping[str, Any]
"""An object of the document, a JSON schema for example."""

QueryValues = dict[str, Any]
"""The parameters of a query, each of the type that its schema names."""

_MAX_DEPTH = 16
_SCHEMAS = "#/components/schemas/"


@dataclass
class Operation:
    """A method of a path; ``is_passed_on``: by the server extension, to browsers."""

    operation_id: str
    method: str
    path: str
    parameters: Sequence[DocumentPart]
    body_schema: DocumentPart | None
    needs_body: bool
    schemas: Mapping[str, DocumentPart]
    is_passed_on: bool = True

    def _validator(self, schema: DocumentPart) -> Validator:
        # jsonschema would give the same results, but costs the agent's start a second: with the extras of Jupyter, it
        # compiles a grammar of URIs at import. fastjsonschema also takes "$" for the very end, as ECMA-262 does.
        # It writes the whole of what it is given into each error: with all schemas of the document, the name of a
        # cluster in a path would take 40 ms instead of one.
        used = {name: self.schemas[name] for name in sorted(_used_schemas(schema, self.schemas))}
        complete = {**schema, **({"components": {"schemas": used}} if used else {})}
        validator: Validator = fastjsonschema.compile(complete, use_default=False)
        return validator

    @cached_property
    def _body_validator(self) -> Validator:
        return self._validator(self.body_schema or {})

    @cached_property
    def _parameter_validators(self) -> dict[tuple[str, str], Validator]:
        return {(p["in"], p["name"]): self._validator(p["schema"]) for p in self.parameters}

    def prepare(self) -> None:
        """Generate the validator of the body, before the first request waits for it."""
        self._body_validator  # noqa: B018 - computed once

    def find_invalid(self, values: Mapping[str, str]) -> str | None:
        """Return the parameter of the path whose value is not a valid name; None: all are valid."""
        for name, value in values.items():
            try:
                self._parameter_validators["path", name](value)
            except fastjsonschema.JsonSchemaValueException:
                return name
        return None

    def read_query(self, query: Mapping[str, Sequence[str]]) -> QueryValues:
        """Return the query parameters with their types and defaults; unknown parameters are ignored.

        Raises
        ------
        UsageError
            A value does not match the document.
        """
        values: QueryValues = {}
        for parameter in self.parameters:
            if parameter["in"] != "query":
                continue
            name, schema = parameter["name"], parameter["schema"]
            given = query.get(name)
            if given is None:
                values[name] = schema.get("default")
                continue
            if len(given) != 1:
                raise UsageError(f"{name} is given more than once.", hint=f"Send {name} once.")
            values[name] = _typed(given[0], schema)
            _check(self._parameter_validators["query", name], values[name], name)
        return values

    def read_body(self, body: bytes) -> Any:
        """Return the JSON body.

        Raises
        ------
        UsageError
            The body is not JSON, is nested too deeply, or does not match the document. The hint names the place in the
            body.
        """
        value = parse_json(body) if body or self.needs_body else {}
        _check(self._body_validator, value, "the request body")
        return value


class Document:
    """The API description.

    Attributes
    ----------
    text : bytes
        Content of the file.
    spec : mapping
        The same, read from its copy as JSON: to parse YAML would take a tenth of the agent's start.
    operations : dict
        Path template to method to :class:`Operation`.
    """

    def __init__(self, text: bytes, spec: bytes) -> None:
        self.text = text
        self.spec: DocumentPart = json.loads(spec)
        self.operations: dict[str, dict[str, Operation]] = {}
        for operation in self._operations():
            self.operations.setdefault(operation.path, {})[operation.method] = operation

    def _operations(self) -> Iterator[Operation]:
        for path, item in self.spec["paths"].items():
            for method in ("get", "post"):
                if method not in item:
                    continue
                description = item[method]
                parameters = [
                    self._resolve(p) for p in (*item.get("parameters", ()), *description.get("parameters", ()))
                ]
                body = description.get("requestBody")
                yield Operation(
                    description["operationId"],
                    method.upper(),
                    path,
                    parameters,
                    body["content"]["application/json"]["schema"] if body else None,
                    bool(body and body.get("required")),
                    self.spec["components"]["schemas"],
                    description.get("x-passed-on", True),
                )

    def _resolve(self, value: DocumentPart) -> DocumentPart:
        if "$ref" not in value:
            return value
        found: Any = self.spec
        for part in value["$ref"].removeprefix("#/").split("/"):
            found = found[part]
        resolved: DocumentPart = found
        return resolved


def _used_schemas(schema: DocumentPart, schemas: Mapping[str, DocumentPart]) -> set[str]:
    """Return the names of the schemas to which a schema refers, directly or through others."""
    used: set[str] = set()
    parts: list[Any] = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, list):
            parts.extend(part)
        elif isinstance(part, dict):
            parts.extend(part.values())
            name = str(part.get("$ref", "")).removeprefix(_SCHEMAS)
            if name in schemas and name not in used:
                used.add(name)
                parts.append(schemas[name])
    return used


def load_document() -> Document:
    """Read the document in the package."""
    folder = resources.files("jupyter_slurm.agent")
    return Document(folder.joinpath("openapi.yaml").read_bytes(), folder.joinpath("openapi.json").read_bytes())


def parse_json(body: bytes) -> Any:
    """Parse JSON from outside: limited depth, no NaN, no text that cannot be a file name or an environment value."""
    try:
        # Decoded first: json would also read UTF-16 from bytes, in which the check below sees neither text nor escapes.
        value = _DECODER.decode(body.decode("utf-8"))
        # ASCII without escapes contains no surrogates. The check is skipped: a cell waits, and its environment has many
        # values.
        _check_characters(value, _MAX_DEPTH, is_plain=body.isascii() and b"\\u" not in body)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"The request body cannot be read: {error}", hint="Send JSON in UTF-8.") from None
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _number(text: str) -> float | int:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:20]} is too large for a number")
    return int(value) if value.is_integer() else value  # JSON does not distinguish 18.0 from 18


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=_number)


def _check_characters(value: Any, depth: int, *, is_plain: bool) -> None:
    if depth == 0:
        raise ValueError("nested too deeply")
    if isinstance(value, str):
        # Bytes of names and variables that are not UTF-8 are sent as U+DC80-DCFF (PEP 383). Other surrogates are
        # invalid.
        value.encode("utf-8", "surrogateescape")
    elif isinstance(value, dict):
        for name, item in value.items():
            if not is_plain:
                _check_characters(name, depth, is_plain=False)
            if not (is_plain and isinstance(item, str)):
                _check_characters(item, depth - 1, is_plain=is_plain)
    elif isinstance(value, list):
        for item in value:
            _check_characters(item, depth - 1, is_plain=is_plain)


def _typed(text: str, schema: DocumentPart) -> Any:
    if schema.get("type") == "integer" and re.fullmatch(r"-?[0-9]{1,18}", text):
        return int(text)
    if schema.get("type") == "number" and re.fullmatch(r"-?[0-9]{1,9}(\.[0-9]{1,9})?", text):
        return float(text)
    if schema.get("type") == "boolean" and text in ("true", "false"):
        return text == "true"
    return text


def _check(validator: Validator, value: Any, subject: str) -> None:
    try:
        validator(value)
    except fastjsonschema.JsonSchemaValueException as error:
        from jupyter_slurm.agent.api.value_words import value_words  # rarely used

        where = [str(part) for part in error.path[1:]]
        fields = [part for part in where if not part.isdigit()] or [subject]
        rule = (error.value, error.rule or "", error.rule_definition, error.definition)
        message, hint = value_words(fields[-1], *rule) if fields[0] != "context" else ("", "")
        raise UsageError(
            message or f"{subject}: {error.message[:500]}",
            hint=hint or "See GET /v1/openapi.yaml for the valid requests.",
            where=where,
        ) from None
