"""Blanks beside an equals sign of a magic line: ``--time = 3`` would be another option, or a keyword."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_slurm.domain.magic_line.tokenizer import Token
from jupyter_slurm.domain.options.equals_signs import joined_option
from jupyter_slurm.domain.options.option_parser import Option
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["check_equals", "check_lone_equals"]


def check_equals(options: list[Option], tokens: Sequence[Token]) -> list[Option]:
    """Return options, and refuse one with a blank beside its equals sign; a quoted value may begin with that sign."""
    for option in options:
        meant = joined_option(option, [token.text for token in tokens])
        if not option.tokens:
            continue  # a letter in a bundle
        last = option.index + len(option.tokens) - (not option.value or "=" not in option.tokens[-1])
        text, start, end = tokens[min(last, len(tokens) - 1)][:3]
        if meant and end - start == len(text):
            raise OptionError(
                f"No blank may stand beside the = of {option.tokens[0].rstrip('=')}.",
                hint=f"Write {meant}",
                option=option.tokens[0],
                span=[tokens[option.index].start, end],
            )
    return options


def check_lone_equals(tokens: Sequence[Token], at: int) -> None:
    """Refuse a word that is an equals sign, or begins with one."""
    text, start, end = tokens[at][:3]
    if text.startswith("=") and end - start == len(text):
        before = tokens[at - 1].text if at else "NAME"
        after = tokens[at + 1].text if text == "=" and at + 1 < len(tokens) else text[1:]
        raise UsageError(
            "No blank may stand beside =.", hint=f"Write {before}={after}, or leave the = out.", span=[start, end]
        )
