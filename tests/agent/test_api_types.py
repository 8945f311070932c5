"""The typed dictionaries of the API are those of the document."""

from __future__ import annotations

import json
import runpy
from importlib import resources
from pathlib import Path

import yaml

from jupyter_slurm.domain import api_types


def test_the_types_are_those_of_the_document() -> None:
    generator = runpy.run_path(str(Path(__file__).with_name("api_types.py")))
    folder = resources.files("jupyter_slurm.agent")
    document, generate = folder.joinpath("openapi.yaml").read_bytes(), generator["generate"]
    assert folder.joinpath("openapi.json").read_text("utf-8") == generator["as_json"](document), "run `make api-types`"
    assert json.loads(folder.joinpath("openapi.json").read_bytes()) == yaml.safe_load(document), "JSON has no such keys"
    assert Path(api_types.__file__).read_text(encoding="utf-8") == generate(document), "stale: run `make api-types`"


def test_no_description_ends_at_its_comma() -> None:
    """In braces, the rest of a text without quotes is a key with no value."""
    document = json.loads(resources.files("jupyter_slurm.agent").joinpath("openapi.json").read_bytes())
    todo, found = [document], list[str]()
    while todo:
        node = todo.pop()
        found += [key for key, value in node.items() if value is None] if isinstance(node, dict) else []
        todo += [each for each in (node.values() if isinstance(node, dict) else node) if isinstance(each, dict | list)]
    assert found == [], "put the description in quotes"
