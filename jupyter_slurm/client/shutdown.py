"""Flag for the shutdown of this process's Jupyter server: work that continues without the server is left alone."""

from __future__ import annotations

__all__ = ["is_leaving", "leave"]

_leaving = False


def leave() -> None:
    """Set the flag."""
    global _leaving
    _leaving = True


def is_leaving() -> bool:
    """Return whether the server is shutting down."""
    return _leaving
