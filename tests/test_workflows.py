"""Tests of the workflows of GitHub: they parse, call targets that exist, and may do no more than they need."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))


def load(path: Path) -> dict[Any, Any]:
    found = yaml.safe_load(path.read_text())
    assert isinstance(found, dict)
    return found


def steps(workflow: dict[Any, Any]) -> Iterator[dict[str, Any]]:
    for job in workflow["jobs"].values():
        yield from job.get("steps", ())


def values(node: Any, key: str) -> Iterator[str]:
    for one in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from values(one, key)
    if isinstance(node, dict) and isinstance(node.get(key), str):
        yield node[key]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_reads_only_and_its_jobs_end(path: Path) -> None:
    workflow = load(path)
    assert workflow["permissions"] == {"contents": "read"}
    for name, job in workflow["jobs"].items():
        more = {key for key, value in job.get("permissions", {}).items() if value != "read"}
        assert more <= {"id-token"}, name
        assert not more or ("environment" in job and path.name == "release.yml"), "only a release proves who it is"
        assert "uses" in job or job["timeout-minutes"] <= 120, name
    assert "secrets." not in path.read_text(), "publishing needs no stored secret"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_names_versions_of_actions_and_targets_that_exist(path: Path) -> None:
    workflow = load(path)
    for used in values(workflow["jobs"], "uses"):
        if used.startswith("./"):
            assert (ROOT / used).is_file(), used
        else:
            assert re.fullmatch(r"[\w.-]+/[\w./-]+@v\d+(\.\d+)*", used), used
    for step in steps(workflow):
        if step.get("uses", "").startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False
    called = {target for text in values(workflow["jobs"], "run") for target in re.findall(r"\bmake ([a-z-]+)", text)}
    called |= set(values(workflow["jobs"], "target"))
    assert called <= TARGETS
    assert called or path.name == "release.yml"
