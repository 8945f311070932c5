"""User at a terminal, who answers a command's questions."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

__all__ = ["Answer", "Dialogue", "Said", "converse"]

Answer = str | Callable[[], str]
Dialogue = Sequence[tuple[str, Answer]]


@dataclass(frozen=True)
class Said:
    """The exit code of a command, and all text on the terminal."""

    code: int
    text: str


def converse(argv: Sequence[str], env: Mapping[str, str], dialogue: Dialogue, timeout: float = 90) -> Said:
    """Run a command at a controlling terminal, and answer its questions in order."""
    main, terminal = pty.openpty()
    said, read, left = b"", 0, list(dialogue)
    streams = {"stdin": terminal, "stdout": terminal, "stderr": terminal}
    with subprocess.Popen(argv, env=env, cwd="/", **streams) as process:
        os.close(terminal)
        deadline = time.monotonic() + timeout
        while (process.poll() is None and time.monotonic() < deadline) or select.select([main], [], [], 0)[0]:
            try:
                if select.select([main], [], [], 0.2)[0]:
                    said = (said + os.read(main, 4096)).replace(b"\r\n", b"\n")
            except OSError:
                break
            if left and (match := re.search(left[0][0].encode(), said[read:])):
                read += match.end()
                answer = left.pop(0)[1]
                os.write(main, (answer if isinstance(answer, str) else answer()).encode() + b"\n")
        if process.poll() is None:
            process.kill()
    os.close(main)
    text = said.decode()
    assert not left, f"never asked for {left[0][0]}:\n{text}"
    return Said(process.returncode, text)
