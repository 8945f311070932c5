"""Words of docstrings and comments: plain technical English, held by a list."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import jupyter_slurm

PACKAGE = Path(jupyter_slurm.__file__).parent
TESTS = Path(__file__).parent

# A sentence begins with its subject, the first line of a function with its verb.
OPENINGS = ("What", "Who", "Whoever", "Whose", "Where", "Whether", "How")

# Refused words, with the words to use instead.
REFUSED = {
    "somebody": "a user, a client",
    "whoever": "the user who, the client that",
    "anew": "again, restart",
    "ours": "of jupyter_slurm, own",
    "us": "jupyter_slurm, the agent",
    "we": "jupyter_slurm, the agent",
    "our": "own",
    "person": "user",
    "persons": "users",
    "front door": "front end",
    "front doors": "front ends",
    "far side": "remote host",
    "fate": "outcome",
}


# A source without any of these is not parsed: to parse all takes ten seconds.
SUSPECT = re.compile(rf"\b({'|'.join(REFUSED)})\b|\"\"\"\s*({'|'.join(OPENINGS)})\b")


def find_texts(source: str) -> Iterator[tuple[int, str, bool]]:
    """Yield line and text of the docstrings and comments of a module, and whether it is a docstring."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node.body[0].lineno, text, True
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string, False


def find_faults(source: str) -> Iterator[str]:
    """Yield a line for each refused word or opening."""
    if not SUSPECT.search(source):
        return
    for line, text, is_docstring in find_texts(source):
        plain = re.sub(r"`+[^`]*`+|\"[^\"\n]*\"", "", text)  # code and quotations keep their words
        if is_docstring and text.split(maxsplit=1)[0] in OPENINGS:
            yield f"{line}: begins with {text.split(maxsplit=1)[0]!r}"
        for word, instead in REFUSED.items():
            if re.search(rf"(?<![\w.]){word}(?![\w:])", plain):
                yield f"{line}: for {word!r} use: {instead}"


def test_docstrings_and_comments_have_plain_words() -> None:
    files = [path for folder in (PACKAGE, TESTS) for path in sorted(folder.rglob("*.py"))]
    assert len(files) > 600
    found = [f"{path}:{fault}" for path in files for fault in find_faults(path.read_text("utf-8"))]
    assert not found, "\n" + "\n".join(found)


def test_a_riddle_is_refused() -> None:
    source = '"""What is told to the front doors."""\n# Ask whoever is there; `somebody` is a name.\n'
    assert list(find_faults(source)) == [
        "1: begins with 'What'",
        "1: for 'front doors' use: front ends",
        "2: for 'whoever' use: the user who, the client that",
    ]


def find_documented(node: ast.AST) -> Iterator[str]:
    """Yield the parameters that a docstring describes, in its section of that name (numpydoc)."""
    if not isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    section = re.search(r"^Parameters\n-+\n(.*?)(?=\n\n\w+\n-+\n|\Z)", ast.get_docstring(node) or "", re.M | re.S)
    for line in section[1].split("\n") if section else ():
        if line and not line.startswith(" "):
            yield from (name.strip().lstrip("*") for name in line.split(" : ")[0].split(","))


def find_parameters(node: ast.AST) -> set[str]:
    """Return the parameters of a function, or of a class: those of its constructor, and its annotated fields."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        args = node.args
        named = [*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg]
        return {arg.arg for arg in named if arg is not None}
    found: set[str] = set()
    for part in node.body if isinstance(node, ast.ClassDef) else ():
        if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name):
            found.add(part.target.id)
        elif isinstance(part, ast.FunctionDef) and part.name in ("__init__", "__new__"):
            found |= find_parameters(part)
    return found


def test_docstrings_name_the_parameters_of_the_signature() -> None:
    found = [
        f"{path}:{node.lineno}: {name}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if " Parameters\n" in (source := path.read_text("utf-8"))
        for node in ast.walk(ast.parse(source))
        if (parameters := find_parameters(node))
        for name in find_documented(node)
        if name not in {*parameters, "..."}
    ]
    assert not found, "\n".join(found)
