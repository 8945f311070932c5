"""Page ``reference/http-api``: the operations of the agent, from ``openapi.yaml``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

import yaml
from markdown_text import cell_text, table

_HEAD = """\
# HTTP API

The agent serves one API for magics, command line and JupyterLab. The Jupyter server forwards it below
`<base_url>jupyter-slurm/api`, after Jupyter's own authentication. The complete description is the OpenAPI document
`jupyter_slurm/agent/openapi.yaml`, which the agent returns at `/v1/openapi.yaml`.

Errors are problem documents: see [Errors](errors.md).

"""
_METHODS = ("get", "put", "post", "patch", "delete")


def operations() -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yield method, path and description of each operation."""
    document = yaml.safe_load((files("jupyter_slurm.agent") / "openapi.yaml").read_text("utf-8"))
    for path, item in document["paths"].items():
        for method in _METHODS:
            if method in item:
                yield method.upper(), path, item[method]


def page() -> str:
    """Return the page."""
    rows = [
        (f"`{method}`", f"`{path}`", f"`{one['operationId']}`", cell_text(one.get("summary", "")))
        for method, path, one in operations()
    ]
    return _HEAD + table(("Method", "Path", "Operation", "Purpose"), rows)
