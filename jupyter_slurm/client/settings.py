"""Settings of this process, read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["settings"]

_settings: Settings | None = None


def settings() -> Settings:
    """Return the settings of this process, read once."""
    global _settings
    if _settings is None:
        from jupyter_slurm.config import load_settings

        _settings = load_settings()
    return _settings
