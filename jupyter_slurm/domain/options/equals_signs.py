"""Options with a blank beside their equals sign (``--time = 3``), which getopt(3) takes for something else."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_slurm.domain.options.option_parser import Option

__all__ = ["joined_option"]


def joined_option(option: Option, words: Sequence[str]) -> str | None:
    """Return the probably intended form of an option with a blank beside its equals sign; None for any other option.

    Parameters
    ----------
    option : Option
        Option in the words.
    words : sequence of str
        All words of the line.
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
    if option.value is None and after == "=":  # an option without a value, or with an optional one
        value = words[following + 1] if following + 1 < len(words) else ""
        return f"{first}={value}" if first.startswith("--") and value and not value.startswith("-") else first
    return None
