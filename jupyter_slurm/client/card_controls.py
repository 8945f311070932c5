"""Factory of the widget below the card of a job.

The widgets are a layer above the client, which never names them: the package registers the factory when it is loaded.
This module imports no other module of the package: every process would pay for it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["controls_of", "register_controls"]

_factory: Callable[[Any], Any] | None = None


def register_controls(factory: Callable[[Any], Any]) -> None:
    """Register the factory that makes the controls of every job."""
    global _factory
    _factory = factory


def controls_of(job: Any) -> Any:
    """Return a widget with the actions of a job."""
    assert _factory is not None, "the package registers it when it is loaded"
    return _factory(job)
