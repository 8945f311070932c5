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
