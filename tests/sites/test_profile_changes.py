"""Tests of the notice about edits of a profile: each key of the schema is named, or is not used by a login."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import pytest

from jupyter_slurm.sites.profile import parse_profile
from jupyter_slurm.sites.profile_changes import changed_keys

SCHEMA = json.loads(resources.files("jupyter_slurm.sites").joinpath("profile.schema.json").read_text("utf-8"))
# Read by `jupyter slurm init` from the built-in profiles each time; the base of a profile replaces its keys.
NOT_OF_A_LOGIN = {"about", "aliases", "extends"}
# Where the pattern or the format allows few values.
VALUES: dict[str, Any] = {
    "advice.cuda": "11",
    "login.host": "another",
    "login.jump": ["gate"],
    "login.vpn": {"name": "Campus"},
    "login.ssh_config": "~/other",
    "slurm.conf": "/other/slurm.conf",
    "slurm.job_root": "/other",
    "python.path": "/other/python3",
    "env": {"one": {"venv": "/other"}},
    "container.runtime": "docker",
    "container.bind": ["/other:/inside"],
    "container.gpus": "node",
    "container.image_dir": "/other",
    "container.shared": ["/other"],
    "container.build_dir": "/other",
    "container.build_options": ["--other"],
    "advice.cpus_per_gpu": 7,
    "advice.memory": "4G",
    "storage.shared": "/other",
    "storage.local": "/other",
    "storage.expires": "3 days",
    "storage.usage_file": "/other",
    "cost": {"unit": "credits"},
    "partitions": {"main": {"max_time": "1:00:00"}},
    "accounts": {"mine": {}},
    "qos": {"fast": {}},
    "gpus": {"a100": {"about": "80 GB"}},
    "launch.memory": "4G",
    "launch.dir": "/other",
    "tunnels.ports": [8100, 8200],
    "tunnels.ways": ["step"],
    "tunnels.node_ports": [20000, 20100],
}


def keys() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each key of a table, and each table whose keys are names, with its schema."""
    for table, schema in SCHEMA["properties"].items():
        if table in NOT_OF_A_LOGIN:
            continue
        if ("properties" in schema and "required" not in schema) or table == "login":
            yield from ((f"{table}.{key}", found) for key, found in schema["properties"].items())
        else:
            yield table, schema


def value(key: str, schema: Mapping[str, Any]) -> Any:
    if key in VALUES:
        return VALUES[key]
    kinds = {"boolean": True, "integer": 7, "number": 77.0, "string": "other", "array": ["other"]}
    if "enum" in schema:
        return schema["enum"][-1]
    return kinds.get(schema.get("type", "string"), "other")


def toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{name} = {toml(one)}" for name, one in value.items()) + "}"
    return json.dumps(value)


def text(key: str | None, new: Any) -> bytes:
    lines = {"login.host": '"login"', "cost.unit": None}
    if key is not None:
        lines[key] = toml(new)
    return "\n".join(f"{name} = {value}" for name, value in lines.items() if value is not None).encode()


@pytest.mark.parametrize(("key", "schema"), list(keys()), ids=lambda given: given if isinstance(given, str) else "")
def test_an_edit_of_each_key_is_named(key: str, schema: Mapping[str, Any]) -> None:
    before = parse_profile("far", text(None, None), "far.toml")
    after = parse_profile("far", text(key, value(key, schema)), "far.toml")
    changed = changed_keys(before, after)
    assert len(changed) == 1, (key, changed)
    assert key == changed[0] or key.startswith(f"{changed[0]}."), changed


def test_no_edit_is_no_change() -> None:
    before = parse_profile("far", text(None, None), "far.toml")
    assert changed_keys(before, parse_profile("far", b"# a note\n" + text(None, None), "far.toml")) == []
