"""Checks of the ``#SBATCH`` lines of a script: text that sbatch drops silently, and blanks beside an equals sign."""

from __future__ import annotations

from jupyter_slurm.domain.options.equals_signs import joined_option
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.scripts.header_words import dropped_text, header_words
from jupyter_slurm.domain.scripts.script import header_lines_by_number
from jupyter_slurm.errors import CellError, OptionError

__all__ = ["check_equals_signs", "dropped_texts"]


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
