"""Equals signs of a magic line that Slurm would read as something else: ``--time = 3``, and ``-n=4``."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_slurm.domain.magic_line.tokenizer import Token
from jupyter_slurm.domain.options.equals_signs import joined_option, letter_without_sign
from jupyter_slurm.domain.options.option_parser import Option, OptionTable
from jupyter_slurm.errors import OptionError, UsageError

__all__ = ["check_equals", "check_lone_equals"]


def check_equals(options: list[Option], tokens: Sequence[Token], table: OptionTable) -> list[Option]:
    """Return options, and refuse one with a blank beside its equals sign, or with an equals sign after a letter.

    A quoted value in a word of its own, and an inserted value, may begin with that sign.
    """
    for option in options:
        if (forms := letter_without_sign(option, table)) and tokens[option.index].typed > len("-n"):
            raise OptionError(
                f"No = may stand between {option.tokens[0][:2]} and its value.",
                hint=f"Write {' or '.join(forms)}.",
                option=option.tokens[0],
                span=[tokens[option.index].start, tokens[option.index].end],
            )
        meant = joined_option(option, [token.text for token in tokens], table)
        if not option.tokens:
            continue  # a letter in a bundle
        last = option.index + len(option.tokens) - (not option.value or not option.tokens[-1].endswith("="))
        text, start, end, typed = tokens[min(last, len(tokens) - 1)][:4]
        if meant and end - start == len(text) == typed:
            raise OptionError(
                f"No blank may stand beside the = of {option.tokens[0].rstrip('=')}.",
                hint=f"Write {meant}",
                option=option.tokens[0],
                span=[tokens[option.index].start, end],
            )
    return options


def check_lone_equals(tokens: Sequence[Token], at: int) -> None:
    """Refuse a word that is an equals sign, or begins with one."""
    text, start, end, typed = tokens[at][:4]
    if text.startswith("=") and end - start == len(text) == typed:
        before = tokens[at - 1].text if at else "NAME"
        after = tokens[at + 1].text if text == "=" and at + 1 < len(tokens) else text[1:]
        raise UsageError(
            "No blank may stand beside =.", hint=f"Write {before}={after}, or leave the = out.", span=[start, end]
        )
