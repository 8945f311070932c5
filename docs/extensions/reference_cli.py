"""Page ``reference/cli``: every command of ``jupyter slurm`` with its options, from its argument parser."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator

from markdown_text import block, table

from jupyter_slurm.cli import main as command_line

_WIDTH = 96  # columns of help texts

_HEAD = """\
# Command line

All commands are subcommands of `jupyter slurm`. `jupyter slurm COMMAND --help` prints the same texts.
An error goes to standard error with exit code 1. Wrong usage has exit code 2.

"""


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Return the subcommands of a parser by name."""
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def command_parsers() -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Yield the name and the parser of each command."""
    for name in command_line._COMMANDS:
        _, parser = command_line._parser(name)
        yield name, subcommands(parser)[name]


def page() -> str:
    """Return the page."""
    os.environ["COLUMNS"] = str(_WIDTH)
    summaries = [(f"[`{name}`](#{name})", summary) for name, (_, summary) in command_line._COMMANDS.items()]
    parts = [_HEAD, table(("Command", "Purpose"), summaries), "\n"]
    for name, parser in command_parsers():
        parts += [f"## {name}\n\n", block(parser.format_help())]
        for verb, inner in subcommands(parser).items():
            parts += [f"\n### {name} {verb}\n\n", block(inner.format_help())]
        parts.append("\n")
    return "".join(parts)
