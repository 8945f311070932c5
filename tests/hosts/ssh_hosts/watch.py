"""Search for secrets in places that every user of a host can see."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["Watch", "watch"]


class Watch:
    """Repeated inspection of the command lines and environments of all processes, including those of all hosts."""

    def __init__(self) -> None:
        self.seen: dict[str, set[bytes]] = {"cmdline": set(), "environ": set()}
        self.rounds = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._end.wait(0.005):
            for process in os.listdir("/proc"):
                if process.isdigit() and int(process) != os.getpid():
                    for kind, seen in self.seen.items():
                        with contextlib.suppress(OSError):
                            seen.add(Path("/proc", process, kind).read_bytes())
            self.rounds += 1

    def stop(self) -> None:
        """Stop the inspection."""
        self._end.set()
        self._thread.join()

    def where(self, secret: str, *kinds: str) -> list[bytes]:
        """Return the places that contained a secret: in command lines and environments, or in one of the two."""
        return [text for kind in kinds or self.seen for text in self.seen[kind] if secret.encode() in text]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Inspect all processes of this machine and its hosts for the duration of the test."""
    watching = Watch()
    yield watching
    watching.stop()
