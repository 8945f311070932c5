"""Tests of the typed model of job.json against its schema."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import FrozenInstanceError, replace
from importlib import resources
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.services.jobdir import job_json_model as model
from jupyter_slurm.services.jobdir.job_json_model import EndRecord, JobRecordFile, SlurmJobRecord
from jupyter_slurm.services.jobdir.json_object import attributes_of

SCHEMA = json.loads(resources.files("jupyter_slurm.services.jobdir").joinpath("job.schema.json").read_text())
_VALIDATOR = jsonschema.validators.validator_for(SCHEMA)(SCHEMA)  # `validate` checks the schema itself each time
_KEY = "20260101-000000-0123456789abcdef"
_LEAVES = {
    "string": st.text(max_size=5),
    "integer": st.integers(-3, 1 << 40),
    "number": st.floats(0, 1e12) | st.integers(0, 10),
    "boolean": st.booleans(),
    "null": st.none(),
}
_ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
_UNKNOWN = st.dictionaries(st.sampled_from(["later", "of_another_version"]), _ANYTHING, max_size=2)


def _documents(schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Return documents valid in a schema, with the keywords used in this schema; objects also with unknown fields."""
    if "const" in schema:
        return st.just(schema["const"])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "pattern" in schema:
        return st.just(_KEY if "0-9]{8}" in schema["pattern"] else "/a/")
    types = [schema["type"]] if isinstance(schema["type"], str) else schema["type"]
    return st.one_of([_of_type(kind, schema) for kind in types])


def _of_type(kind: str, schema: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    if kind == "array":
        items = _documents(schema["items"])
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=schema.get("maxItems", 3))
    if kind == "object" and "properties" in schema:
        parts = {name: _documents(part) for name, part in schema["properties"].items()}
        needed = {name: parts.pop(name) for name in schema.get("required", ())}
        return st.builds(lambda known, more: {**known, **more}, st.fixed_dictionaries(needed, optional=parts), _UNKNOWN)
    if kind == "object":
        additional = schema.get("additionalProperties")
        return st.dictionaries(st.text(max_size=4), _documents(additional) if additional else _ANYTHING, max_size=2)
    return _LEAVES[kind].filter(lambda value: value >= schema["minimum"]) if "minimum" in schema else _LEAVES[kind]


def _objects(schema: Mapping[str, Any], cls: type) -> list[tuple[Mapping[str, Any], type]]:
    """Return all objects of the schema with properties, and their classes."""
    found = [(schema, cls)]
    for key, (_, part, is_list) in attributes_of(cls).items():
        below = schema["properties"].get(key, {})
        below = below.get("items", {}) if is_list else below
        assert (part is not None) == ("properties" in below), (cls, key)
        if part is not None:
            found += _objects(below, part)
    return found


@pytest.mark.parametrize(
    ("schema", "cls"), _objects(SCHEMA, JobRecordFile), ids=lambda one: getattr(one, "__name__", "")
)
def test_each_property_has_a_field_and_the_other_way_round(schema: Mapping[str, Any], cls: type) -> None:
    assert attributes_of(cls).keys() == schema["properties"].keys()
    needed = {
        key
        for key, (name, _, _) in attributes_of(cls).items()
        if all(
            default is dataclasses.MISSING
            for one in dataclasses.fields(cls)
            if one.name == name
            for default in (one.default, one.default_factory)
        )
    }
    assert needed <= set(schema.get("required", ()))


def test_all_classes_are_reached() -> None:
    assert {cls.__name__ for _, cls in _objects(SCHEMA, JobRecordFile)} == set(model.__all__) - {"ALWAYS_WRITTEN"}


@given(_documents(SCHEMA))
def test_what_is_read_is_what_is_written(document: dict[str, Any]) -> None:
    _VALIDATOR.validate(document)
    record = JobRecordFile.from_json(document)
    assert record.to_json() == document
    assert JobRecordFile.from_json(json.loads(json.dumps(record.to_json()))) == record


@pytest.fixture
def record() -> JobRecordFile:
    fields = {"argv": ["sbatch"], "outputs": {"stdout": None}, "events": "/e", "end": None, "later": [1]}
    return JobRecordFile.from_json(
        {"format": 1, "key": _KEY, "kind": "script", "created": 1.5, "script": "cell.sh", **fields}
    )


def test_a_change_makes_another_record(record: JobRecordFile) -> None:
    changed = replace(record, label="x", job=SlurmJobRecord(id="7"))
    assert changed.to_json() == {**record.to_json(), "label": "x", "job": {"id": "7", "submit_time": None}}
    assert replace(replace(record, end=EndRecord(state="FAILED")), end=None) == record
    with pytest.raises(FrozenInstanceError):
        record.label = "x"  # type: ignore[misc]


def test_an_end_is_written_with_all_its_fields(record: JobRecordFile) -> None:
    written = replace(record, end=EndRecord(state="FAILED", exit_code=1, restarts=0)).to_json()["end"]
    assert written.keys() == SCHEMA["properties"]["end"]["properties"].keys()
    assert written["signal"] is None
