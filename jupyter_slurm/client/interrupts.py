"""An interrupted wait: the exception that says so."""

from __future__ import annotations

__all__ = ["WaitInterrupted"]


class WaitInterrupted(KeyboardInterrupt):
    """A wait was interrupted; the message says what became of the job."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        return [self.message]
