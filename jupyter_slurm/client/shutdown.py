"""Whether the Jupyter server of this process is about to stop: what goes on without it is then left alone."""

from __future__ import annotations

__all__ = ["is_leaving", "leave"]

_leaving = False


def leave() -> None:
    """Say that it stops now."""
    global _leaving
    _leaving = True


def is_leaving() -> bool:
    """Tell whether it does."""
    return _leaving
