"""Pieces of Markdown for the generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

__all__ = ["block", "cell_text", "table"]


def block(text: str, language: str = "text") -> str:
    """Return a fenced block."""
    return f"```{language}\n{text.rstrip()}\n```\n"


def cell_text(text: str) -> str:
    """Return text for one cell of a table."""
    return re.sub(r"\s+", " ", str(text)).replace("|", "\\|").strip()


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell_text(one) for one in line)} |" for line in lines) + "\n"
