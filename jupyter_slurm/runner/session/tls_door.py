"""TLS server for access to a session over the cluster's network, for sites whose nodes accept neither SSH nor steps.

``door.pem`` of the job directory, a key with its certificate, exists on both sides. The door proves with it that it
belongs to this job (TLS). The client first sends a secret that only a reader of that file can compute. Nobody else
reaches the server behind the door, which listens on the loopback. Frames follow: length (4 bytes, big-endian) and data.
A length of 0 ends one direction, so that a broken connection is never taken for a completed one.

Python 3.8+, standard library only. The agent uses :class:`TlsConnection` at its end, too.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import os
import random
import runpy
import socket
import ssl
import struct
import threading
import time
from typing import Any

NAME = "door.pem"
_LENGTH = struct.Struct(">I")
_MAX_FRAME_BYTES = 64 << 10  # bytes of a frame, at most
_HANDSHAKE_TIMEOUT_S = 10.0  # seconds for handshake and secret together
_MAX_CONNECTIONS = 512  # simultaneous connections; the oldest without the secret makes room for a new one
_BACKLOG = 64
_RETRY_INTERVAL_S = 0.1  # seconds until the next attempt
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)  # no file descriptor is left for now


def secret_of(pem: bytes) -> bytes:
    """Return the secret that only a reader of the file can compute."""
    return hashlib.sha256(b"jupyter_slurm door\n" + pem).digest()


def context_of(certificate: str, *, is_server: bool) -> Any:
    """Return the TLS context of either side. Only the certificate of the file is trusted."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= getattr(ssl, "OP_NO_RENEGOTIATION", 0)  # which costs the door more than the client
    if not is_server:
        context.check_hostname = False  # the key identifies the door, and the name of a node is no secret
        context.load_verify_locations(cadata=certificate)
    return context


class TlsConnection:
    """Encrypted and authenticated connection; one thread receives, another one sends.

    Parameters
    ----------
    stream : object
        Has ``recv``, ``sendall`` and ``close``: a socket, or a stream of the agent.
    context : SSLContext
        From :func:`context_of`.

    Raises
    ------
    OSError
        The peer is not authenticated, or has closed the connection.
    """

    def __init__(self, stream: Any, context: Any, *, is_server: bool) -> None:
        self.stream, self._lock = stream, threading.Lock()
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=is_server)
        self._inside, self._has_ended = 0, False  # bytes left in the current frame
        while not self._shakes_hands():
            self._feed()

    def _shakes_hands(self) -> bool:
        """Continue the handshake; return whether it is complete."""
        try:
            self._tls.do_handshake()
            return True
        except ssl.SSLWantReadError:
            return False
        finally:
            if self._outgoing.pending:  # including the alert with the reason of a refusal
                self.stream.sendall(self._outgoing.read())

    @property
    def closed(self) -> bool:
        """Return whether the peer is known to have closed the connection."""
        return bool(getattr(self.stream, "closed", False))

    def recv(self, size: int) -> bytes:
        """Wait for bytes and return up to ``size`` of them; empty: the peer has sent everything."""
        while not (self._inside or self._has_ended):
            head = b""
            while len(head) < _LENGTH.size:
                head += self._read(_LENGTH.size - len(head))
            self._inside = _LENGTH.unpack(head)[0]
            self._has_ended = not self._inside
        data = b"" if self._has_ended else self._read(min(size, self._inside))
        self._inside -= len(data)
        return data

    def _read(self, size: int) -> bytes:
        while True:
            with contextlib.suppress(ssl.SSLWantReadError), self._lock:
                data = self._tls.read(size)
                if not data:
                    raise ConnectionAbortedError("the connection broke")
                return bytes(data)
            self._feed()

    def _feed(self) -> None:
        data = self.stream.recv(_MAX_FRAME_BYTES)
        if not data:
            raise ConnectionAbortedError("the connection broke")
        with self._lock:
            self._incoming.write(data)

    def sendall(self, data: bytes) -> None:
        """Send, as fast as the peer receives."""
        for at in range(0, len(data), _MAX_FRAME_BYTES):
            piece = bytes(data[at : at + _MAX_FRAME_BYTES])
            self._send(_LENGTH.pack(len(piece)) + piece)

    def shutdown_write(self) -> None:
        """Announce that no more data will be sent."""
        self._send(_LENGTH.pack(0))

    def _send(self, data: bytes) -> None:
        with self._lock:
            while data:
                data = data[self._tls.write(data) :]
            sealed = self._outgoing.read()
        self.stream.sendall(sealed)

    def close(self) -> None:
        """Close the connection."""
        self.stream.close()


