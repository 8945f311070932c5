"""Commands with unchanged arguments: words that begin with a dash are Slurm's."""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["add_verbatim"]


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
