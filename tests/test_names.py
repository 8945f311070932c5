"""Public names of the package: words that tell a stranger nothing are refused, with the word to use instead."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import jupyter_slurm

PACKAGE = Path(jupyter_slurm.__file__).parent

REFUSED = {
    "told": "to_api for an object of the API, else reported_*, data",
    "tell": "publish, notify, report",
    "tells": "reports_*",
    "telling": "notifying, reporting",
    "asked": "request, requested_*",
    "asking": "request, query_task",
    "asks": "needs_*, may_*",
    "said": "message, output",
    "say": "print, report, show",
    "says": "reports_*",
    "again": "repeat_*, retry",
    "anew": "restart, repeat_*",
    "left": "remaining_*, omitted",
    "seen": "observed, handled, visible",
    "see": "update_from_slurm, observe",
    "heard": "received",
    "hear": "receive, read",
    "fate": "outcome, end",
    "there": "remote_*",
    "here": "local_*",
    "nobody": "no_*",
    "somebody": "user, client",
    "anybody": "user, client",
    "everybody": "all_*",
    "whose": "owner",
    "where": "location",
    "look": "poll, check, inspect; find for look_up",
    "looks": "checks",
    "looked": "checked",
    "judge": "handle_answer, check_*, verify_*",
    "lack": "missing_*",
    "lacks": "has_missing_*",
    "lacking": "missing_*",
    "gone": "removed, closed, is_over",
    "came": "received",
    "come": "arrive, return",
    "let": "allow, release, enrol",
    "stay": "remain, keep_alive",
    "stays": "remains",
    "known": "cached_*, the noun of what is known",
    "know": "apply, add",
    "found": "the noun of the result",
    "wanted": "requested_*, expected_*",
    "want": "request, refresh, watch",
    "beside": "merge, parallel_*",
    "joint": "shared",
    "pair": "the two nouns, sync",
    "about": "the verb alone, or the noun of the subject",
    "given": "specified, the noun of the value",
    "give": "send, return, release",
    "gives": "reports_*, has_*",
    "made": "created",
    "kept": "retained, cached",
    "begin": "start",
    "begun": "started",
    "doubt": "warning",
    "doubts": "warnings",
    "way": "route",
    "ways": "routes",
    "far": "remote",
    "one": "single, entry, the noun of the thing",
    "thing": "the noun of the thing",
    "things": "the noun of the things",
    "most": "max_*",
    "longest": "max_*_s",
    "shortest": "min_*_s",
    "patience": "timeout",
}

# Terms of the field, and names that users and libraries rely on: the name, or its end, and why it stays.
EXCEPTIONS = {
    "known_hosts": "the file of OpenSSH",
    "KnownHostEntry": "a line of the file known_hosts",
    "NotFound": "the usual word for an error of this kind (404)",
    "time_left": "documented for users: Allocation.time_left",
    "whose": "documented for users: Usage.whose",
    "PromptGone": "410 Gone, the status that the API answers",
    "KernelGone": "410 Gone, as for prompts",
    "connection_made": "asyncio.Protocol calls it",
}


def words(name: str) -> list[str]:
    """Split a name into its words, in lower case."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def faults(name: str) -> list[str]:
    """Return the refused words of a name, none where the name, or a part of it, is an exception."""
    for term in EXCEPTIONS:
        name = re.sub(rf"(?<![a-z]){term}(?![a-z])" if term[0].islower() else term, "", name)
    return [word for word in words(name) if word in REFUSED]


def public_names(source: str) -> Iterator[tuple[int, str]]:
    """Yield line and name of the public classes, functions and methods of a module."""

    def of(body: list[ast.stmt]) -> Iterator[tuple[int, str]]:
        for node in body:
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                if node.name.startswith("_"):
                    continue
                yield node.lineno, node.name
                if isinstance(node, ast.ClassDef):
                    yield from of(node.body)
            elif isinstance(node, ast.If | ast.Try | ast.With):
                yield from of(node.body)

    yield from of(ast.parse(source).body)


def complaints(path: str, source: str) -> Iterator[str]:
    """Yield a line for each bad name of a module: where it is, and the word to use instead."""
    parts = [part.removesuffix(".py") for part in Path(path).parts]
    for line, name in [(1, parts[-1]), *public_names(source)]:
        for word in faults(name):
            yield f"{path}:{line}: {name}: for {word!r} use {REFUSED[word]}"


def test_public_names_have_no_word_that_says_nothing() -> None:
    files = [path for path in sorted(PACKAGE.rglob("*.py")) if path.name != "api_types.py"]  # that has openapi.yaml's
    found = [
        line for path in files for line in complaints(str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8"))
    ]
    assert len(files) > 300
    assert not found, "\n" + "\n".join(found)


def test_a_bad_name_is_refused_with_the_word_to_use_instead() -> None:
    source = "class WayTold:\n    def hear(self): ...\n    def _said(self): ...\ndef known_hosts_name(): ...\n"
    assert list(complaints("jobs/fate.py", source)) == [
        f"jobs/fate.py:1: fate: for 'fate' use {REFUSED['fate']}",
        f"jobs/fate.py:1: WayTold: for 'way' use {REFUSED['way']}",
        f"jobs/fate.py:1: WayTold: for 'told' use {REFUSED['told']}",
        f"jobs/fate.py:2: hear: for 'hear' use {REFUSED['hear']}",
    ]


def test_every_exception_is_needed() -> None:
    names = {name for path in PACKAGE.rglob("*.py") for _, name in public_names(path.read_text(encoding="utf-8"))}
    names |= {path.stem for path in PACKAGE.rglob("*.py")}
    unused = [term for term in EXCEPTIONS if not any(term in name for name in names)]
    assert not unused
