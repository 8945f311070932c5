"""Looking for secrets where everybody on a host can see them."""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

__all__ = ["Watch", "watch"]


class Watch:
    """Looks at the command lines and environments of all processes, again and again: those of all hosts are among them."""

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
        """Look no more."""
        self._end.set()
        self._thread.join()

    def where(self, secret: str, *kinds: str) -> list[bytes]:
        """Return what held a secret: of command lines and environments, or of one kind."""
        return [text for kind in kinds or self.seen for text in self.seen[kind] if secret.encode() in text]


@pytest.fixture
def watch() -> Iterator[Watch]:
    """All processes of this machine and of its hosts, looked at as long as the test runs."""
    watching = Watch()
    yield watching
    watching.stop()
