"""Sizes of the package: folders, modules, functions and constructors that a reader can take in at a glance."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import jupyter_slurm

PACKAGE = Path(jupyter_slurm.__file__).parent

MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 40  # lines with code: comments, docstrings and empty lines do not count
MAX_PARAMETERS = 6  # of a constructor, without ``self``
FOLDER_MODULES = range(2, 16)
GENERATED = {"domain/api_types.py"}


def find_code_lines(source: str) -> set[int]:
    """Return the numbers of the lines with code."""
    lines = (line.strip() for line in source.splitlines())
    return {number for number, line in enumerate(lines, 1) if line and not line.startswith("#")}


def find_large(path: str, source: str) -> Iterator[str]:
    """Yield a line for each module, function and constructor that is too large."""
    if (count := source.count("\n")) > MAX_MODULE_LINES:
        yield f"{path}: {count} lines"
    code = find_code_lines(source)
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        lines = code & set(range(node.lineno, (node.end_lineno or 0) + 1))
        if ast.get_docstring(node) is not None:
            lines -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        if len(lines) > MAX_FUNCTION_LINES:
            yield f"{path}:{node.lineno}: {node.name} has {len(lines)} lines of code"
        parameters = len(node.args.posonlyargs + node.args.args + node.args.kwonlyargs) - 1
        if node.name == "__init__" and parameters > MAX_PARAMETERS:
            yield f"{path}:{node.lineno}: the constructor has {parameters} parameters"


def test_modules_functions_and_constructors_are_small() -> None:
    files = {str(path.relative_to(PACKAGE)): path.read_text("utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    assert len(files) > 300
    found = [line for path, source in files.items() if path not in GENERATED for line in find_large(path, source)]
    assert not found, "\n" + "\n".join(found)


def test_folders_hold_two_to_fifteen_modules() -> None:
    folders = {init.parent for init in PACKAGE.rglob("__init__.py")}
    counts = {
        str(folder.relative_to(PACKAGE)): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in folders
    }
    assert not {folder: count for folder, count in counts.items() if count not in FOLDER_MODULES}


def test_what_is_too_large_is_found() -> None:
    body = "".join(f"    x = {number}\n" for number in range(41))
    source = f"def long():\n{body}\nclass A:\n    def __init__(self, a, b, c, d, e, f, *, g): ...\n" + "\n" * 400
    assert list(find_large("m.py", source)) == [
        f"m.py: {source.count(chr(10))} lines",
        "m.py:1: long has 42 lines of code",
        "m.py:45: the constructor has 7 parameters",
    ]
