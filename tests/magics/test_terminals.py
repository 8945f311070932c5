"""Tests of ``jupyter slurm shell``: terminals on the login node and in a job, here and over SSH."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest

pytestmark = pytest.mark.slurm

DETACH = b"\x1dd"


class Screen:
    """A command on a terminal, and all that it has written."""

    def __init__(self, environment: dict[str, str], *words: str) -> None:
        self._main, terminal = pty.openpty()
        self.resize(100, 30)
        argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "shell", *words]
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
            while select.select([self._main], [], [], 30)[0] and (data := os.read(self._main, 1 << 16)):
                self._written += data
        return self.process.wait(30)

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


def shell(environment: dict[str, str], *words: str) -> str:
    """Return the error of ``jupyter slurm shell`` on a terminal."""
    screen = Screen(environment, *words)
    assert screen.end() == 1
    screen.close()
    return screen.text


def listed(environment: dict[str, str]) -> str:
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "shell", "--list"]
    return subprocess.run(argv, env={**os.environ, **environment}, capture_output=True, check=True, text=True).stdout


def test_a_terminal_outlives_its_viewer(open_screen: Any, environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%slurm sh true")  # the login of the notebook
    screen = open_screen()
    screen.wait(rb"[#$%>] ")  # start-up files may drop what is typed before
    screen.ask("echo $((6 * 7))-${#TERM}", rb"42-14\r\n")
    screen.ask("stty size", rb"30 100\r\n")
    screen.resize(90, 20)
    screen.process.send_signal(signal.SIGWINCH)
    screen.ask("sleep 0.2; stty size", rb"20 90\r\n")
    screen.type(DETACH)
    name = screen.wait(rb"shell ([0-9a-f]{8})`")[1].decode()
    assert screen.end() == 0
    assert name in listed(environment)

    back = open_screen(name)
    back.wait(rb"42-14\r\n")  # the scrollback
    back.ask("exit 5", rb"exit 5")
    assert back.end() == 5
    assert name not in listed(environment)


def test_a_shell_in_a_job_ends_with_it(open_screen: Any, kernel: Any) -> None:
    kernel.ok("%%sbatch as=job\n#!/bin/bash\nsleep 600")
    job = kernel.value("job.id").strip("'")
    kernel.ok("import time\nwhile job.refresh().state != 'RUNNING': time.sleep(0.2)")
    screen = open_screen(str(job))
    screen.wait(rb"[#$%>] ")
    screen.ask("echo in $SLURM_JOB_ID", rb"in " + str(job).encode() + rb"\r\n")
    screen.ask("tty | cut -c 1-8", rb"/dev/pts\r\n")
    kernel.ok("job.cancel()")
    assert screen.end() != 0


def test_targets_by_name(open_screen: Any, environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%salloc as=train -c 1 keep")
    job = kernel.value("train.wait_granted().id").strip("'")
    screen = open_screen("train")
    screen.wait(rb"[#$%>] ")
    screen.ask("echo in $SLURM_JOB_ID", rb"in " + job.encode() + rb"\r\n")
    assert re.search(rf"[0-9a-f]{{8}}  \S+  train \(job {job}\) on \S+  2", listed(environment))
    screen.ask("exit 3", rb"exit 3")
    assert screen.end() == 3

    for name in ("train", "twin", "twin"):  # a name of Slurm counts less than one of jupyter_slurm
        kernel.ok(f"%%sbatch -J {name} -H\n#!/bin/bash\nsleep 600")
    screen = open_screen("train")
    screen.wait(rb"[#$%>] ")
    screen.type(DETACH)
    screen.end()
    refused = shell(environment, "twin")
    assert re.search(r"Several jobs have the name twin: \d+ \(job, PENDING\), \d+ \(job, PENDING\)", refused), refused
    assert "No job, session, kernel or allocation has the name nothing" in shell(environment, "nothing")


def test_words_that_are_wrong(environment: dict[str, str], kernel: Any) -> None:
    kernel.ok("%slurm sh true")
    argv = [sys.executable, "-m", "jupyter_slurm.cli.main", "shell"]
    for words, said in (([], "must be a terminal"), (["ffffffff", "--close"], "is not a terminal of")):
        done = subprocess.run(
            [*argv, *words], env={**os.environ, **environment}, capture_output=True, check=False, text=True
        )
        assert (done.returncode, said in done.stderr) == (1, True), done.stderr
