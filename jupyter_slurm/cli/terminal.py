"""Input and output on a terminal: questions to the user, hints in words of a terminal, commands with raw arguments."""

from __future__ import annotations

import argparse
import re
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any

from jupyter_slurm.documentation import page_url
from jupyter_slurm.errors import SlurmError

__all__ = ["PlainHelp", "add_command", "add_verbatim", "ask_until_valid", "for_terminal", "is_help", "yes"]


def ask_until_valid(question: str, default: str = "", *, check: Callable[[str], bool] = lambda answer: True) -> str:
    """Ask until the answer is valid.

    Raises
    ------
    SlurmError
        There is no interactive user.
    """
    while True:
        prompt = f"{question} [{default}]: " if default else f"{question}: "
        try:
            if sys.stdin.isatty():
                answer = input(prompt).strip() or default
            else:  # without an answer, only the error shows the question
                answer = input().strip() or default
                print(f"{prompt}{answer}")
        except EOFError:
            plain = question.removesuffix(_YES_NO).removesuffix("?")
            raise SlurmError(
                f"There is no terminal to ask this question: {plain}?",
                hint="Run the command in a terminal, or give the answer as an option (see --help).",
            ) from None
        if answer and check(answer):
            return answer


_YES_NO = " (yes/no)"


def yes(question: str, *, default: bool, is_quick: bool = False) -> bool:
    """Ask a yes-or-no question; y and n suffice. ``is_quick``: use the default without a question."""
    words = ("yes", "y", "no", "n")
    if is_quick:
        return default
    answer = ask_until_valid(
        f"{question}{_YES_NO}", "yes" if default else "no", check=lambda answer: answer.lower() in words
    )
    return answer.lower() in words[:2]


_RULES = (
    (re.compile(r"`?jupyter_slurm\.jobs\(\)`?"), "`jupyter slurm jobs --all`"),
    (re.compile(r"`?jupyter_slurm\.job\(['\"]?([\w.+-]+)['\"]?\)(?:\.state)?`?"), r"`jupyter slurm show \1`"),
    (re.compile(r"`?%%sbatch\?`?"), "`sbatch --help`"),
    (re.compile(r"%slurm sh (?=[a-z])(?!out=)"), "jupyter slurm sh -- "),
    (
        re.compile(
            r"%{1,2}slurm "
            r"(?=(?:copy|disconnect|env|get|image|kernel|launch|ls|put|room|sh|stage|transfers|usage|who)\b)"
        ),
        "jupyter slurm ",
    ),
    (re.compile(r"%slurm list\b"), "jupyter slurm connect"),
    (
        re.compile(
            r"%{1,2}(?=(?:cd|pwd|s(?:acct|acctmgr|attach|batch|bcast|cancel|control|diag|info|prio|queue|report|share|stat|trigger))\b)"
        ),
        "",
    ),
)


def for_terminal(text: str) -> str:
    """Return a message or hint in which commands of the terminal replace those of a notebook."""
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


class PlainHelp(argparse.HelpFormatter):
    """Formatter that wraps paragraphs of a description, and keeps lists and examples as they are."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        wrapper = textwrap.TextWrapper(width, break_on_hyphens=False, break_long_words=False)  # addresses stay whole
        return "\n\n".join(
            one if "\n" in one or one.startswith(" ") else wrapper.fill(one) for one in text.strip("\n").split("\n\n")
        )


def add_command(subparsers: Any, name: str, *, description: str, page: str) -> argparse.ArgumentParser:
    """Add a subcommand whose help ends with the address of a page of the documentation; return its parser."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        name, description=description, epilog=page_url(page), formatter_class=PlainHelp
    )
    return parser


def add_verbatim(subparsers: Any, name: str, *, usage: str, description: str) -> None:
    """Add a subcommand with all its words, also options, in ``args.words``; ``args.explain()`` shows its help."""
    parser = subparsers.add_parser(
        name,
        usage=usage,
        description=description,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        prefix_chars="\0",
        add_help=False,
    )
    parser.add_argument("words", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.set_defaults(explain=parser.print_help)


def is_help(words: Sequence[str]) -> bool:
    """Return whether the words of such a subcommand request its help. After ``--``, they belong to another command."""
    end = words.index("--") if "--" in words else len(words)
    return not {"-h", "--help"}.isdisjoint(words[:end])
