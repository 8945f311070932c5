"""Checks of the ``#SBATCH`` lines of a script: lines and text that sbatch does not read, and misleading characters."""

from __future__ import annotations

import contextlib
import re
import unicodedata
from collections.abc import Iterator

from jupyter_slurm.domain.options.equals_signs import joined_option, letter_without_sign
from jupyter_slurm.domain.options.option_parser import Option, OptionTable, option_meant
from jupyter_slurm.domain.scripts.header_words import dropped_text, header_words
from jupyter_slurm.domain.scripts.script import head_lines, header_lines_by_number
from jupyter_slurm.errors import CellError, OptionError

__all__ = ["check_equals_signs", "dropped_texts", "header_warnings"]

# Lines with an option that miss the mark. ``##SBATCH`` is left out: that is how a line is switched off.
_MISSED_MARK = re.compile(r"\ufeff?\s*#\s*SBATCH\s*-", re.IGNORECASE)
# Characters of text processors and web pages that look like blanks and quotes, and are neither for sbatch.
_BLANK_CHARACTERS = re.compile("[\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff]")
# Options with a letter whose value never begins with an equals sign: sbatch or slurmctld refuses it.
_WITHOUT_SIGN = {
    "array",
    "begin",
    "core-spec",
    "cpus-per-task",
    "distribution",
    "extra-node-info",
    "no-kill",
    "nodes",
    "ntasks",
    "partition",
    "time",
}
_QUOTE_CHARACTERS = re.compile("[\u2018-\u201f\u00ab\u00bb]")


def header_warnings(text: str, table: OptionTable) -> list[str]:
    """Return a warning for each line that sbatch does not read as it looks."""
    return [*_missed_marks(text), *dropped_texts(text), *_signs_in_values(text, table), *_misleading_characters(text)]


def _missed_marks(text: str) -> Iterator[str]:
    missed = [
        str(number) for number, line in head_lines(text) if _MISSED_MARK.match(line) and not line.startswith("#SBATCH")
    ]
    if missed:
        yield (
            f"Slurm ignores line {', '.join(missed)}. A line of options begins with #SBATCH, in capital letters and "
            "without blanks before the S. To switch a line off, write ##SBATCH."
        )


def _misleading_characters(text: str) -> Iterator[str]:
    for number, line in header_lines_by_number(text):
        for word in header_words(line, number):
            if found := _BLANK_CHARACTERS.search(word):
                yield f"Line {number} has {_named(found[0])}, which is not a blank for sbatch. Type the blank again."
            elif found := _QUOTE_CHARACTERS.search(word):
                yield f"Line {number} has {_named(found[0])}, which is not a quote for sbatch. Use ' or \"."
            elif meant := option_meant(word):
                yield f"Line {number} has {_named(word[0])}, which is not a dash for sbatch. Write {meant}."


def _named(character: str) -> str:
    code = f"U+{ord(character):04X}"
    return f"{character if character.isprintable() else unicodedata.name(character, 'a character').lower()} ({code})"


def dropped_texts(text: str) -> list[str]:
    """Return a warning for each ``#SBATCH`` line of which sbatch drops a part that is no comment."""
    return [
        f"sbatch drops {dropped!r} in line {number}. Put the value in quotes, or a backslash before the #."
        if dropped.startswith("#")
        else f"sbatch drops {dropped!r} in line {number}. Move it to a line of its own."
        for number, line in header_lines_by_number(text)
        if (dropped := dropped_text(line))
    ]


def check_equals_signs(text: str, table: OptionTable) -> None:
    """Refuse a blank beside the equals sign of an option, and an equals sign after a letter (``-n=4``).

    :func:`header_warnings` has values that sbatch takes with the sign (``-J=name``).

    Raises
    ------
    CellError
        ``details["line"]`` has the line.
    """
    for number, option, words in _header_options(text, table):
        forms, meant = letter_without_sign(option, table), joined_option(option, words, table)
        if not (forms or meant) or _is_taken(option):
            continue
        if forms:
            raise CellError(
                f"Line {number}: no = may stand between {option.tokens[0][:2]} and its value.",
                hint=f"Write #SBATCH {' or '.join(forms)}.",
                line=number,
            )
        raise CellError(
            f"Line {number}: no blank may stand beside the = of {option.tokens[0].rstrip('=')}.",
            hint=f"Write #SBATCH {meant}",
            line=number,
        )


def _signs_in_values(text: str, table: OptionTable) -> Iterator[str]:
    for number, option, words in _header_options(text, table):
        forms = letter_without_sign(option, table) or [joined_option(option, words, table) or ""]
        if all(forms) and _is_taken(option):
            yield (
                f"Line {number}: for sbatch, the = after {option.tokens[0][:2]} is a part of the value. "
                f"Write #SBATCH {' or '.join(forms)}."
            )


def _header_options(text: str, table: OptionTable) -> Iterator[tuple[int, Option, list[str]]]:
    """Yield the options of each line that sbatch can read: the line's number, the option, and the line's words."""
    for number, line in header_lines_by_number(text):
        words = list(header_words(line, number))
        with contextlib.suppress(OptionError):  # sbatch names it
            yield from ((number, option, words) for option in table.split(words).options)


def _is_taken(option: Option) -> bool:
    """Return whether sbatch may take a value with its equals sign after a letter: ``-J=name``, ``-J= name``."""
    word = option.tokens[0] if option.tokens else ""
    return word[2:3] == "=" and not word.startswith("--") and option.name not in _WITHOUT_SIGN
