"""Tests of the keeper of a terminal: frames, viewers, scrollback, private folder, and its end."""

from __future__ import annotations

import json
import os
import re
import secrets
import select
import shutil
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.clusters.terminal import FrameReader, frame, input_frames, resize_frame
from jupyter_slurm.errors import TransportError
from jupyter_slurm.runner.terminal import keeper

ACCESS = str(resources.files("jupyter_slurm.runner").joinpath("terminal/access.py"))

OPEN: list[socket.socket] = []


def access(*words: str) -> Any:
    done = subprocess.run([sys.executable, "-IS", ACCESS, *words], capture_output=True, check=True, timeout=30)
    return json.loads(done.stdout)


class Viewer:
    """A viewer, and the output that it got."""

    def __init__(self, name: str, sock: socket.socket | None = None) -> None:
        if sock is None:
            sock = socket.socket(socket.AF_UNIX)
            OPEN.append(sock)
            sock.connect(f"{keeper.folder()}/{name}.sock")  # waits while the queue of the listener is full
        self.sock = sock
        self.sock.settimeout(30)
        self._reader, self.output, self.exit = FrameReader(), b"", b""

    def wait(self, text: bytes) -> None:
        while text not in self.output:
            self._read()

    def end(self) -> bytes:
        while not self.exit:
            self._read()
        return self.exit

    def _read(self) -> None:
        data = self.sock.recv(1 << 16)
        assert data, self.output[-1000:]
        for kind, content in self._reader.feed(data):
            self.output += content if kind == b"o" else b""
            self.exit = content if kind == b"x" else b""


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Return ``start(*argv)``, which starts a terminal and returns its ID; it ends with the test."""
    names: list[str] = []

    def begin(*argv: str) -> str:
        names.append(access("start", "80", "24", "", "", "", *argv)["id"])
        return names[-1]

    yield begin
    for name in names:
        path = Path(keeper.folder(), f"{name}.sock")
        if path.exists():
            Viewer(name).sock.sendall(frame(b"k", b""))
        deadline = time.monotonic() + 30
        for sock in OPEN:
            sock.close()
        while path.exists():  # nothing remains
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert not path.with_suffix(".json").exists()


def test_viewers_share_a_terminal(start: Callable[..., str]) -> None:
    name = start("sh", "-c", "stty -echo; echo ready; while read x; do stty size; echo got-$x; done; exit 7")
    assert stat.S_IMODE(os.lstat(keeper.folder()).st_mode) == 0o700
    assert stat.S_IMODE(os.lstat(f"{keeper.folder()}/{name}.sock").st_mode) & 0o077 == 0
    first = Viewer(name)
    first.wait(b"ready")
    first.sock.sendall(resize_frame(132, 43) + input_frames(b"one\n"))
    first.wait(b"43 132\r\ngot-one\r\n")
    second = Viewer(name)
    second.wait(b"got-one\r\n")
    first.sock.close()
    second.sock.sendall(input_frames(b"two\n\x04"))
    second.wait(b"got-two")
    assert second.end() == b"7"
    assert name not in [one["id"] for one in access("list")]


def test_the_scrollback_is_limited_and_input_is_whole(start: Callable[..., str]) -> None:
    name = start("sh", "-c", "stty raw -echo; echo ready; head -c 300000 | cksum; seq 1 400000; echo last; cat")
    viewer = Viewer(name)
    viewer.wait(b"ready")
    data = secrets.token_bytes(300_000)
    viewer.sock.sendall(input_frames(data))
    viewer.wait(b"last")
    asked = subprocess.run(["cksum"], input=data, capture_output=True, check=True).stdout.split()
    assert b" ".join(asked) in viewer.output[:100]
    late = Viewer(name)
    late.wait(b"last")
    assert keeper.SCROLLBACK_BYTES // 2 < len(late.output) <= keeper.SCROLLBACK_BYTES


@pytest.mark.parametrize("sent", [b"z\0\0\0\0", b"i\xff\xff\xff\xff", b"r\0\0\0\x01x"])
def test_a_viewer_that_sends_anything_else_is_disconnected(start: Callable[..., str], sent: bytes) -> None:
    name = start("sh", "-c", "stty -echo; echo ready; cat")
    good, bad = Viewer(name), Viewer(name)
    good.wait(b"ready")
    bad.wait(b"ready")
    bad.sock.sendall(sent)
    assert bad.sock.recv(1) == b""
    good.sock.sendall(input_frames(b"alive\n"))
    good.wait(b"alive")


def test_a_shell_has_the_umask_of_the_user(start: Callable[..., str]) -> None:
    old = os.umask(0o027)
    try:
        name = start("sh", "-c", "echo mask $(umask); cat")
    finally:
        os.umask(old)
    Viewer(name).wait(b"mask 0027")


def test_a_stopped_keeper_stops_no_list(start: Callable[..., str]) -> None:
    name = start("sh", "-c", "echo parent $PPID.; cat")
    viewer = Viewer(name)
    viewer.wait(b".\r\n")
    process = int(viewer.output.split()[1].rstrip(b"."))
    os.kill(process, signal.SIGSTOP)
    try:
        for _ in range(keeper.MAX_VIEWERS + 3):  # the queue of the listener is full
            assert name in [one["id"] for one in access("list")]
    finally:
        os.kill(process, signal.SIGCONT)


Attach = Callable[[str], tuple[Viewer, "subprocess.Popen[bytes]"]]


@pytest.fixture
def attach() -> Iterator[Attach]:
    """Return ``attach(name)``, which starts a process that connects its standard streams with a terminal."""
    processes: list[subprocess.Popen[bytes]] = []

    def begin(name: str) -> tuple[Viewer, subprocess.Popen[bytes]]:
        near, far = socket.socketpair()
        OPEN.append(near)
        with far:
            argv = [sys.executable, "-ISu", ACCESS, "attach", name, "mark"]
            processes.append(subprocess.Popen(argv, stdin=far, stdout=far))
        near.settimeout(30)
        while near.recv(1) != b"\n":
            pass
        return Viewer(name, near), processes[-1]

    yield begin
    for process in processes:
        with process:
            process.kill()


def test_a_carrier_hands_its_streams_over(start: Callable[..., str], attach: Attach) -> None:
    """Keys pass while the process itself is stopped; a later one has the output so far."""
    name = start("sh", "-c", "stty -echo; echo ready; while read x; do stty size; echo got-$x; done; exit 7")
    first, process = attach(name)
    first.wait(b"ready\r\n")
    os.kill(process.pid, signal.SIGSTOP)
    first.sock.sendall(resize_frame(132, 43) + input_frames(b"one\n"))
    first.wait(b"43 132\r\ngot-one\r\n")
    assert first.output.count(b"ready") == 1
    os.kill(process.pid, signal.SIGCONT)
    late, second = attach(name)
    late.wait(b"got-one\r\n")
    late.sock.sendall(input_frames(b"\x04"))
    assert first.end() == late.end() == b"7"
    assert process.wait(30) == second.wait(30) == 0


@pytest.mark.parametrize("end", ["viewer", "process"])
def test_a_carrier_ends_with_its_viewer_and_the_streams_with_the_carrier(
    start: Callable[..., str], attach: Attach, end: str
) -> None:
    name = start("sh", "-c", "stty -echo; echo ready; cat")
    stays, _ = attach(name)
    viewer, process = attach(name)
    for one in (stays, viewer):
        one.wait(b"ready")
    if end == "viewer":
        viewer.sock.close()
        assert process.wait(30) == 0
    else:
        process.kill()
        assert viewer.sock.recv(1 << 16).strip() == b""
        assert viewer.sock.recv(1) == b""
    stays.sock.sendall(input_frames(b"alive\n"))
    stays.wait(b"alive")


def test_a_carrier_copies_for_a_keeper_of_an_older_version(start: Callable[..., str], attach: Attach) -> None:
    name = start("sh", "-c", "stty -echo; echo ready; cat; exit 3")
    record = Path(keeper.folder(), f"{name}.json")
    described = json.loads(record.read_text())
    del described["takes_streams"]
    record.write_text(json.dumps(described))
    viewer, process = attach(name)
    viewer.wait(b"ready")
    os.kill(process.pid, signal.SIGSTOP)
    viewer.sock.sendall(input_frames(b"typed\n"))
    viewer.sock.settimeout(0.3)
    with pytest.raises(TimeoutError):
        viewer.wait(b"typed")
    viewer.sock.settimeout(30)
    os.kill(process.pid, signal.SIGCONT)
    viewer.wait(b"typed")
    viewer.sock.sendall(input_frames(b"\x04"))
    assert viewer.end() == b"3"


def test_a_carrier_of_a_stopped_keeper_ends_with_its_streams(start: Callable[..., str], attach: Attach) -> None:
    name = start("sh", "-c", "echo parent $PPID.; cat")
    viewer, process = attach(name)
    viewer.wait(b".\r\n")
    stopped = int(viewer.output.split()[1].rstrip(b"."))
    os.kill(stopped, signal.SIGSTOP)
    try:
        viewer.sock.close()
        assert process.wait(30) == 0
    finally:
        os.kill(stopped, signal.SIGCONT)


def test_all_output_reaches_a_viewer_that_reads_late(start: Callable[..., str], attach: Attach) -> None:
    name = start("sh", "-c", "stty raw -echo; echo ready; read x; seq 1 200000; exit 5")
    viewer, _ = attach(name)
    viewer.wait(b"ready")
    viewer.sock.sendall(input_frames(b"\n"))
    time.sleep(0.5)  # the buffers are full
    assert viewer.end() == b"5"
    assert viewer.output.split()[1:] == [b"%d" % number for number in range(1, 200_001)]


@pytest.mark.parametrize("sent", [frame(b"f", b"") + input_frames(b"x"), input_frames(b"x")])
def test_files_that_come_otherwise_are_closed(kept: keeper.Keeper, sent: bytes) -> None:
    near, far = socket.socketpair()
    with near, socket.socket(socket.AF_UNIX) as sock:
        sock.connect(kept._listener.getsockname())
        kept._accept()
        socket.send_fds(sock, [sent], [far.fileno(), far.fileno()])
        far.close()
        kept._serve_viewer(next(iter(kept._viewers)), select.POLLIN)
        near.settimeout(30)
        assert near.recv(1) == b""


@pytest.fixture
def kept() -> Iterator[keeper.Keeper]:
    """Return a keeper in this process, whose socket every user can reach."""
    terminal = os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"\0jupyter-slurm-{secrets.token_hex(8)}")
        listener.listen()
        made = keeper.Keeper(listener, 0, terminal)
        yield made
        for viewer in made._viewers.values():
            viewer.sock.close()
    os.close(terminal)


def test_output_of_single_characters_takes_little_memory(kept: keeper.Keeper) -> None:
    for _ in range(10_000):
        kept._publish(b"x")
    assert b"".join(kept._scrollback) == b"x" * 10_000
    assert len(kept._scrollback) < 10


@pytest.mark.parametrize(
    "acts",
    [
        "\x1b]52;c;cHduZWQ=\x07",
        "\x1b]52;c;cHduZWQ=\x1b\\",
        "\u009d52;c;cHduZWQ=\u009c",
        "\x1b]10;?\x07\x1b]4;1;?\x1b\\\x1b]9;done\x07\x1b]777;notify;a;b\x07\x1b]1337;File=:eA==\x07",
        "\x1b[c\x1b[0c\x1b[>c\x1b[=c\x1bZ\x1b[5n\x1b[6n\x1b[?6n\u009b6n\x05",
        "\x1b[?1$p\x1b[18t\x1b[21t\x1b[1;2;1;1;9;9*y\x1b[1$w\x1b[>0q\x1b[?u\x1bP$qm\x1b\\\x1bP+q544e\x1b\\",
        "\x1b[6:1n\x1b[6\0n\x1b[\n6n\x1b\r[c\x1b\0Z\x1bP1$qm\x1b\\\x1b_Gi=1,a=q;AAAA\x1b\\",
        "\x1b]052;c;cHduZWQ=\x07\x1b]5\x002;c;cHduZWQ=\x07\x1b]10;red;?\x07\x1b]4;1;red;2;?\x07",
        "\x1b]52;c;cHduZWQ=\x1b[m\x1b]10;?\u009b0m",
    ],
)
def test_a_later_viewer_gets_no_questions_and_no_clipboard_of_the_past(kept: keeper.Keeper, acts: str) -> None:
    """The answers of its terminal would be typed into the shell."""
    shown = "é\x1b[1;31mred\x1b[m\x1b[?25l\x1b]0;title\x07\x1b]8;;http://a/?\x07link\x1b]8;;\x07\x1b[2Jn"
    with socket.socket(socket.AF_UNIX) as first, socket.socket(socket.AF_UNIX) as late:
        first.connect(kept._listener.getsockname())
        kept._accept()
        kept._publish(f"{acts}{shown}{acts}".encode())
        assert first.recv(1 << 16) == frame(b"o", f"{acts}{shown}{acts}".encode()), "as it is printed"
        late.connect(kept._listener.getsockname())
        kept._accept()
        list(kept._viewers.values())[-1].flush()
        [(_, past)] = FrameReader().feed(late.recv(1 << 16))
        assert re.sub(rb"\x18|\x1b\[m|\xc2\x9b0m", b"", past) == re.sub(rb"\x1b\[m", b"", shown.encode())


@pytest.mark.parametrize("past", ["\x1b\x1b[6n[6n", "\x1b[\x1b[6n6n", "\x1b[\x056n", "\x1b]5\x1b[c2;c;eA==\x07"])
def test_what_is_left_out_joins_no_others(kept: keeper.Keeper, past: str) -> None:
    with socket.socket(socket.AF_UNIX) as late:
        kept._publish(past.encode())
        late.connect(kept._listener.getsockname())
        kept._accept()
        next(iter(kept._viewers.values())).flush()
        assert not re.search(rb"\x1b(?:\[6?[nc]|\]52)", late.recv(1 << 16))


@pytest.mark.parametrize("piece", ["\u009d9;", "\u0090+q", "\x1b]9;", "\x1b[", "\x1b", "\x1b]?\u0080"])
def test_no_output_of_the_past_takes_long(kept: keeper.Keeper, piece: str) -> None:
    """A file that a user prints could otherwise stop the terminal for an hour."""
    kept._publish((piece * 30_000).encode())
    began = time.process_time()
    with socket.socket(socket.AF_UNIX) as late:
        late.connect(kept._listener.getsockname())
        kept._accept()
    assert time.process_time() - began < 2


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.parametrize(("uid", "viewers"), [(0, 1), (65534, 0)])
def test_another_user_is_no_viewer(kept: keeper.Keeper, uid: int, viewers: int) -> None:
    with socket.socket(socket.AF_UNIX) as sock:
        os.seteuid(uid)
        try:
            sock.connect(kept._listener.getsockname())
        finally:
            os.seteuid(0)
        kept._accept()
        assert len(kept._viewers) == viewers


def test_a_viewer_refuses_frames_of_no_keeper() -> None:
    for sent in (b"z\0\0\0\0", b"o\xff\xff\xff\xff"):
        with pytest.raises(TransportError, match="does not send a terminal"):
            list(FrameReader().feed(sent))


@pytest.mark.parametrize("make", [lambda path: path.symlink_to("/tmp"), lambda path: path.mkdir(mode=0o777)])
def test_a_folder_that_others_can_enter_is_refused(
    make: Callable[[Path], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    uid = 3_000_000_000 + os.getpid()
    path = Path(f"/tmp/jupyter-slurm-terminals-{uid}")
    monkeypatch.setattr(os, "getuid", lambda: uid)
    old = os.umask(0)
    try:
        make(path)
        with pytest.raises(PermissionError):
            keeper.folder()
    finally:
        os.umask(old)
        path.unlink() if path.is_symlink() else shutil.rmtree(path)


@pytest.mark.parametrize("size", [1, 4, 5, 6, 1000])
def test_a_viewer_reads_frames_in_any_pieces(size: int) -> None:
    frames = [(b"o", b"1"), (b"o", b""), (b"o", b"2" * 300), (b"x", b"7")]
    sent, reader, read = b"".join(frame(*one) for one in frames), FrameReader(), []
    for start in range(0, len(sent), size):
        read += reader.feed(sent[start : start + size])
    assert read == frames
    for one in frames:  # each alone
        assert list(reader.feed(frame(*one))) == [one]
