"""Page ``reference/site-profile``: the keys of a site profile, from its JSON schema."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any

from markdown_text import block, table

from jupyter_slurm.sites.shipped import shipped_names

_HEAD = """\
# Site profile

A site profile is one TOML file that describes a cluster. The name of the file is the name of the cluster. Your own
profiles are in `~/.config/jupyter_slurm/sites`; `jupyter slurm sites list` lists them. `jupyter slurm init` writes one,
and [Add your cluster](../clusters/your-cluster.md) explains how to write one by hand. Administrators can
[provide a profile](../admin/deploy.md#share-a-site-profile) to all users of a computer.

"""


def schema() -> dict[str, Any]:
    """Return the schema."""
    text = (files("jupyter_slurm.sites") / "profile.schema.json").read_text("utf-8")
    return dict(json.loads(text))


def resolved(node: Mapping[str, Any], definitions: Mapping[str, Any]) -> dict[str, Any]:
    """Return a node with the definition that it refers to."""
    name = str(node.get("$ref", "")).rpartition("/")[2]
    return {**definitions.get(name, {}), **node}


def keys(
    node: Mapping[str, Any], definitions: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each key of a profile with its part of the schema; NAME stands for a name of the user."""
    node = resolved(node, definitions)
    children = dict(node.get("properties") or {})
    extra = node.get("additionalProperties")
    if isinstance(extra, Mapping):
        children["NAME"] = extra
    for pattern, value in (node.get("patternProperties") or {}).items():
        del pattern
        children["NAME"] = value
    for name, child in children.items():
        full = f"{path}.{name}" if path else name
        child = resolved(child, definitions)
        if name != "NAME":  # the key above it describes these
            yield full, child
        yield from keys(child, definitions, full)
        item = child.get("items")
        if isinstance(item, Mapping):
            yield from keys(item, definitions, f"{full}[]")


def type_text(node: Mapping[str, Any]) -> str:
    """Return the type of a key in words."""
    if "enum" in node:
        return ", ".join(f"`{one}`" for one in node["enum"])
    kind = node.get("type", "")
    kind = " or ".join(kind) if isinstance(kind, list) else str(kind)
    if kind == "object":
        kind = "table"
    limits = [f"{word} {node[key]}" for key, word in (("minimum", "at least"), ("maximum", "at most")) if key in node]
    return ", ".join([kind, *limits]) or "any"


def page() -> str:
    """Return the page."""
    whole = schema()
    rows = [
        (f"`{name}`", type_text(node), str(node.get("description", "")))
        for name, node in keys(whole, whole.get("definitions", {}))
    ]
    parts = [_HEAD, "## Keys\n\n", table(("Key", "Type", "Meaning"), rows), "\n## Built-in profiles\n\n"]
    for name in shipped_names():
        text = (files("jupyter_slurm.sites") / f"{name}.toml").read_text("utf-8")
        parts += [f"### {name}\n\n", block(text, "toml"), "\n"]
    return "".join(parts)
