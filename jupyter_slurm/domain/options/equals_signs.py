"""Equals signs that getopt(3) takes for something else: with a blank beside them, or after a letter (``-n=4``)."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

from jupyter_slurm.domain.options.option_parser import Option, OptionTable
from jupyter_slurm.errors import OptionError

__all__ = ["joined_option", "letter_without_sign"]


def joined_option(option: Option, words: Sequence[str], table: OptionTable) -> str | None:
    """Return the probably intended form of an option with a blank beside its equals sign; None for any other option.

    Parameters
    ----------
    option : Option
        Option in the words.
    words : sequence of str
        All words of the line.
    table : OptionTable
        The options of the command.
    """
    following = option.index + len(option.tokens)
    after = words[following] if following < len(words) and not words[following].startswith("-") else ""
    first, glue = option.tokens[0] if option.tokens else "", "="
    if not first.startswith("--"):
        glue = " "
    if len(option.tokens) == 2 and option.tokens[1].startswith("="):
        value = option.tokens[1][1:]
        return f"{first}{glue}{value or after}" if value or after else None
    if first.endswith("=") and not option.value and first.startswith("--") and after:
        return first + after
    if len(first) == 3 and option.value == "=" and after:
        return _with_value(first[:2], after, table)
    if option.value is None and after == "=":  # an option without a value, or with an optional one
        value = words[following + 1] if following + 1 < len(words) else ""
        return f"{first}={value}" if first.startswith("--") and value and not value.startswith("-") else first
    return None


def letter_without_sign(option: Option, table: OptionTable) -> list[str]:
    """Return the forms that ``-n=4`` should have: ``-n 4``, and with the long name; empty for any other option."""
    word, value = option.tokens[0] if len(option.tokens) == 1 else "", (option.value or "")[1:]
    if not value or word[2:] != f"={value}":
        return []
    long = [f"--{option.name}={shlex.quote(value)}"] if len(option.name) > 1 else []
    return [_with_value(word[:2], shlex.quote(value), table), *long]


def _with_value(letter: str, value: str, table: OptionTable) -> str:
    """Return an option's letter with its value. An optional value is never the next word: ``-K1``."""
    try:
        table.read_option([letter], 0)
    except OptionError:  # the value is missing
        return f"{letter} {value}"
    return letter + value
