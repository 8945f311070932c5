"""What an OpenSSH that is logged in does for others: sessions and streams through its control socket.

A client of the protocol by which ``ssh`` speaks to a ControlMaster: no process for each command, and a refusal is told
apart from a broken connection. Of its two modes this is the older one, in which a refused channel does no harm: when a
proxy's channel is refused, the master ends (measured with 9.2). Source: PROTOCOL.mux of OpenSSH, version 4, since 2010.
"""

from __future__ import annotations

import array
import contextlib
import errno
import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from typing import Final

import paramiko

from jupyter_slurm.transport.peer_credentials import is_ours
from jupyter_slurm.transport.ssh.protocols import Wire

__all__ = ["ControlChannel", "ControlSocket", "DialledChannel", "has_ended"]

_HELLO: Final = 0x00000001
_VERSION: Final = 4
_NEW_SESSION: Final = 0x10000002
_ALIVE_CHECK: Final = 0x10000004
_TERMINATE: Final = 0x10000005
_NEW_STDIO_FWD: Final = 0x10000008
_OK: Final = 0x80000001
_PERMISSION_DENIED: Final = 0x80000002
_FAILURE: Final = 0x80000003
_ALIVE: Final = 0x80000005
_SESSION_OPENED: Final = 0x80000006
_NO_ESCAPE: Final = 0xFFFFFFFF
_LONGEST: Final = 1 << 20  # bytes of a message
_SUBSYSTEM: Final = 2.0  # seconds in which one that is not there has ended

# Of SSH_OPEN_… (RFC 4254, 5.1)
_FORBIDDEN, _REFUSED, _NO_ROOM = 1, 2, 4


class ControlSocket:
    """One connection to a control socket.

    Parameters
    ----------
    path : str
        The socket.
    timeout : float
        Seconds for each answer.

    Raises
    ------
    OSError
        Nobody listens there, it is somebody else, or what answers does not speak this.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(timeout)
            self.socket.connect(path)
            if not is_ours(self.socket):
                raise PermissionError(1, "another user listens there", path)
            self.send(struct.pack(">II", _HELLO, _VERSION))
            kind, version = struct.unpack_from(">II", self.receive())
            if (kind, version) != (_HELLO, _VERSION):
                raise ConnectionError(f"not version {_VERSION} of OpenSSH's protocol for sharing connections")
        except BaseException as error:
            self.socket.close()
            if isinstance(error, struct.error):
                raise ConnectionError("not a control socket of OpenSSH") from None
            raise

    def close(self) -> None:
        """End it, and what it was opened for."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def send(self, message: bytes) -> None:
        """Send one message."""
        self.socket.sendall(_string(message))

    def receive(self) -> bytes:
        """Return one message."""
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > _LONGEST:
            raise ConnectionError("not a control socket of OpenSSH")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError("OpenSSH ended the connection")
            data += piece
        return bytes(data)

    # What can be asked for ------------------------------------------------------------------------------------------

    def process(self) -> int:
        """Return the process id of the master."""
        kind, said = self._request(_ALIVE_CHECK)
        if kind != _ALIVE or len(said) < 4:
            raise ConnectionError(f"OpenSSH did not say that it is alive: {_reason(said)}")
        return int(struct.unpack_from(">I", said)[0])

    def terminate(self) -> None:
        """End the master."""
        kind, said = self._request(_TERMINATE)
        if kind != _OK:
            raise ConnectionError(f"OpenSSH does not end: {_reason(said)}")

    def start_session(self, command: bytes, streams: list[socket.socket], *, subsystem: bool = False) -> None:
        """Start a command, or a subsystem; it reads and writes these ends, which are ours no longer.

        Raises
        ------
        paramiko.ChannelException
            There can be no further session.
        """
        flags = struct.pack(">IIIII", 0, 0, 0, subsystem, _NO_ESCAPE)  # no terminal, no X11, no agent
        body = _string(b"") + flags + _string(b"") + _string(command)
        kind, said = self._request(_NEW_SESSION, body, streams)
        if kind != _SESSION_OPENED:
            raise paramiko.ChannelException(_FORBIDDEN if kind == _PERMISSION_DENIED else _NO_ROOM, _reason(said))

    def start_stream(self, host: str, port: int, streams: list[socket.socket]) -> None:
        """Connect to a port, as the far side sees it.

        Raises
        ------
        paramiko.ChannelException
            It is forbidden, or nobody listens there: OpenSSH does not say which.
        """
        body = _string(b"") + _string(host.encode()) + struct.pack(">I", port)
        kind, said = self._request(_NEW_STDIO_FWD, body, streams)
        if kind != _SESSION_OPENED:
            raise paramiko.ChannelException(_FORBIDDEN if kind == _PERMISSION_DENIED else _REFUSED, _reason(said))

    def _request(self, kind: int, body: bytes = b"", streams: list[socket.socket] | None = None) -> tuple[int, bytes]:
        """Send a request, the only one on its way, and return the kind of the answer and what follows its number."""
        self.send(struct.pack(">II", kind, 1) + body)
        for stream in streams or ():
            self.socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream.fileno()]))])
        answer = self.receive()
        if len(answer) < 8:  # what it answers, and to which request
            raise ConnectionError("not a control socket of OpenSSH")
        return int(struct.unpack_from(">I", answer)[0]), answer[8:]


