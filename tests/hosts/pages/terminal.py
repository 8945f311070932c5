"""Terminal of a page: commands typed one after the other in one shell."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from ssh_hosts.terminal import Answer, Said

__all__ = ["Terminal"]

_COLUMNS, _ROWS = 100, 60


class Terminal:
    """A shell that keeps its directory and its variables from command to command.

    Parameters
    ----------
    env : mapping
        Environment of the shell.
    home : Path
        Its first directory.
    prefix : sequence of str
        Command line before that of the shell.
    answers : sequence of pairs
        Regular expressions of questions, and what the user types.
    """

    def __init__(
        self, env: Mapping[str, str], home: Path, prefix: Sequence[str], answers: Sequence[tuple[str, Answer]]
    ) -> None:
        self._env, self._folder, self._prefix, self._answers = dict(env), home, tuple(prefix), answers
        self._state = home / ".terminal"

    def run(self, command: str, timeout: float = 120) -> Said:
        """Run a command; return its exit code and all text on the terminal."""
        self._state.unlink(missing_ok=True)
        script = f"{command}\n__code=$?\nenv -0 >{self._state}\nexit $__code"
        argv = ["setsid", "--ctty", "--wait", *self._prefix, "bash", "-c", script]
        said = self._converse(argv, timeout)
        if self._state.exists():
            pairs = (entry.partition("=") for entry in self._state.read_text().split("\0") if entry)
            self._env = {name: value for name, _, value in pairs if name not in ("_", "SHLVL")}
            self._folder = Path(self._env.get("PWD", self._folder))
        return said

    def _converse(self, argv: Sequence[str], timeout: float) -> Said:
        main, terminal = pty.openpty()
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", _ROWS, _COLUMNS, 0, 0))
        text, read, late, deadline = b"", 0, False, time.monotonic() + timeout
        streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
        with subprocess.Popen(argv, env=self._env, cwd=self._folder, **streams) as process:
            os.close(terminal)
            while (process.poll() is None and time.monotonic() < deadline) or select.select([main], [], [], 0)[0]:
                try:
                    if select.select([main], [], [], 0.2)[0]:
                        text += os.read(main, 4096)
                except OSError:
                    break
                for question, answer in self._answers:
                    if match := re.search(question.encode(), text[read:]):
                        read += match.end()
                        os.write(main, (answer if isinstance(answer, str) else answer()).encode() + b"\n")
            try:
                process.wait(max(1.0, deadline - time.monotonic()))  # its terminal is closed, or the time is over
            except subprocess.TimeoutExpired:
                process.kill()
                late = True
        os.close(main)
        shown = text.decode(errors="replace")
        return Said(process.returncode, f"{shown}\n(not ended within {timeout:g} s)" if late else shown)
