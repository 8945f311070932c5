"""Input and output on a terminal: questions to the user, hints in words of a terminal, commands with raw arguments."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from typing import Any

from jupyter_slurm.errors import SlurmError

__all__ = ["add_verbatim", "ask_until_valid", "for_terminal", "yes"]


def ask_until_valid(question: str, default: str = "", *, check: Callable[[str], bool] = lambda answer: True) -> str:
    """Ask until the answer is valid.

    Raises
    ------
    SlurmError
        There is no interactive user.
    """
    while True:
        try:
            answer = input(f"{question} [{default}]: " if default else f"{question}: ").strip() or default
        except EOFError:
            raise SlurmError(
                f"Nobody can be asked here: {question}?",
                hint="Run it in a terminal; --help tells how to say it before.",
            ) from None
        if answer and check(answer):
            return answer


def yes(question: str, *, default: bool) -> bool:
    """Ask a yes-or-no question; y and n suffice."""
    words = ("yes", "y", "no", "n")
    answer = ask_until_valid(
        f"{question} (yes/no)", "yes" if default else "no", check=lambda said: said.lower() in words
    )
    return answer.lower() in words[:2]


_RULES = (
    (re.compile(r"`?jupyter_slurm\.jobs\(\)`?"), "`jupyter slurm jobs --all`"),
    (re.compile(r"`?jupyter_slurm\.job\(['\"]?([\w.+-]+)['\"]?\)(?:\.state)?`?"), r"`jupyter slurm show \1`"),
    (re.compile(r"`?%%sbatch\?`?"), "`sbatch --help`"),
    (
        re.compile(
            r"%{1,2}(?=(?:cd|pwd|s(?:acct|acctmgr|batch|cancel|control|diag|info|prio|queue|report|share|stat))\b)"
        ),
        "",
    ),
)


def for_terminal(text: str) -> str:
    """Return a message or hint in which commands of the terminal replace those of a notebook."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def add_verbatim(subparsers: Any, name: str, *, summary: str, usage: str, description: str) -> None:
    """Add a subcommand with all its words, also options, in ``args.words``; ``args.explain()`` shows its help."""
    parser = subparsers.add_parser(
        name,
        help=summary,
        usage=usage,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(explain=parser.print_help)
