"""Keeper of a terminal: runs a program on a pseudoterminal, and serves its viewers on a Unix socket.

It outlives the connection, keeps the last megabyte of output for later viewers, and ends with its program. Keeper and
viewers exchange frames: a letter, the length of the content (4 bytes, big-endian), and the content. A viewer sends
``i`` (input), ``r`` (columns and rows, 2 bytes each) and ``k`` (hang up). The keeper sends ``o`` (output), and ``x`` as
its last frame (exit code in decimal digits, or nothing if it is not known).

A process that only carries frames hands its streams over instead: ``f``, alone and as its first frame, with two file
descriptors (SCM_RIGHTS), from which the keeper reads and to which it writes. The keeper then sends all output from the
beginning. Its socket has no more content, and ends with the viewer.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import pwd
import re
import select
import signal
import socket
import stat
import struct
import termios
import time
from collections import deque
from typing import Sequence

HEAD = struct.Struct(">cI")
SIZE = struct.Struct(">HH")
_PEER = struct.Struct("3i")  # unix(7), SO_PEERCRED: process, user and group
SCROLLBACK_BYTES = 1 << 20
MAX_INPUT_BYTES = 1 << 16  # bytes in a frame of a viewer
MAX_VIEWERS = 16
TAKES_STREAMS = hasattr(socket.socket, "recvmsg") and hasattr(socket, "SCM_RIGHTS")
_CHUNK_BYTES = 1 << 16
_PIECE_BYTES = 1 << 12  # bytes up to which a piece of the scrollback grows
_MAX_WAITING_BYTES = 1 << 18  # bytes that wait for a reader, before the keeper reads no more
_STALL_S = 10.0  # seconds after which a viewer that reads nothing is disconnected
_END_S = 5.0  # seconds for viewers to read the last output
# What a terminal answers, or hands on to its window, the clipboard or the desktop (xterm's ctlseqs). From the past, an
# answer would be typed into the shell, and an old clipboard would replace that of now.
_ACTS = re.compile(
    rb"\x05|\x1bZ"
    rb"|(?:\x1b\[|\xc2\x9b)(?:[0-?]*c|[0-;?]*(?:n|\$p)|[0-;]*(?:[tx]|\*y|\$w)|>[0-;]*q|\?u)"
    rb"|(?:\x1b\]|\xc2\x9d)(?:0*(?:9|52|99|777|1337);|(?!0*(?:[01278]|133);)[^?]*\?).*"
    rb"|(?:\x1bP|\xc2\x90)[0-?]*[$+]q.*|(?:\x1b_|\xc2\x9f)G.*",
    re.DOTALL,
)
# Inside a sequence, a terminal carries out or ignores these, and goes on with the sequence.
_CONTROLS = bytes({*range(0x20), 0x7F} - {0x18, 0x1A, 0x1B})
# Sequences that may act. A string ends where the next sequence begins, so that each byte is looked at a few times only.
_SEQUENCE = re.compile(
    rb"\x05|\x1b[%(c)s]*Z|(?:\x1b[%(c)s]*\[|\xc2\x9b)[ -?%(c)s]*[cnpqtuwxy]"
    rb"|(?:\x1b[%(c)s]*[]P_]|\xc2[\x90\x9d\x9f])%(s)s*(?:\xc2(?![\x90\x98\x9b-\x9f])%(s)s*)*"
    rb"(?:\x07|\x1b\\|\xc2\x9c|(?=[\x18\x1a\x1b]|\xc2[\x90\x98\x9b-\x9f]))"
    % {b"c": re.escape(_CONTROLS), b"s": rb"[^\x07\x18\x1a\x1b\xc2]"}
)
_CANCEL = b"\x18"  # shows nothing, and ends a sequence that is not complete: it would join with what follows
_SIZE_VARIABLES = ("LINES", "COLUMNS")  # exported, they hide a change of the size from curses


def folder() -> str:
    """Return the private directory of this user's terminals on this host, which is made if missing.

    Raises
    ------
    PermissionError
        Another user owns the directory, or may enter it.
    """
    path = f"/tmp/jupyter-slurm-terminals-{os.getuid()}"  # noqa: S108 - the owner is checked
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    found = os.lstat(path)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise PermissionError(errno.EPERM, "Another user may read or replace this directory", path)
    return path


def login_shell() -> str:
    """Return the path of the user's login shell."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
    return "/bin/sh"


