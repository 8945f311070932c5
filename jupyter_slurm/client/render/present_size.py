"""Sizes for reading."""

from __future__ import annotations

__all__ = ["format_size"]


def format_size(count: int) -> str:
    """Format a number of bytes for reading."""
    for unit, size in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20)):
        if count >= size:
            return f"{count / size:.1f} {unit}"
    return f"{count / 1024:.0f} KiB" if count >= 1024 else f"{count} B"
