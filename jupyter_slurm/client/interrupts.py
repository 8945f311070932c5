"""Exception for an interrupted wait."""

from __future__ import annotations

__all__ = ["WaitInterrupted"]


class WaitInterrupted(KeyboardInterrupt):
    """A wait was interrupted; the message gives the state of the job."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message

    def _render_traceback_(self) -> list[str]:
        return [self.message]
