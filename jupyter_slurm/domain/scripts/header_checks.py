"""Checks of the ``#SBATCH`` lines of a script: lines and text that sbatch does not read, and misleading characters."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from jupyter_slurm.domain.options.equals_signs import joined_option
from jupyter_slurm.domain.options.option_parser import OptionTable, option_meant
from jupyter_slurm.domain.scripts.header_words import dropped_text, header_words
from jupyter_slurm.domain.scripts.script import head_lines, header_lines_by_number
from jupyter_slurm.errors import CellError, OptionError

__all__ = ["check_equals_signs", "dropped_texts", "header_warnings"]

# Lines with an option that miss the mark. ``##SBATCH`` is left out: that is how a line is switched off.
_MISSED_MARK = re.compile(r"\ufeff?\s*#\s*SBATCH\s*-", re.IGNORECASE)
# Characters of text processors and web pages that look like blanks and quotes, and are neither for sbatch.
_BLANK_CHARACTERS = re.compile("[\u00a0\u2000-\u200d\u202f\u205f\u2060\u3000\ufeff]")
_QUOTE_CHARACTERS = re.compile("[\u2018-\u201f\u00ab\u00bb]")


def header_warnings(text: str) -> list[str]:
    """Return a warning for each line that sbatch does not read as it looks."""
    return [*_missed_marks(text), *dropped_texts(text), *_misleading_characters(text)]


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
    """Refuse a blank beside the equals sign of an option.

    Raises
    ------
    CellError
        ``details["line"]`` has the line.
    """
    for number, line in header_lines_by_number(text):
        words = list(header_words(line, number))
        try:
            options = table.split(words).options
        except OptionError:
            continue  # sbatch names it
        for option in options:
            if meant := joined_option(option, words):
                raise CellError(
                    f"Line {number}: no blank may stand beside the = of {option.tokens[0].rstrip('=')}.",
                    hint=f"Write #SBATCH {meant}",
                    line=number,
                )
