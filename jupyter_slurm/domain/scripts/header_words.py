"""Words of one header line of a batch script, as sbatch reads them."""

from __future__ import annotations

import re
from collections.abc import Iterator

from jupyter_slurm.domain.options.option_parser import HET, QuotedColon
from jupyter_slurm.errors import CellError

__all__ = ["BLANKS", "dropped_text", "header_words"]

BLANKS = " \t\n\v\f\r"
"""Blanks of isspace(3) in the C locale."""

_COMPONENT = re.compile(r"(?:hetjob|packjob)(?!\S)", re.IGNORECASE)


def header_words(line: str, number: int) -> Iterator[str]:
    """Yield the words of a line after its ``#SBATCH``; ``number`` is that of the line, for errors."""
    rest = line.lstrip(BLANKS)
    if _COMPONENT.match(rest):
        yield HET
    while rest and not _COMPONENT.match(rest):
        if rest.startswith(":"):
            text = f"Line {number} of the cell: sbatch stops at a word that begins with a colon, {rest.split()[0]!r}."
            raise CellError(text, hint="Quote it, or put a backslash before it.", line=number)
        word, used = _read_header_word(rest, number)
        if not word:
            return
        yield QuotedColon(word) if word == HET else word
        rest = rest[used:].lstrip(BLANKS)


def dropped_text(line: str) -> str:
    """Return the part of a line after its ``#SBATCH`` that sbatch drops and that is no comment; empty: none."""
    rest = line.lstrip(BLANKS)
    while rest and not rest.startswith("#"):
        if found := _COMPONENT.match(rest):
            rest = rest[found.end() :].lstrip(BLANKS)
            return "" if rest.startswith("#") else rest
        if rest.startswith(":"):
            return ""  # sbatch names it
        word, used = _read_header_word(rest, 0)
        if not word or rest[used : used + 1] == "#":
            return rest[used:].lstrip(BLANKS)
        rest = rest[used:].lstrip(BLANKS)
    return ""


def _read_header_word(text: str, number: int) -> tuple[str, int]:
    """Return the word at the beginning of a text, and the length that it took."""
    word: list[str] = []
    quote, at = "", 0
    while at < len(text) and (quote or text[at] not in BLANKS):
        char = text[at]
        if char == "\\":
            escaped = text[at + 1 : at + 2]
            # Outside quotes only a blank can be escaped. Other white space ends the word, as the end of the line does.
            word.append(escaped if quote or escaped == " " else escaped.strip(BLANKS))
            at += 2 if quote or escaped == " " or escaped.strip(BLANKS) else 1
            continue
        if char == quote:
            quote = ""
        elif not quote and char in "\"'":
            quote = char
        elif not quote and char == "#":
            break
        else:
            word.append(char)
        at += 1
    if quote:
        text = f"Line {number} of the cell: the quote {quote} in #SBATCH is not closed."
        raise CellError(text, hint="Close the quote.", line=number)
    return "".join(word), at
