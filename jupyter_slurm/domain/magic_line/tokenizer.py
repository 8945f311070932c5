"""Words of a magic line: quotes and backslashes as in a POSIX shell (Shell Command Language, 2.2), inserted values.

Values are inserted except in single quotes (:mod:`jupyter_slurm.domain.magic_line.expand`). A value becomes part of the
current word, so that a value with blanks stays one word. In ``sweep=name:"a,b",c`` the quotes belong to a value, and
stay.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from jupyter_slurm.domain.magic_line.expand import Lookup, expand_at, variable_at
from jupyter_slurm.errors import UsageError

__all__ = ["NO_VARIABLES", "Token", "tokenize"]

NO_VARIABLES: Mapping[str, str] = {}
_BEFORE_HOME = re.compile(r"(--[A-Za-z][\w-]*=)?")  # of the current word


class Token(NamedTuple):
    """One word of a line.

    Attributes
    ----------
    text : str
        The text without quotes, with values inserted.
    start, end : int
        Position in the line, as typed.
    typed : int
        Number of characters at the beginning of ``text`` that were typed. A Python value may follow.
    node_variables : tuple of int
        Positions in ``text`` of ``$NAME`` outside single quotes, with the name of a variable that only a node has.
    """

    text: str
    start: int
    end: int
    typed: int
    node_variables: tuple[int, ...] = ()


def tokenize(
    line: str,
    lookup: Lookup | None = None,
    variables: Mapping[str, str] = NO_VARIABLES,
    is_last: Callable[[Token], bool] = lambda token: True,
) -> list[Token]:
    """Split a line into words.

    Parameters
    ----------
    line : str
        Text after the magic's name.
    lookup : callable, optional
        Python values for ``{name}`` and ``$name``.
    variables : mapping, optional
        The environment, for ``$NAME`` and ``~`` if Python has no such name.
    is_last : callable, optional
        Returns whether ``sweep=`` is no keyword after a word. By default it is one in the first word alone.

    Raises
    ------
    UsageError
        A quote is not closed, or the line has a NUL byte; ``details["span"]`` has the position.
    """
    if "\0" in line:
        at = line.index("\0")
        raise UsageError("The line holds a NUL byte.", hint="Remove the NUL byte.", span=[at, at + 1])
    return list(iter(_Reader(line, lookup, variables, is_last).next, None))


class _Reader:
    """One pass over a line."""

    def __init__(
        self, line: str, lookup: Lookup | None, variables: Mapping[str, str], is_last: Callable[[Token], bool]
    ) -> None:
        self.line, self.lookup, self.variables, self.is_last = line, lookup, variables, is_last
        self.at = self.start = 0
        self.has_keywords = True
        self.text: list[str] = []
        self.typed: int | None = None
        self.node_variables: list[int] = []

    def next(self) -> Token | None:
        line = self.line
        while self.at < len(line) and line[self.at].isspace():
            self.at += 1
        if self.at >= len(line) or line[self.at] == "#":  # a comment, as in a shell
            return None
        self.start, self.text, self.typed, self.node_variables = self.at, [], None, []
        while self.at < len(line) and not line[self.at].isspace():
            self._step()
        text = "".join(self.text)
        typed = len(text) if self.typed is None else self.typed
        token = Token(text, self.start, self.at, typed, tuple(self.node_variables))
        self.has_keywords = self.has_keywords and not self.is_last(token)
        return token

    @property
    def is_sweep(self) -> bool:
        return self.has_keywords and self.line.startswith("sweep=", self.start)

    def _step(self) -> None:
        char = self.line[self.at]
        if char == "'":
            end = self.line.find("'", self.at + 1)
            if end < 0:
                raise self._open_quote(self.at)
            self._group(self.at, self.line[self.at + 1 : end])
            self.at = end + 1
        elif char == '"':
            self._double()
        elif char == "\\":
            if self.at + 1 == len(self.line):
                hint = "Write the magic in one line. Write \\\\ for a backslash."
                raise UsageError("The line ends with a backslash.", hint=hint, span=[self.at, self.at + 1])
            self.text.append(self.line[self.at + 1 : self.at + 2])
            self.at += 2
        elif char == "~" and _BEFORE_HOME.fullmatch(self.line, self.start, self.at):
            self._plain(variable_at(self.line, self.at, self.variables))
        else:
            self._plain(self._value(self.at))

    def _double(self) -> None:
        start, before = self.at, len(self.text)
        self.at += 1
        while self.at < len(self.line) and self.line[self.at] != '"':
            if self.line[self.at] == "\\" and self.line[self.at + 1 : self.at + 2] in tuple('"\\$`{\n'):
                self.text.append(self.line[self.at + 1])
                self.at += 2
            else:
                self._plain(self._value(self.at))
        if self.at >= len(self.line):
            raise self._open_quote(start)
        self.at += 1
        grouped = "".join(self.text[before:])
        del self.text[before:]
        self._group(start, grouped)

    def _group(self, at: int, text: str) -> None:
        """Read a quoted text. In a value of a sweep, the quotes mark where the value ends."""
        is_value = self.is_sweep and self.line[at - 1] in ":,;([{"
        self.text.append(repr(text) if is_value else text)

    def _plain(self, value: tuple[str, int] | None) -> None:
        if value is None:
            if self.line[self.at] == "$" and self.line[self.at - 1 : self.at] != "$":
                self._add_node_variable()
            self.text.append(self.line[self.at])
            self.at += 1
        else:
            if self.typed is None:
                self.typed = len("".join(self.text))
            self.text.append(value[0])
            self.at = value[1]

    def _add_node_variable(self) -> None:
        """Record the position of a variable that only a node has."""
        from jupyter_slurm.runner.allocation.input_variables import NODE_VARIABLE  # few lines have a $ that stays

        if NODE_VARIABLE.match(self.line, self.at):
            self.node_variables.append(len("".join(self.text)))

    def _value(self, at: int) -> tuple[str, int] | None:
        if self.line[at : at + 1] not in ("{", "$"):
            return None
        is_list = self.is_sweep and not {"'", '"'}.intersection(self.line[self.start + len("sweep=") + 1 : at])
        value = expand_at(self.line, at, self.lookup, is_sweep=is_list) if self.lookup else None
        if value is None and self.line[at] == "$":
            value = variable_at(self.line, at, self.variables)
        if value is not None and "\0" in value[0]:
            said = f"The value of {self.line[at : value[1]]} holds a NUL byte."
            raise UsageError(said, hint="Remove the NUL byte.", span=[at, value[1]])
        return value

    def _open_quote(self, at: int) -> UsageError:
        said = f"The quote at {self.line[at : at + 12]!r} is not closed."
        return UsageError(said, hint="Close the quote.", span=[at, len(self.line)])
