"""Messages and hints: a sentence that says what failed, and an instruction, in words that all readers know."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from words import find_refused

import jupyter_slurm
from jupyter_slurm import errors

PACKAGE = Path(jupyter_slurm.__file__).parent

# Packages and modules whose errors follow the rules.
COVERED = (
    *("agent", "cli", "client", "config.py", "domain", "embedded", "errors.py", "kernels", "magics", "runner"),
    *("server", "services", "sites", "transport", "widgets"),
)
# Those whose other texts follow them, too: all but the programs of a job, which say little else.
WITH_NOTICES = tuple(name for name in COVERED if name != "runner")

# Classes whose hint the class itself has, or that no user sees.
HAS_HINT = {"LeaderElsewhere", "LinkLost", "ParseError"}

# Texts of other programs, as they print them.
QUOTED = {"invalid job id"}

_CLASSES = {name for name in errors.__all__ if name[0].isupper()} | {"LinkLost", "PortTaken", "LeaderElsewhere"}
# Calls whose text is that of their first argument.
_TRANSPARENT = {"printable", "shortened", "strip", "rstrip"}
# A name from a file or a line (`nodes.names: …`, `sweep=…`) and a command keep their letters.
_OPENING = re.compile(r"[A-Z0-9{`'\"%~.#/\-]|[a-z_.]+: |(?:sbatch|scontrol|sacctmgr|scancel|srun|rsync) |[a-z_]+=")
_ENDING = re.compile(r"[.?…][)'\"`]*(?:\s?\{\})?$|:\s?(?:\{\})+$")
_HINT_ENDING = re.compile(r"(?:[.…`]|\{\})$|^Did you mean .*\?$|https?://\S+$", re.DOTALL)


def find_texts(node: ast.expr) -> Iterator[str]:
    """Yield the texts that an expression can be, with ``{}`` for each value in it; nothing for a name."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in node.values)
    elif isinstance(node, ast.IfExp):
        yield from find_texts(node.body)
        yield from find_texts(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from find_texts(value)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        ends = [text for text in find_texts(node.right) if text] or ["{}"]
        yield from (start + end for start in [*find_texts(node.left)] or ["{}"] for end in ends)
    elif isinstance(node, ast.Call):
        name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
        if name in _TRANSPARENT:
            yield from find_texts(node.args[0] if isinstance(node.func, ast.Name) else node.func.value)  # type: ignore[attr-defined]


def find_errors(tree: ast.Module) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that make an error, with the name of its class."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            name = getattr(node.func, "id", None) or getattr(node.func, "attr", "")
            if name in _CLASSES:
                yield node, name


def find_faults(source: str) -> Iterator[str]:
    """Yield a line for each message or hint that breaks a rule."""
    for call, name in find_errors(ast.parse(source)):
        place = f"{call.lineno}: {name}"
        for text in find_texts(call.args[0]):
            if not _OPENING.match(text):
                yield f"{place}: begins in lower case: {text!r}"
            if not (_ENDING.search(text) or text == "{}"):
                yield f"{place}: has no full stop: {text!r}"
            yield from (f"{place}: {fault}" for fault in find_refused(text))
        hints = [keyword.value for keyword in call.keywords if keyword.arg == "hint"]
        if not hints and name not in HAS_HINT and all(keyword.arg for keyword in call.keywords):
            yield f"{place}: has no hint"
        for text in (text for hint in hints for text in find_texts(hint) if text):
            if not _HINT_ENDING.search(text):
                yield f"{place}: the hint is not an instruction that ends with a full stop: {text!r}"
            yield from (f"{place}: {fault}: {text!r}" for fault in find_refused(text))


def find_prose(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield line and text of the constants that a user may read: no docstring, no log message, no program."""
    skipped: set[ast.AST] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            skipped.add(node.value)
        elif isinstance(node, ast.Call) and getattr(getattr(node.func, "value", None), "id", "") in ("log", "_log"):
            skipped.update(ast.walk(node))
        elif isinstance(node, ast.JoinedStr):
            skipped.update(part for part in node.values if isinstance(part, ast.Constant))
    for node in ast.walk(tree):
        if node not in skipped and isinstance(node, ast.Constant | ast.JoinedStr):
            for text in find_texts(node):
                if text.count(" ") > 1 and "\n" not in text.strip() and "(?P<" not in text:
                    yield node.lineno, text


def find_modules(*names: str) -> Iterator[Path]:
    """Yield the modules of packages, and single modules."""
    for name in names:
        yield from [PACKAGE / name] if name.endswith(".py") else sorted((PACKAGE / name).rglob("*.py"))


def test_messages_are_sentences_with_an_instruction() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{fault}"
        for path in find_modules(*COVERED)
        for fault in find_faults(path.read_text("utf-8"))
    ]
    assert not found, "\n" + "\n".join(found)


def test_notices_and_findings_have_plain_words() -> None:
    found = [
        f"{path.relative_to(PACKAGE)}:{line}: {fault}: {text!r}"
        for path in find_modules(*WITH_NOTICES)
        for line, text in find_prose(ast.parse(path.read_text("utf-8")))
        for fault in find_refused(text)
        if text not in QUOTED
    ]
    assert not found, "\n" + "\n".join(found)


def test_all_packages_are_known() -> None:
    packages = {path.parent.name for path in PACKAGE.glob("*/__init__.py")} - {"locale"}
    assert packages == {name for name in COVERED if not name.endswith(".py")}


def test_a_riddle_is_refused() -> None:
    source = (
        "raise UsageError(f'that is no port: {port}', hint='Is it a wrapper?')\n"
        "raise JobError('It ended.' if done else f'{dest} is gone')\n"
        "raise ParseError(printable(f'{path} is not a job record: {error}'))\n"
    )
    assert [re.sub(r": '.*'$", "", fault) for fault in find_faults(source)] == [
        "1: UsageError: begins in lower case",
        "1: UsageError: for 'is no ' use: is not a …",
        "1: UsageError: the hint is not an instruction that ends with a full stop",
        "2: JobError: has no full stop",
        "2: JobError: has no hint",
    ]
