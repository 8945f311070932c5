"""Executed pages of the documentation: their front matter and their blocks, for the tests and for Sphinx."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import yaml

__all__ = ["EXECUTED", "ORIGINS", "Block", "Page", "PageError", "Run", "find_digest", "parse_page", "read_pages"]

EXECUTED = ("cell", "terminal")
"""Directives whose text is run."""

ORIGINS = ("login", "laptop")
"""Computers that a page can be typed on."""

_OPTION = re.compile(r":(?P<name>[a-z]+):(?: +(?P<value>.*\S))? *$")
_FENCE = re.compile(r" *(?P<marks>`{3,}|:{3,}|~{3,}) *(?P<info>.*?) *$")
_DIRECTIVE = re.compile(r"\{(?P<name>[a-z-]+)\}")
# Directives with text that is not Markdown: fences in it mean nothing.
_VERBATIM = {*EXECUTED, "code-block", "literalinclude", "parsed-literal", "eval-rst", "raw", "math", "toctree"}


class PageError(ValueError):
    """A page is not written as its runner needs it."""


@dataclass(frozen=True)
class Run:
    """Place where a page is executed.

    Attributes
    ----------
    cluster : str
        ``embedded``, or the name of a replica.
    origin : str
        ``login`` if it is typed on the cluster's login node, ``laptop`` if over SSH.
    """

    cluster: str
    origin: str


@dataclass(frozen=True)
class Block:
    """Executed block: its kind, its text, and its options.

    Attributes
    ----------
    kind : str
        ``cell`` or ``terminal``.
    source : str
        What is typed: a cell, or lines that begin with ``$``.
    line : int
        Number of the line that opens it.
    expected : str
        Regular expression that must be found in the output.
    is_hidden, fails : bool
        Whether it is run but not shown, and whether it must fail.
    """

    kind: str
    source: str
    line: int = 0
    expected: str = ""
    is_hidden: bool = False
    fails: bool = False

    @property
    def digest(self) -> str:
        """Return the key of its stored outputs."""
        return find_digest(self.kind, self.source)

    @property
    def commands(self) -> list[str]:
        """Return the commands of a terminal, in their order."""
        found: list[str] = []
        for line in self.source.splitlines():
            if line.startswith("$ "):
                found.append(line[2:])
            elif found:
                found[-1] += "\n" + line.removeprefix("> ")
            else:
                raise PageError(f"line {self.line}: a terminal begins with `$ `, not with {line!r}")
        return found


@dataclass(frozen=True)
class Page:
    """Page of the documentation, with its blocks in order; ``run`` is None if nothing in it is executed."""

    name: str
    run: Run | None
    blocks: tuple[Block, ...]

    @property
    def typed(self) -> str:
        """Return all that is typed on the page."""
        return "\n".join(block.source for block in self.blocks)


def find_digest(kind: str, source: str) -> str:
    """Return the key of a block's stored outputs: it changes with the text."""
    return hashlib.sha256(f"{kind}\n{_trim(source)}".encode()).hexdigest()[:16]


def parse_page(text: str, name: str = "page") -> Page:
    """Read a page; raise :class:`PageError` where it cannot be run as written."""
    head, start = _front_matter(text)
    blocks = tuple(_blocks(text.splitlines(), start))
    run = _run(head.get("run"), name)
    if run is None and blocks:
        raise PageError(f"{name}, line {blocks[0].line}: without `run:` in its front matter nothing is executed")
    for block in blocks:
        if block.kind == "terminal":
            _ = block.commands
    return Page(name, run, blocks)


def read_pages(docs: Path) -> list[Page]:
    """Return all executed pages below a folder, named by their path without its ending."""
    files = sorted(path for path in docs.rglob("*.md") if not {"_build", "extensions"} & {*path.parts})
    pages = [parse_page(path.read_text("utf-8"), path.relative_to(docs).with_suffix("").as_posix()) for path in files]
    return [page for page in pages if page.run is not None]


def _front_matter(text: str) -> tuple[dict[str, object], int]:
    match = re.match(r"---\n(.*?\n)---\n", text, re.DOTALL)
    if match is None:
        return {}, 0
    return yaml.safe_load(match[1]) or {}, match[0].count("\n")


def _run(data: object, name: str) -> Run | None:
    if data is None:
        return None
    if not isinstance(data, dict) or not isinstance(data.get("cluster"), str) or data.get("from") not in ORIGINS:
        raise PageError(f"{name}: `run:` needs `cluster: NAME` and `from: login` or `from: laptop`")
    return Run(data["cluster"], data["from"])


def _blocks(lines: list[str], start: int) -> Iterator[Block]:
    open_fences: list[str] = []
    at = start
    while at < len(lines):
        match = _FENCE.match(lines[at])
        at += 1
        if match is None:
            continue
        marks, info = match["marks"], match["info"]
        if open_fences and not info and marks.startswith(open_fences[-1]):
            open_fences.pop()
            continue
        directive = _DIRECTIVE.match(info)
        if directive is not None and directive["name"] not in _VERBATIM:
            open_fences.append(marks)
            continue
        end = _end(lines, at, marks)
        if directive is not None and directive["name"] in EXECUTED:
            yield _block(directive["name"], lines[at:end], at)
        at = end + 1


def _end(lines: list[str], at: int, marks: str) -> int:
    closing = (
        number for number in range(at, len(lines)) if re.match(rf" *{marks[0]}{{{len(marks)},}} *$", lines[number])
    )
    return next(closing, len(lines))


def _block(kind: str, lines: list[str], number: int) -> Block:
    options: dict[str, str] = {}
    while lines and (match := _OPTION.match(lines[0])):
        options[match["name"]] = match["value"] or ""
        lines = lines[1:]
    if unknown := options.keys() - {"expect", "hidden", "fails"}:
        raise PageError(f"line {number}: {{{kind}}} has no option {', '.join(sorted(unknown))}")
    expected = options.get("expect", "")
    if len(expected) > 1 and expected[0] == expected[-1] and expected[0] in "'\"":
        expected = expected[1:-1]
    return Block(kind, _trim("\n".join(lines)), number, expected, "hidden" in options, "fails" in options)


def _trim(source: str) -> str:
    return "\n".join(line.rstrip() for line in source.strip("\n").splitlines()).strip("\n")
