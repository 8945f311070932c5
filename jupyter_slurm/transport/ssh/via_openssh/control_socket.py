"""Client of an OpenSSH ControlMaster: sessions and streams through its control socket.

With the protocol that ``ssh`` speaks to a ControlMaster, a command needs no process of its own, and a refusal differs
from a broken connection. Of its two modes this is the older one, in which a refused channel does no harm: in proxy
mode, a refused channel ends the master (measured with 9.2). Source: PROTOCOL.mux of OpenSSH, version 4, since 2010.
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

from jupyter_slurm.transport.peer_credentials import is_same_user
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
_MAX_MESSAGE_BYTES: Final = 1 << 20  # bytes of a message
_SUBSYSTEM_TIMEOUT_S: Final = 2.0  # seconds within which a missing subsystem ends

# Codes SSH_OPEN_… (RFC 4254, 5.1)
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
        Nothing listens on the socket, the listener belongs to another user, or it does not speak this protocol.
    """

    def __init__(self, path: str, timeout: float) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.settimeout(timeout)
            self.socket.connect(path)
            if not is_same_user(self.socket):
                raise PermissionError(1, "another user listens on it", path)
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
        """Close the connection, and with it its session or stream."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()

    def send(self, message: bytes) -> None:
        """Send one message."""
        self.socket.sendall(_string(message))

    def receive(self) -> bytes:
        """Return one message."""
        (size,) = struct.unpack(">I", self._exactly(4))
        if size > _MAX_MESSAGE_BYTES:
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

    # Requests -------------------------------------------------------------------------------------------------------

    def process(self) -> int:
        """Return the process ID of the master."""
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
        """Start a command or a subsystem on the given file descriptors, which are passed to the master.

        Raises
        ------
        paramiko.ChannelException
            No further session is possible.
        """
        flags = struct.pack(">IIIII", 0, 0, 0, subsystem, _NO_ESCAPE)  # no terminal, no X11, no agent
        body = _string(b"") + flags + _string(b"") + _string(command)
        kind, said = self._request(_NEW_SESSION, body, streams)
        if kind != _SESSION_OPENED:
            raise paramiko.ChannelException(_FORBIDDEN if kind == _PERMISSION_DENIED else _NO_ROOM, _reason(said))

    def start_stream(self, host: str, port: int, streams: list[socket.socket]) -> None:
        """Connect to a port, as seen from the remote host.

        Raises
        ------
        paramiko.ChannelException
            Forwarding is forbidden, or nothing listens on the port: OpenSSH does not say which.
        """
        body = _string(b"") + _string(host.encode()) + struct.pack(">I", port)
        kind, said = self._request(_NEW_STDIO_FWD, body, streams)
        if kind != _SESSION_OPENED:
            raise paramiko.ChannelException(_FORBIDDEN if kind == _PERMISSION_DENIED else _REFUSED, _reason(said))

    def _request(self, kind: int, body: bytes = b"", streams: list[socket.socket] | None = None) -> tuple[int, bytes]:
        """Send a request, the only one in progress, and return the type of the answer and the data after its number."""
        self.send(struct.pack(">II", kind, 1) + body)
        for stream in streams or ():
            self.socket.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [stream.fileno()]))])
        answer = self.receive()
        if len(answer) < 8:  # type of the answer, and number of the request
            raise ConnectionError("not a control socket of OpenSSH")
        return int(struct.unpack_from(">I", answer)[0]), answer[8:]


class ControlChannel:
    """Local ends of a session or a stream, with the methods of ``paramiko.Channel``.

    Parameters
    ----------
    control : ControlSocket
        A connection for this channel alone.
    wire : Wire
        Connection of the channel.
    ended : callable, optional
        Called with this channel when it is closed.
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
        """Start a command with the login shell."""
        self._open(3, lambda theirs: self._control.start_session(command.encode("utf-8", "surrogateescape"), theirs))

    def invoke_subsystem(self, name: str) -> None:
        """Start a subsystem; ``SSHException`` if the server has no such subsystem."""
        self._open(3, lambda theirs: self._control.start_session(name.encode(), theirs, subsystem=True))
        # OpenSSH reports "opened" before the server has answered: a missing subsystem then ends at once, without a
        # byte.
        if _readable(self._ends[1], _SUBSYSTEM_TIMEOUT_S) and not self.recv_ready():
            raise paramiko.SSHException("the server has no such subsystem")

    def get_transport(self) -> Wire:
        """Return the connection of the channel."""
        return self._wire

    @property
    def closed(self) -> bool:
        """Return whether the channel has ended in both directions."""
        if self._ends and not self._closed:
            with contextlib.suppress(EOFError), self._use(self._control.socket) as control:
                # The master reports the end, or closes the socket; the last output may still be unread.
                unread = self.recv_ready() or self.recv_stderr_ready()
                return _readable(control, 0) and not unread
        return self._closed

    def settimeout(self, timeout: float | None) -> None:
        """Set the longest wait of each call, in seconds."""
        self._timeout = timeout
        for end in self._ends:
            end.settimeout(timeout)

    def duplicates(self) -> tuple[socket.socket, socket.socket]:
        """Return duplicates of the local ends of output and input; :meth:`close` ends their connection, too."""
        with self._use(self._ends[1]) as output, self._use(self._ends[0]) as entry:
            return output.dup(), entry.dup()

    def recv(self, size: int) -> bytes:
        """Return received bytes; empty at the end."""
        with self._use(self._ends[1]) as end:
            return end.recv(size)

    def recv_ready(self) -> bool:
        """Return whether data is available."""
        return self._has(1)

    def recv_stderr(self, size: int) -> bytes:
        """Return received bytes of standard error; empty at the end."""
        with self._use(self._ends[2]) as end:
            return end.recv(size)

    def recv_stderr_ready(self) -> bool:
        """Return whether data of standard error is available."""
        return self._has(2)

    def send(self, data: bytes | memoryview) -> int:
        """Send some of the bytes, and return their number."""
        with self._use(self._ends[0]) as end:
            return end.send(data)

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all bytes; the time limit applies to each piece."""
        left = memoryview(data)
        while left:
            left = left[self.send(left) :]

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        with self._use(self._ends[0]) as end, contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the channel; waiting callers are woken."""
        with self._lock:
            self._closed = True
            for end in (*self._ends, self._control.socket):
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)
            if not self._users:
                self._free()
        self._ended(self)

    # Internal ----------------------------------------------------------------------------------------------------

    def _open(self, count: int, act: Callable[[list[socket.socket]], None]) -> None:
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
                if self._closed and not self._users:  # before the ends were passed to the channel
                    self._free()

    def renew(self, control: ControlSocket) -> None:
        """Try again over another connection, after a refusal."""
        with self._lock:
            for end in (*self._ends, self._control.socket):
                end.close()
            self._ends, self._control = [], control
            if self._closed:
                self._free()

    def _has(self, number: int) -> bool:
        with contextlib.suppress(EOFError), self._use(self._ends[number]) as end:
            return _readable(end, 0) and bool(end.recv(1, socket.MSG_PEEK))
        return False  # closed, perhaps by another thread at this moment; paramiko's channels report the same

    @contextlib.contextmanager
    def _use(self, end: socket.socket) -> Iterator[socket.socket]:
        """Prevent the system from reusing a descriptor's number while it is in use."""
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
    """A stream to a port, as seen from the remote host; see :class:`jupyter_slurm.transport.base.Stream`.

    Its errors have numbers: paramiko reads them when it speaks to a node through this stream.
    """

    def connect(self, host: str, port: int) -> None:
        """Connect the stream to the port."""
        self._open(2, lambda theirs: self._control.start_stream(host, port, theirs))

    def recv(self, size: int) -> bytes:
        """Wait for bytes; an end that the remote host did not announce is an error."""
        try:
            data = super().recv(size)
        except EOFError:
            raise ConnectionResetError(errno.ECONNRESET, "the stream was closed") from None
        if not data and not (self._wire.is_active() and not self._closed):
            raise ConnectionResetError(errno.ECONNRESET, "the connection to the remote host broke")
        return data

    def sendall(self, data: bytes | memoryview) -> None:
        """Send all bytes."""
        try:
            super().sendall(data)
        except EOFError:
            raise ConnectionResetError(errno.ECONNRESET, "the stream was closed") from None

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        with contextlib.suppress(EOFError):
            super().shutdown_write()


def has_ended(end: socket.socket, timeout: float | None) -> bool:
    """Wait until a master ends, by its control connection, on which it sends nothing before."""
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


def _reason(output: bytes) -> str:
    return output[4:].decode("utf-8", "replace") or "no reason given"