class _TimedSocket:
    """Socket whose calls all end at one deadline, however slowly the peer sends."""

    def __init__(self, sock: Any, seconds: float) -> None:
        self._sock, self._deadline = sock, time.monotonic() + seconds

    def _limit(self) -> Any:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise ConnectionAbortedError("the time for the proof is over")
        self._sock.settimeout(left)
        return self._sock

    def recv(self, size: int) -> bytes:
        """Receive bytes before the deadline."""
        return bytes(self._limit().recv(size))

    def sendall(self, data: bytes) -> None:
        """Send bytes before the deadline."""
        self._limit().sendall(data)

    def close(self) -> None:
        """Close the socket."""
        self._sock.close()


class _Connections:
    """Connections of a door. Those with the secret are never dismissed; of the others, the oldest one goes first."""

    def __init__(self, limit: int) -> None:
        self._limit, self._changed = limit, threading.Condition()
        self._unproven: dict[Any, None] = {}  # the oldest first
        self._proven: set[Any] = set()

    def wait_for_room(self) -> None:
        """Wait while all connections have proven the secret."""
        with self._changed:
            self._changed.wait_for(lambda: len(self._proven) < self._limit)

    def add(self, sock: Any) -> None:
        """Add a new connection, in place of the oldest unproven one if there are too many."""
        with self._changed:
            self._unproven[sock] = None
            while len(self._unproven) > 1 and len(self._unproven) + len(self._proven) > self._limit:
                self._dismiss_oldest()

    def dismiss_oldest(self) -> None:
        """Dismiss the oldest unproven connection, if there is one."""
        with self._changed:
            if self._unproven:
                self._dismiss_oldest()

    def _dismiss_oldest(self) -> None:
        oldest = next(iter(self._unproven))
        del self._unproven[oldest]
        with contextlib.suppress(OSError):
            oldest.shutdown(socket.SHUT_RDWR)  # wakes its thread, which closes it

    def prove(self, sock: Any) -> bool:
        """Record that a connection has proven the secret; False: it was dismissed before."""
        with self._changed:
            if sock not in self._unproven:
                return False
            del self._unproven[sock]
            self._proven.add(sock)
            return True

    def remove(self, sock: Any) -> None:
        """Remove a connection that has ended."""
        with self._changed:
            self._unproven.pop(sock, None)
            self._proven.discard(sock)
            self._changed.notify_all()