def start_program(argv: Sequence[str], columns: int, rows: int) -> tuple[int, int]:
    """Start a program on a new pseudoterminal, by default the login shell; return its process ID and the terminal."""
    process, terminal = os.forkpty()
    if process:
        resize(terminal, columns, rows)
        return process, terminal
    try:
        for number in (signal.SIGPIPE, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        resize(0, columns, rows)
        shell = login_shell()
        env = {name: value for name, value in os.environ.items() if name not in _SIZE_VARIABLES}
        env.update(TERM="xterm-256color", SHELL=shell)
        with contextlib.suppress(OSError):
            os.chdir(os.path.expanduser("~"))
        if argv:
            os.execvpe(argv[0], list(argv), env)  # noqa: S606 - an argument list
        os.execve(shell, ["-" + os.path.basename(shell)], env)  # noqa: S606 - the user's own shell
    except OSError as error:
        os.write(2, f"{error.filename or argv}: {error.strerror}\r\n".encode("utf-8", "surrogateescape"))
    finally:
        os._exit(127)


def resize(terminal: int, columns: int, rows: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _is_own(sock: socket.socket) -> bool:
    """Return whether a process of this user has connected."""
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the directory lets nobody else in
    found = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _PEER.size)
    return bool(_PEER.unpack(found)[1] == os.getuid())


def _without_acts(output: bytes) -> bytes:
    """Return output of the past without what a terminal would answer or hand on once more."""

    def shown(found: re.Match[bytes]) -> bytes:
        return _CANCEL if _ACTS.fullmatch(found[0].translate(None, _CONTROLS) or found[0]) else found[0]

    return _SEQUENCE.sub(shown, output)


class _Viewer:
    """A connected viewer, with the output that waits for it."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock, self.received, self.waiting = sock, bytearray(), bytearray()
        self.source = self.sink = sock.fileno()
        self.read_at = time.monotonic()

    @property
    def has_streams(self) -> bool:
        """Return whether the viewer has handed over its streams."""
        return self.source != self.sock.fileno()

    def read(self) -> bytes | None:
        """Read input; None: the viewer has handed over its streams instead."""
        if self.has_streams or not TAKES_STREAMS:
            return os.read(self.source, _CHUNK_BYTES)
        size = array.array("i").itemsize
        data, messages, _, _ = self.sock.recvmsg(_CHUNK_BYTES, socket.CMSG_SPACE(2 * size))
        files = array.array("i")
        for level, kind, content in messages:
            if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
                files.frombytes(content[: len(content) - len(content) % size])
        if len(files) == 2 and data == HEAD.pack(b"f", 0):
            self.source, self.sink = files
            for file in files:
                os.set_blocking(file, False)
            self.waiting.clear()
            return None
        for file in files:
            os.close(file)
        return data

    def send(self, kind: bytes, content: bytes) -> None:
        if not self.waiting:
            self.read_at = time.monotonic()
        self.waiting += HEAD.pack(kind, len(content)) + content

    def flush(self) -> None:
        """Send what the viewer reads now. Of one that has gone, the input is still read up to its end."""
        while self.waiting:
            try:
                sent = os.write(self.sink, self.waiting[:_CHUNK_BYTES])
            except BlockingIOError:
                return
            except OSError:
                self.waiting.clear()
                return
            self.read_at = time.monotonic()
            del self.waiting[:sent]

    def end(self, content: bytes, deadline: float) -> None:
        """Send the last frame, and wait until the viewer has read it."""
        self.send(b"x", content)
        self.flush()
        writable = select.poll()
        writable.register(self.sink, select.POLLOUT)
        while self.waiting and writable.poll(max(0.1, deadline - time.monotonic()) * 1000):
            self.flush()
        self.close()

    def close(self) -> None:
        if self.has_streams:
            for file in (self.source, self.sink):
                os.close(file)
        self.sock.close()


class Keeper:
    """One terminal and its viewers.

    Parameters
    ----------
    listener : socket
        Listening Unix socket of the viewers.
    process, terminal : int
        Process ID of the program, and its pseudoterminal.
    """

    def __init__(self, listener: socket.socket, process: int, terminal: int) -> None:
        self._listener, self._process, self._terminal = listener, process, terminal
        self._viewers: dict[int, _Viewer] = {}  # by each of their files
        self._scrollback: deque[bytes] = deque()
        self._scrollback_bytes = 0
        self._input = bytearray()
        self._poll = select.poll()
        self._watched: dict[int, int] = {}  # events that are waited for, by file
        for file in (listener.fileno(), terminal):
            os.set_blocking(file, False)
            self._watch(file, select.POLLIN)

    def run(self) -> None:
        """Serve until the program has closed its terminal; then send its exit code to the viewers."""
        is_open = True
        while is_open:
            for file, events in self._poll.poll(_STALL_S * 1000):
                if file == self._terminal:
                    is_open = self._serve_terminal(events) and is_open
                elif file == self._listener.fileno():
                    self._accept()
                else:
                    self._serve_viewer(file, events)
            self._update()
        self._finish()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            sock = self._listener.accept()[0]
            if len(set(self._viewers.values())) >= MAX_VIEWERS or not _is_own(sock):
                sock.close()
                return
            sock.setblocking(False)
            viewer = self._viewers[sock.fileno()] = _Viewer(sock)
            self._send_past(viewer)

    def _send_past(self, viewer: _Viewer) -> None:
        past = _without_acts(b"".join(self._scrollback))
        for start in range(0, len(past), _CHUNK_BYTES):
            viewer.send(b"o", past[start : start + _CHUNK_BYTES])

    def _serve_terminal(self, events: int) -> bool:
        """Read output and write input; return False after the end of the program."""
        try:
            if events & ~select.POLLOUT:  # or its end
                data = os.read(self._terminal, _CHUNK_BYTES)
                if not data:
                    return False
                self._publish(data)
            if events & select.POLLOUT and self._input:
                self._write_input()
        except BlockingIOError:
            pass
        except OSError:  # EIO: no process has the terminal open
            return False
        return True

    def _write_input(self) -> None:
        with contextlib.suppress(BlockingIOError):
            del self._input[: os.write(self._terminal, self._input[:_CHUNK_BYTES])]

    def _publish(self, data: bytes) -> None:
        if self._scrollback and len(self._scrollback[-1]) < _PIECE_BYTES:
            self._scrollback[-1] += data  # a program may print single characters
        else:
            self._scrollback.append(data)
        self._scrollback_bytes += len(data)
        while self._scrollback_bytes > SCROLLBACK_BYTES:
            self._scrollback_bytes -= len(self._scrollback.popleft())
        for viewer in set(self._viewers.values()):
            viewer.send(b"o", data)
            viewer.flush()

    def _serve_viewer(self, number: int, events: int) -> None:
        viewer = self._viewers.get(number)
        if viewer is None:
            return
        if number == viewer.sink and events & ~select.POLLIN:
            viewer.flush()
        if not events & ~select.POLLOUT:
            return
        try:
            if number == viewer.source:
                if (data := viewer.read()) is None:
                    self._viewers.update({viewer.source: viewer, viewer.sink: viewer})
                    self._send_past(viewer)
                    return
                viewer.received += data
                if not data or not self._handle(viewer):
                    self._drop(viewer)
            elif number == viewer.sock.fileno() and not viewer.sock.recv(1):
                self._drop(viewer)
        except BlockingIOError:
            pass
        except OSError:
            self._drop(viewer)

    def _handle(self, viewer: _Viewer) -> bool:
        """Handle the complete frames of a viewer; return False for one that is not valid."""
        while len(viewer.received) >= HEAD.size:
            kind, length = HEAD.unpack_from(viewer.received)
            if length > MAX_INPUT_BYTES:
                return False
            if len(viewer.received) < HEAD.size + length:
                break
            content = bytes(viewer.received[HEAD.size : HEAD.size + length])
            del viewer.received[: HEAD.size + length]
            if kind == b"i":
                self._input += content
                with contextlib.suppress(OSError):  # the end is seen by the next read
                    self._write_input()
            elif kind == b"r" and length == SIZE.size:
                with contextlib.suppress(OSError):
                    resize(self._terminal, *SIZE.unpack(content))
            elif kind == b"k":
                self._hang_up()
            else:
                return False
        return True

    def _hang_up(self) -> None:
        """Send the program the signal that a closed terminal sends."""
        with contextlib.suppress(OSError):
            os.killpg(os.tcgetpgrp(self._terminal), signal.SIGHUP)
        with contextlib.suppress(OSError):
            os.killpg(self._process, signal.SIGHUP)

    def _update(self) -> None:
        """Choose what to wait for. Slow viewers delay the program; one that reads nothing is disconnected."""
        now, is_full = time.monotonic(), False
        reads = 0 if len(self._input) > _MAX_WAITING_BYTES else select.POLLIN
        for viewer in set(self._viewers.values()):
            if viewer.waiting and now - viewer.read_at > _STALL_S:
                self._drop(viewer)
                continue
            is_full |= len(viewer.waiting) > _MAX_WAITING_BYTES
            writes = select.POLLOUT if viewer.waiting else 0
            if viewer.has_streams:
                self._watch(viewer.sock.fileno(), select.POLLIN)
                self._watch(viewer.source, reads)
                self._watch(viewer.sink, writes)
            else:
                self._watch(viewer.source, reads | writes)
        self._watch(self._terminal, (0 if is_full else select.POLLIN) | (select.POLLOUT if self._input else 0))

    def _watch(self, file: int, events: int) -> None:
        if events == self._watched.get(file, 0):
            return
        if events:
            self._poll.register(file, events)
            self._watched[file] = events
        else:
            self._poll.unregister(file)
            del self._watched[file]

    def _drop(self, viewer: _Viewer) -> None:
        for file in {viewer.sock.fileno(), viewer.source, viewer.sink}:
            del self._viewers[file]
            self._watch(file, 0)
        viewer.close()

    def _finish(self) -> None:
        """Wait for the program, and send its exit code."""
        os.close(self._terminal)  # its processes get SIGHUP
        status = os.waitpid(self._process, 0)[1]
        code = os.WEXITSTATUS(status) if os.WIFEXITED(status) else 128 + os.WTERMSIG(status)
        deadline = time.monotonic() + _END_S
        for viewer in set(self._viewers.values()):
            viewer.end(str(code).encode("ascii"), deadline)