class ControlChannel:
    """The near ends of a session or of a stream; its methods are those of ``paramiko.Channel``.

    Parameters
    ----------
    control : ControlSocket
        A connection of its own.
    wire : Wire
        What it belongs to.
    ended : callable, optional
        Is given this channel when it is closed.
    """

    def __init__(
        self, control: ControlSocket, wire: Wire, ended: Callable[[ControlChannel], None] = lambda channel: None
    ) -> None:
        self._control, self._wire, self._ended = control, wire, ended
        self._ends: list[socket.socket] = []
        self._lock = threading.Lock()
        self._users, self._closed = 0, False
        self._timeout: float | None = None

    def exec_command(self, command: str) -> None:
        """Start a command by the login shell."""
        self._begin(3, lambda theirs: self._control.start_session(command.encode("utf-8", "surrogateescape"), theirs))

    def invoke_subsystem(self, name: str) -> None:
        """Start a subsystem; ``SSHException`` when the server has none of that name."""
        self._begin(3, lambda theirs: self._control.start_session(name.encode(), theirs, subsystem=True))
        # OpenSSH says "opened" before the server has said whether it has it: then it ends at once, without a byte.
        if _readable(self._ends[1], _SUBSYSTEM) and not self.recv_ready():
            raise paramiko.SSHException("the server has no such subsystem")

    def get_transport(self) -> Wire:
        """Return what it belongs to."""
        return self._wire

    @property
    def closed(self) -> bool:
        """Whether it has ended in both directions."""
        if self._ends and not self._closed:
            with contextlib.suppress(EOFError), self._use(self._control.socket) as control:
                # The master says something when it is over, or ends; what was printed last may still be unread.
                unread = self.recv_ready() or self.recv_stderr_ready()
                return _readable(control, 0) and not unread
        return self._closed

    def settimeout(self, timeout: float | None) -> None:
        """Let each call wait for so many seconds at most."""
        self._timeout = timeout
        for end in self._ends:
            end.settimeout(timeout)

    def recv(self, size: int) -> bytes:
        """Return what came; nothing at the end."""
        with self._use(self._ends[1]) as end:
            return end.recv(size)

    def recv_ready(self) -> bool:
        """Whether there is something."""
        return self._has(1)

    def recv_stderr(self, size: int) -> bytes:
        """Return what came as an error; nothing at the end."""
        with self._use(self._ends[2]) as end:
            return end.recv(size)

    def recv_stderr_ready(self) -> bool:
        """Whether there is something."""
        return self._has(2)

    def send(self, data: bytes | memoryview) -> int:
        """Send some of it, and return how many bytes."""
        with self._use(self._ends[0]) as end:
            return end.send(data)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it; the time is that of each piece."""
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]

    def shutdown_write(self) -> None:
        """Tell the far end that nothing more comes."""
        with self._use(self._ends[0]) as end, contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End it; who waits is woken."""
        with self._lock:
            self._closed = True
            for end in (*self._ends, self._control.socket):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            if not self._users:
                self._free()
        self._ended(self)

    # Beneath ----------------------------------------------------------------------------------------------------

    def _begin(self, count: int, act: Callable[[list[socket.socket]], None]) -> None:
        pairs = [socket.socketpair() for _ in range(count)]
        try:
            self._ends = [pair[0] for pair in pairs]
            self.settimeout(self._timeout)
            with self._use(self._control.socket):
                act([pair[1] for pair in pairs])
        finally:
            for pair in pairs:
                pair[1].close()
            with self._lock:
                if self._closed and not self._users:  # before it had these ends
                    self._free()

    def renew(self, control: ControlSocket) -> None:
        """Try again by another connection, after a refusal."""
        with self._lock:
            for end in (*self._ends, self._control.socket):
                end.close()
            self._ends, self._control = [], control
            if self._closed:
                self._free()

    def _has(self, number: int) -> bool:
        with contextlib.suppress(EOFError), self._use(self._ends[number]) as end:
            return _readable(end, 0) and bool(end.recv(1, socket.MSG_PEEK))
        return False  # closed, perhaps by another thread in this moment: as paramiko's channels say it

    @contextlib.contextmanager
    def _use(self, end: socket.socket) -> Iterator[socket.socket]:
        """Keep the system from giving its number to something else while it is used."""
        with self._lock:
            if self._closed:
                raise EOFError("closed")
            self._users += 1
        try:
            yield end
        finally:
            self._used()

    def _used(self) -> None:
        with self._lock:
            self._users -= 1
            if self._closed and not self._users:
                self._free()

    def _free(self) -> None:
        for end in (*self._ends, self._control.socket):
            end.close()


