"""The magic line: Slurm's words, ours, and the arguments of the script.

::

    %%sbatch -p arandu --gpus 1 --time 2:00:00   as=job wait   -- arg1 arg2

What begins with a dash is Slurm's and travels unchanged; a bare ``word`` or ``word=value`` is ours; after ``--`` come
the arguments of the script. Quotes and backslashes work as in a POSIX shell (Shell Command Language, 2.2), and Python
values are put in by :mod:`jupyter_slurm.domain.expand`: outside single quotes, always into the word at hand, so that a
value with blanks stays one word and never becomes an option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_slurm.domain.expand import Lookup, expand_at
from jupyter_slurm.domain.options import Option, OptionTable, SplitArgv
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["MagicLine", "Token", "parse_cell_line", "parse_line_magic", "tokenize"]

_OWN = re.compile(r"(?P<word>[A-Za-z_][A-Za-z0-9_]*)(?:=(?P<value>.*))?", re.DOTALL)


@dataclass(frozen=True)
class Token:
    """One word of a line.

    Attributes
    ----------
    text : str
        Without its quotes, values put in.
    start, end : int
        Where it stands in the line, as typed.
    from_value : bool
        Whether it begins with a Python value: then it is neither an option nor a word of ours.
    """

    text: str
    start: int
    end: int
    from_value: bool = False


@dataclass(frozen=True)
class MagicLine:
    """A magic line taken apart.

    Attributes
    ----------
    options : list of str
        Slurm's words, unchanged and in their order.
    words : dict
        Ours, with their values (None for a bare one).
    args : list of str
        What follows ``--``.
    rest : list of str
        Of a line magic: the script or command and its arguments.
    parsed : SplitArgv
        The options as they were understood.
    spans : list of (int, int)
        Where each of ``options`` stands in the line.
    """

    options: list[str]
    words: dict[str, str | None]
    args: list[str]
    rest: list[str]
    parsed: SplitArgv
    spans: list[tuple[int, int]] = field(default_factory=list)


def tokenize(line: str, lookup: Lookup | None = None) -> list[Token]:
    """Split a line into words.

    Raises
    ------
    UsageError
        A quote is not closed, or there is a NUL byte; ``details["span"]`` says where.
    """
    if "\0" in line:
        at = line.index("\0")
        raise UsageError("the line holds a NUL byte", hint="Take it out.", span=[at, at + 1])
    reader, tokens = _Reader(line, lookup), []
    while (token := reader.next()) is not None:
        tokens.append(token)
    return tokens


class _Reader:
    """One pass over a line."""

    def __init__(self, line: str, lookup: Lookup | None) -> None:
        self.line, self.lookup, self.at = line, lookup, 0
        self.text: list[str] = []

    def next(self) -> Token | None:
        line = self.line
        while self.at < len(line) and line[self.at].isspace():
            self.at += 1
        if self.at >= len(line):
            return None
        start, self.text = self.at, []
        inner = line[start + 1 : start + 2] if line[start] == '"' else line[start]
        from_value = bool(inner) and self._value(start + (line[start] == '"')) is not None
        while self.at < len(line) and not line[self.at].isspace():
            self._step()
        return Token("".join(self.text), start, self.at, from_value)

    def _step(self) -> None:
        char = self.line[self.at]
        if char == "'":
            end = self._closing("'")
            self.text.append(self.line[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self._double()
        elif char == "\\":
            self.text.append(self.line[self.at + 1 : self.at + 2])
            self.at += 2
        else:
            self._plain()

    def _double(self) -> None:
        start = self.at
        self.at += 1
        while self.at < len(self.line) and self.line[self.at] != '"':
            if self.line[self.at] == "\\" and self.line[self.at + 1 : self.at + 2] in tuple('"\\$`{\n'):
                self.text.append(self.line[self.at + 1])
                self.at += 2
            else:
                self._plain()
        if self.at >= len(self.line):
            raise self._open_quote(start)
        self.at += 1

    def _plain(self) -> None:
        value = self._value(self.at)
        if value is None:
            self.text.append(self.line[self.at])
            self.at += 1
        else:
            self.text.append(value[0])
            self.at = value[1]

    def _value(self, at: int) -> tuple[str, int] | None:
        if self.lookup is None or self.line[at : at + 1] not in ("{", "$"):
            return None
        value = expand_at(self.line, at, self.lookup)
        if value is not None and "\0" in value[0]:
            raise UsageError(f"the value of {self.line[at : value[1]]} holds a NUL byte", span=[at, value[1]])
        return value

    def _closing(self, quote: str) -> int:
        end = self.line.find(quote, self.at + 1)
        if end < 0:
            raise self._open_quote(self.at)
        return end

    def _open_quote(self, at: int) -> UsageError:
        return UsageError(
            f"the quote at {self.line[at : at + 12]!r} is not closed", hint="Close it.", span=[at, len(self.line)]
        )


def parse_cell_line(
    line: str, table: OptionTable, words: Mapping[str, bool], lookup: Lookup | None = None
) -> MagicLine:
    """Take the line of a cell magic apart: options and own words in any order, then ``--`` and arguments.

    Parameters
    ----------
    line : str
        What stands behind the magic's name.
    table : OptionTable
        The options of the Slurm command.
    words : mapping
        Our words, and whether each takes a value.
    lookup : callable, optional
        Python values for ``{name}`` and ``$name``.

    Raises
    ------
    UsageError
        ``details["span"]`` says which part of the line is meant.
    """
    tokens = tokenize(line, lookup)
    texts = [token.text for token in tokens]
    options, ours, typed = list[Option](), dict[str, str | None](), list[Token]()
    at = 0
    while at < len(tokens) and not _is_end(tokens[at], line):
        if _is_option(tokens[at]):
            found = _take(table, texts, tokens, at)
            used = sum(len(option.tokens) for option in found)
            options += found
            typed += tokens[at : at + used]
            at += used
        else:
            _own_word(tokens[at], line, words, ours)
            at += 1
    return MagicLine(
        [token.text for token in typed],
        ours,
        texts[at + 1 :],
        [],
        SplitArgv(options, []),
        [(token.start, token.end) for token in typed],
    )


def parse_line_magic(
    line: str, table: OptionTable, words: Mapping[str, bool], lookup: Lookup | None = None
) -> MagicLine:
    """Take a line magic apart: own words first, then options, then the script or command with its arguments.

    Parameters and errors are those of :func:`parse_cell_line`.
    """
    tokens = tokenize(line, lookup)
    texts = [token.text for token in tokens]
    ours: dict[str, str | None] = {}
    at = 0
    while at < len(tokens):
        match = _OWN.fullmatch(texts[at])
        if tokens[at].from_value or match is None or match["word"] not in words:
            break
        _own_word(tokens[at], line, words, ours)
        at += 1
    first, options = at, list[Option]()
    while at < len(tokens) and not _is_end(tokens[at], line) and _is_option(tokens[at]):
        found = _take(table, texts, tokens, at)
        options += found
        at += sum(len(option.tokens) for option in found)
    typed = tokens[first:at]
    rest = texts[at + 1 :] if at < len(tokens) and _is_end(tokens[at], line) else texts[at:]
    spans = [(token.start, token.end) for token in typed]
    return MagicLine([token.text for token in typed], ours, [], rest, SplitArgv(options, rest), spans)


def _is_end(token: Token, line: str) -> bool:
    return line[token.start : token.end] == "--"


def _is_option(token: Token) -> bool:
    if token.from_value and token.text.startswith("-"):
        raise UsageError(
            f"a value cannot become an option: {token.text!r}",
            hint="Type the option and put only its value into {…}.",
            span=[token.start, token.end],
        )
    return token.text.startswith("-") and token.text != "-"


def _take(table: OptionTable, texts: Sequence[str], tokens: Sequence[Token], at: int) -> list[Option]:
    try:
        return table.take(texts, at)
    except OptionError as error:
        token = tokens[min(int(error.details.get("index", at)), len(tokens) - 1)]
        error.details["span"] = [token.start, token.end]
        raise


def _own_word(token: Token, line: str, words: Mapping[str, bool], ours: dict[str, str | None]) -> None:
    """Note a word of ours."""
    span = [token.start, token.end]
    match = None if token.from_value else _OWN.fullmatch(token.text)
    if match is None or match["word"] not in words:
        name = match["word"] if match else token.text
        near = difflib.get_close_matches(name, list(words), n=1)
        raise UsageError(
            f"{line[token.start : token.end]!r} is neither an option of Slurm nor a word of ours",
            hint=f"Did you mean {near[0]}?"
            if near
            else f"Our words: {', '.join(sorted(words))}. Arguments come after --.",
            span=span,
            suggestion=near[0] if near else None,
        )
    name, value = match["word"], match["value"]
    if name in ours:
        raise UsageError(f"{name} is there twice", hint="Say it once.", span=span)
    if words[name] and not value:
        raise UsageError(f"{name} needs a value", hint=f"Say {name}=…, without blanks around the =.", span=span)
    if not words[name] and value is not None:
        raise UsageError(f"{name} takes no value", hint=f"Say just {name}.", span=span)
    ours[name] = value
