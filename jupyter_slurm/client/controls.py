"""Factory of the widget below the card of a job.

The widgets stand above the client, which never names them: the package registers how they are made when it is loaded.
Nothing of ours is imported here: that would cost every process its time.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["controls_of", "register_controls"]

_factory: Callable[[Any], Any] | None = None


def register_controls(factory: Callable[[Any], Any]) -> None:
    """Have the controls of every job made by this factory from now on."""
    global _factory
    _factory = factory


def controls_of(job: Any) -> Any:
    """Return a widget with what can be done with a job."""
    assert _factory is not None, "the package registers it when it is loaded"
    return _factory(job)