class TlsDoor:
    """Listener on all addresses of the node, on the first free port of a range.

    Parameters
    ----------
    path : str
        Path of ``door.pem``.
    ports : (int, int)
        First and last permitted port.
    port : int
        Port of the server on the loopback.

    Raises
    ------
    OSError
        The door cannot listen; the message says why.
    """

    def __init__(self, path: str, ports: Any, port: int) -> None:
        with open(path, "rb") as file:
            pem = file.read()
        self._secret, self._server = secret_of(pem), port
        self._context = context_of(pem.decode("ascii"), is_server=True)
        self._context.load_cert_chain(path)
        self._relay = runpy.run_path(
            runpy.run_path(__file__[: -len("session/tls_door.py")] + "loader.py")["path_of"]("login_node.relay")
        )
        self._connections = _Connections(_MAX_CONNECTIONS)
        self._listener = _listener(*ports)
        self.port = int(self._listener.getsockname()[1])

    def open(self) -> None:
        """Start to accept connections, in threads."""
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def close(self) -> None:
        """Stop accepting connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes a waiting accept
        self._listener.close()

    def _accept(self) -> None:
        while self._listener.fileno() >= 0:
            self._connections.wait_for_room()
            sock: Any = None
            try:
                sock, _ = self._listener.accept()
                self._connections.add(sock)
                threading.Thread(target=self._take, args=(sock,), daemon=True).start()
            except (OSError, RuntimeError) as error:
                if sock is not None:
                    self._connections.remove(sock)
                    sock.close()
                if isinstance(error, RuntimeError) or error.errno in _EXHAUSTED:
                    self._connections.dismiss_oldest()
                time.sleep(_RETRY_INTERVAL_S)

    def _take(self, sock: Any) -> None:
        inner: Any = None
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            outer = TlsConnection(_TimedSocket(sock, _HANDSHAKE_TIMEOUT_S), self._context, is_server=True)
            if self._has_secret(outer) and self._connections.prove(sock):
                outer.stream = sock
                sock.settimeout(None)
                inner = self._connected()
                _carry(outer, inner)
        except OSError:
            pass  # the client sees the end of the connection
        finally:
            for one in (sock, inner):
                if one is not None:
                    one.close()
            self._connections.remove(sock)

    def _has_secret(self, outer: TlsConnection) -> bool:
        said = b""
        while len(said) < len(self._secret):
            more = outer.recv(len(self._secret) - len(said))
            if not more:
                return False
            said += more
        return hmac.compare_digest(said, self._secret)

    def _connected(self) -> Any:
        """Connect to the server. The port's owner is checked before and after: it may be another user."""
        address = self._own()
        inner = socket.create_connection((address, self._server), _HANDSHAKE_TIMEOUT_S)
        try:
            self._own()
            inner.settimeout(None)
            inner.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        except OSError:
            inner.close()
            raise
        return inner

    def _own(self) -> str:
        address, _ = self._relay["route_to"](
            self._relay["listeners"](*self._relay["tables"](), self._server), os.getuid()
        )
        if address is None:
            raise ConnectionRefusedError("nothing of this user listens there")
        return str(address)


def _listener(first: int, last: int) -> Any:
    """Return a socket on a free port, chosen at random to avoid conflicts with other jobs of the node."""
    ports = list(range(first, last + 1))
    random.shuffle(ports)
    for port in ports:
        for family, address in ((socket.AF_INET6, "::"), (socket.AF_INET, "0.0.0.0")):  # noqa: S104 - what it is for
            with contextlib.suppress(OSError):
                listener = socket.socket(family)
                try:
                    if family == socket.AF_INET6:
                        listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
                    listener.bind((address, port))  # without SO_REUSEADDR, no other process shares the port
                    listener.listen(_BACKLOG)
                    return listener
                except OSError:
                    listener.close()
                    raise
    raise OSError(f"all ports from {first} to {last} are taken")


def _carry(outer: Any, inner: Any) -> None:
    """Forward bytes in both directions until both sides have finished, or one has closed."""

    def out() -> None:
        try:
            while True:
                data = inner.recv(_MAX_FRAME_BYTES)
                if not data:
                    outer.shutdown_write()
                    return
                outer.sendall(data)
        except OSError:
            _break(outer, inner)

    sender = threading.Thread(target=out, daemon=True)
    sender.start()
    try:
        while True:
            data = outer.recv(_MAX_FRAME_BYTES)
            if not data:
                inner.shutdown(socket.SHUT_WR)
                break
            inner.sendall(data)
    except OSError:
        _break(outer, inner)
    sender.join()


def _break(outer: Any, inner: Any) -> None:
    """Signal to both sides that the connection broke, as opposed to a regular end."""
    with contextlib.suppress(OSError):
        inner.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    for one in (inner, outer.stream):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)
