"""The typed dictionaries of the API are those of the document."""

from __future__ import annotations

import runpy
from importlib import resources
from pathlib import Path

from jupyter_slurm.domain import api_types


def test_the_types_are_those_of_the_document() -> None:
    generate = runpy.run_path(str(Path(__file__).with_name("api_types.py")))["generate"]
    document = resources.files("jupyter_slurm.agent").joinpath("openapi.yaml").read_bytes()
    assert Path(api_types.__file__).read_text(encoding="utf-8") == generate(document), "stale: run `make api-types`"
