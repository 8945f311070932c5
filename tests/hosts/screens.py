"""``jupyter slurm shell``, or another command, on a terminal, typed into by a test."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress

import pytest

__all__ = ["Screen", "open_screen"]


class Screen:
    """A command on a terminal, and all that it has written."""

    def __init__(self, environment: dict[str, str], *words: str, command: Sequence[str] = ()) -> None:
        self._main, terminal = pty.openpty()
        self.resize(100, 30)
        argv = [*(command or (sys.executable, "-m", "jupyter_slurm.cli.main", "shell")), *words]
        env = {**os.environ, **environment}
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        self.process = subprocess.Popen(argv, env=env, start_new_session=True, **streams)
        os.close(terminal)
        self._written = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._main, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, data: bytes) -> None:
        os.write(self._main, data)

    def wait(self, pattern: bytes, seconds: float = 60) -> re.Match[bytes]:
        """Wait for a text, and forget what came up to it."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self._written)):
            assert time.monotonic() < deadline, self._written
            if select.select([self._main], [], [], 0.2)[0]:
                try:
                    self._written += os.read(self._main, 1 << 16)
                except OSError:
                    raise AssertionError(self._written) from None
        self._written = self._written[found.end() :]
        return found

    def ask(self, text: str, pattern: bytes) -> re.Match[bytes]:
        self.type(text.encode() + b"\r")
        return self.wait(pattern)

    @property
    def text(self) -> str:
        return " ".join(self._written.decode().split())

    def end(self) -> int:
        with suppress(OSError):
            while select.select([self._main], [], [], 120)[0] and (data := os.read(self._main, 1 << 16)):
                self._written += data
        return self.process.wait(120)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self._main)


@pytest.fixture
def open_screen(environment: dict[str, str]) -> Iterator[Callable[..., Screen]]:
    """Return ``open_screen(*words)``, which runs ``jupyter slurm shell`` with these words."""
    opened: list[Screen] = []

    def start(*words: str) -> Screen:
        opened.append(Screen(environment, *words))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()
