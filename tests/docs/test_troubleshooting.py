"""The page about trouble: it names error classes and quotes messages that the package has."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import jupyter_slurm
from jupyter_slurm import errors

PAGE = (Path(__file__).parents[2] / "docs" / "help" / "troubleshooting.md").read_text("utf-8")
HEADINGS = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
FOREIGN = {"UsageError", "ModuleNotFoundError", "FileNotFoundError", "NameError"}
"""Classes of Python and IPython; ``UsageError`` is one of IPython as well."""


def find_texts() -> str:
    """Return all constant texts of the package."""
    found = []
    for path in Path(jupyter_slurm.__file__).parent.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        found += [
            node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    return "\n".join(found)


def test_errors_in_headings_exist() -> None:
    named = {name for heading in HEADINGS for name in re.findall(r"`([A-Z]\w+)[`:]", heading)}
    assert len(named) > 10
    assert not {name for name in named if not hasattr(errors, name)} - FOREIGN


def test_quoted_messages_exist() -> None:
    quoted = [text for heading in HEADINGS for text in re.findall(r'"([^"]+)"', heading)]
    texts = find_texts()
    assert quoted
    assert not [text for text in quoted if text not in texts]
