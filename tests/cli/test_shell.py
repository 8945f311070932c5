"""Tests of ``jupyter slurm shell`` on a terminal, with an invented host: what it leaves of the user's terminal."""

from __future__ import annotations

import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Iterator

import pytest
from screens import Screen

# The host sends the frames in the arguments, over a connection each. The second login asks a question.
PROGRAM = """
import os, socket, sys, threading
from jupyter_slurm.cli import shell
from jupyter_slurm.client.clusters import terminal

class Viewer(terminal.TerminalViewer):
    def __init__(self, sent):
        self.sock, host = socket.socketpair()
        self.source = self.sink = self.sock
        self._reader = terminal.FrameReader()
        threading.Thread(target=self.serve, args=(host, sent), daemon=True).start()

    def serve(self, host, sent):
        host.recv(1 << 10)  # the size
        host.sendall(sent)
        b"stays" in sent and threading.Event().wait()
        host.close()

    @classmethod
    def attach(cls, cluster, name):
        return cls(eval(sys.argv[cluster.logins]))

class Cluster:
    is_remote, name, logins = True, "mycluster", 0

    def __init__(self):
        self.client, self.answers, self.is_answered = self, [], threading.Event()

    def log_in(self):
        self.logins += 1
        if self.logins == 2:
            self.is_answered.wait()

    def get(self, path):
        questions = [{"text": "Password:", "echo": False}]
        prompt = dict(id="1", cluster="mycluster", host="h", kind="login", title="", instruction="", questions=questions)
        return [prompt] if self.logins == 2 and not self.answers else []

    def post(self, path, json):
        self.answers = json["answers"]
        self.is_answered.set()

terminal.TerminalViewer = Viewer
frame = terminal.frame
cluster = Cluster()
code = shell._Screen(cluster, "0123abcd").show()
print("answers", cluster.answers)
sys.exit(code)
"""
STAYS = 'frame(b"o", b"stays")'


@pytest.fixture
def show() -> Iterator[Callable[..., Screen]]:
    """Return ``show(*frames)``, which shows the terminal of an invented host."""
    opened: list[Screen] = []

    def start(*frames: str, before: str = "") -> Screen:
        opened.append(Screen({}, *frames, command=[sys.executable, "-c", before + PROGRAM]))
        return opened[-1]

    yield start
    for screen in opened:
        screen.close()


def tty_of(screen: Screen) -> int:
    return os.open(f"/proc/{screen.process.pid}/fd/0", os.O_RDWR | os.O_NOCTTY)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_no_raw_terminal(show: Callable[..., Screen], number: signal.Signals) -> None:
    screen = show(STAYS)
    file = tty_of(screen)
    try:
        before = termios.tcgetattr(file)
        screen.wait(b"stays")
        assert not termios.tcgetattr(file)[3] & termios.ICANON
        screen.process.send_signal(number)
        assert screen.process.wait(30) == 128 + number
        assert termios.tcgetattr(file) == before
    finally:
        os.close(file)
    screen.wait(rb"\x1b\[\?1003l(?s:.*)\x1b\[>4m")


def test_a_login_asks_line_by_line(show: Callable[..., Screen]) -> None:
    screen = show('frame(b"o", b"up")', 'frame(b"x", b"3")')
    screen.wait(rb"up(?s:.*)Password: ")
    screen.type(b"secret\r")
    screen.wait(rb"answers \['secret'\]")
    assert screen.end() == 3


def test_the_rest_of_a_paste_is_not_typed_into_the_users_shell(show: Callable[..., Screen]) -> None:
    screen = show(STAYS)
    file = tty_of(screen)
    try:
        screen.wait(b"stays")
        screen.type(b"x\x1dd" + b"y\n" * 12_000)  # more than is read at once
        screen.wait(b"Detached")
        assert screen.process.wait(30) == 0
        os.set_blocking(file, False)
        with pytest.raises(BlockingIOError):
            os.read(file, 1)
    finally:
        os.close(file)


def test_a_terminal_that_does_not_block_shows_all(show: Callable[..., Screen]) -> None:
    frames = 'b"".join(frame(b"o", b"z" * 60_000) for _ in range(20)) + frame(b"x", b"4")'
    screen = show(frames, before="import os; os.set_blocking(1, False)\n")
    time.sleep(1)  # its buffer is full
    assert screen.end() == 4
    assert screen.text.count("z") == 1_200_000


def test_an_endless_exit_code_is_not_known(show: Callable[..., Screen]) -> None:
    screen = show('frame(b"x", b"9" * 5000)')
    assert screen.end() == 1
    assert "Traceback" not in screen.text