class DialledChannel(ControlChannel):
    """A stream to a port, as the far side sees it; see :class:`jupyter_slurm.transport.base.Stream`.

    Its errors have numbers: paramiko reads them where it speaks to a node through this one.
    """

    def connect(self, host: str, port: int) -> None:
        """Let it lead there."""
        self._begin(2, lambda theirs: self._control.start_stream(host, port, theirs))

    def recv(self, size: int) -> bytes:
        """Wait for bytes; an end that the far side did not tell is an error."""
        try:
            data = super().recv(size)
        except EOFError:
            raise ConnectionResetError(errno.ECONNRESET, "the stream was closed") from None
        if not data and not (self._wire.is_active() and not self._closed):
            raise ConnectionResetError(errno.ECONNRESET, "the connection to the far side broke")
        return data

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all of it."""
        try:
            super().sendall(data)
        except EOFError:
            raise ConnectionResetError(errno.ECONNRESET, "the stream was closed") from None

    def shutdown_write(self) -> None:
        """Say that nothing more comes."""
        with contextlib.suppress(EOFError):
            super().shutdown_write()


def has_ended(end: socket.socket, timeout: float | None) -> bool:
    """Wait until a master ends, whose control connection this is: it says nothing before."""
    poll = select.poll()
    try:
        poll.register(end, select.POLLIN)
        return bool(poll.poll(None if timeout is None else timeout * 1000))
    except (OSError, ValueError):
        return True


def _readable(end: socket.socket, timeout: float) -> bool:
    poll = select.poll()
    poll.register(end, select.POLLIN)
    return bool(poll.poll(timeout * 1000))


def _string(data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + data


def _reason(said: bytes) -> str:
    return said[4:].decode("utf-8", "replace") or "no reason given"
