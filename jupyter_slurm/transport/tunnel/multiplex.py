"""Many connections over one pair of pipes, of a job step or an ssh: the local side of the runner's relay."""

from __future__ import annotations

import contextlib
import json
import shlex
import struct
import threading
import time
from importlib import resources

from jupyter_slurm.errors import TransportError, TunnelError
from jupyter_slurm.runner.login_node import relay
from jupyter_slurm.transport.base import Stream
from jupyter_slurm.transport.tunnel.listener_proof import verify_address

__all__ = ["Multiplex", "relay_argv", "relay_by_ssh"]

_PING_INTERVAL_S = 4.0  # seconds between two checks of the relay
_ANSWER_TIMEOUT_S = 12.0  # seconds for an answer; with the pause before it, a hanging relay is detected within 20 s
_MAX_NOISE_BYTES = 1 << 20  # bytes allowed before the relay's greeting
_FALLBACK_COMMAND = 'command -v "$0" >/dev/null 2>&1 && exec "$0" "$@"; exec python3 "$@"'
# The Python reads its program from standard input: the program needs no file, and is in no argv.
_LOADER = (
    "import sys\n"
    "sys.stdout.write({mark!r} + chr(10)); sys.stdout.flush()\n"
    "source = sys.stdin.buffer.raw\n"
    "text = b''\n"
    "while len(text) < {length}:\n"
    "    piece = source.read({length} - len(text))\n"
    "    if not piece: sys.exit(1)\n"
    "    text += piece\n"
    "exec(compile(text, 'relay.py', 'exec'), {{'__name__': '__main__'}})\n"
)


def relay_argv(mark: str, python: str = "") -> list[str]:
    """Return the command that runs the relay: it prints ``mark``, then waits for its program on standard input.

    ``python`` is a path that may exist: the first one on PATH may be a script that searches for a Python first, as with
    pyenv.
    """
    words = [
        "-ISu",
        "-c",
        _LOADER.format(mark=mark, length=len(_program())),
    ]  # -S: the import of site takes as long again
    return ["/bin/sh", "-c", _FALLBACK_COMMAND, python, *words] if python else ["python3", *words]


def relay_by_ssh(mark: str, host: str, address: str) -> list[str]:
    """Return the command that runs the relay by ssh from this host, without questions and with a known host key."""
    there = () if address == host else (f"HostName={address}", f"HostKeyAlias={host}")
    options = ("BatchMode=yes", "StrictHostKeyChecking=yes", "ConnectTimeout=10", "ClearAllForwardings=yes")
    alone = ("ControlMaster=no", "ControlPath=none", "LogLevel=ERROR")
    argv = ["ssh", "-T", "-a", "-x", *(word for option in (*options, *alone, *there) for word in ("-o", option))]
    # One line, which csh also accepts in quotes.
    python, *words, loader = relay_argv(mark)
    return [*argv, "--", host, shlex.join([python, *words, f"exec(bytes.fromhex({loader.encode().hex()!r}))"])]


def _program() -> bytes:
    return resources.files("jupyter_slurm.runner.login_node").joinpath("relay.py").read_bytes()


class Multiplex:
    """The connections over one relay; see :class:`jupyter_slurm.transport.base.Route`.

    Parameters
    ----------
    stream : Stream
        Stream to a relay started with :func:`relay_argv`.
    mark : str
        The mark given to :func:`relay_argv`.
    host : str
        Host of the relay, for messages.
    name : str
        Carrier of the relay, for messages: "the step on dgx01".
    timeout : float
        Seconds for the relay to start.
    """

    def __init__(self, stream: Stream, mark: str, host: str, name: str, timeout: float = 60.0) -> None:
        self._stream, self._host, self.name = stream, host, name
        self._lock, self._sending = threading.Lock(), threading.Lock()
        self._channels: dict[int, _Channel] = {}
        self._next = 1
        self._ahead = bytearray()
        self._broken: str | None = None
        self._closing, self._answer_event, self._owes = threading.Event(), threading.Event(), threading.Event()
        alarm = threading.Timer(timeout, stream.close)  # Slurm may let a step wait without end
        alarm.daemon = True
        alarm.start()
        try:
            self._greet(mark.encode() + b"\n")
        except BaseException:
            stream.close()
            raise
        finally:
            alarm.cancel()
        threading.Thread(target=self._read, name="jupyter-slurm-relay", daemon=True).start()
        threading.Thread(target=self._ping_loop, name="jupyter-slurm-relay-ping", daemon=True).start()
        threading.Thread(target=self._acknowledge, name="jupyter-slurm-relay-ack", daemon=True).start()

    proof_lasts = True

    @property
    def is_alive(self) -> bool:
        """Return whether the relay has not been seen to end."""
        return self._broken is None

    def find(self, port: int) -> str:
        """Return the address on the host under which the user's own program listens."""
        with self._new_channel() as channel:
            self._send(relay.PROVE, channel.number, str(port).encode())
            told = json.loads(channel.answer(relay.PROVED, 30, port))
        return verify_address(told["address"], told["others"], self._host, port)

    def dial(self, address: str, port: int, timeout: float) -> Stream:
        """Connect to the port. The relay itself finds the address, and checks its owner again."""
        channel = self._new_channel()
        try:
            self._send(relay.OPEN, channel.number, str(port).encode())
            channel.answer(relay.OPENED, timeout, port)
        except BaseException:
            channel.close()
            raise
        return channel

    def close(self) -> None:
        """End the relay, and with it the step or the ssh."""
        self._break("the tunnel was closed")

    # Internal ----------------------------------------------------------------------------------------------------

    def _greet(self, mark: bytes) -> None:
        """Wait until the relay's Python runs, and send it its program."""
        try:
            while mark not in self._ahead:
                self._ahead += self._stream.recv(relay.PIECE)
                if len(self._ahead) > _MAX_NOISE_BYTES:
                    raise TransportError(
                        f"The output of {self.name} has no end.",
                        hint="Check the start-up files of your shell on the node: they must not print endlessly.",
                    )
            del self._ahead[: self._ahead.index(mark) + len(mark)]
            self._stream.sendall(_program())
        except OSError as error:
            raise TransportError(
                f"The relay ({self.name}) cannot be started: {error}",
                hint="Check that python3 is on the PATH of the node.",
            ) from error

    def _new_channel(self) -> _Channel:
        with self._lock:
            if self._broken is not None:
                raise TransportError(self._broken, hint="Try again.")
            channel = _Channel(self, self._next, self._host)
            self._channels[self._next] = channel
            self._next += 1
        return channel

    def _send(self, kind: int, number: int, data: bytes | memoryview = b"") -> None:
        with self._sending:
            try:
                self._stream.sendall(relay.HEADER.pack(kind, number, len(data)) + bytes(data))
            except OSError as error:
                self._break(str(error))
                raise

    def _acknowledge(self) -> None:
        """Send an empty message in case the relay waits for it; the reading thread must never wait itself."""
        while not self._closing.is_set():
            self._owes.wait()
            self._owes.clear()
            with contextlib.suppress(OSError):
                self._send(relay.CREDIT, 0)

    def _forget(self, channel: _Channel) -> None:
        with self._lock:
            self._channels.pop(channel.number, None)

    def _ping_loop(self) -> None:
        """Send keepalives, and check the relay: a hanging relay breaks no connection by itself."""
        while not self._closing.wait(_PING_INTERVAL_S):
            self._answer_event.clear()
            # An alarm, because sending may hang too, behind senders that wait for the relay to read.
            alarm = threading.Timer(_ANSWER_TIMEOUT_S, self._break, [f"{self.name} does not answer"])
            alarm.daemon = True
            alarm.start()
            with contextlib.suppress(OSError):
                self._send(relay.PING, 0)
            self._answer_event.wait()
            alarm.cancel()

    def _read(self) -> None:
        try:
            while True:
                while len(self._ahead) < relay.HEADER.size:
                    self._ahead += self._stream.recv(4 * relay.PIECE)
                kind, number, length = relay.HEADER.unpack_from(self._ahead)
                if length > relay.PIECE:
                    raise OSError("its answer cannot be read")
                end = relay.HEADER.size + length
                if len(self._ahead) < end or kind == relay.CREDIT:
                    self._owes.set()
                while len(self._ahead) < end:
                    self._ahead += self._stream.recv(4 * relay.PIECE)
                data = bytes(memoryview(self._ahead)[relay.HEADER.size : end])
                del self._ahead[:end]
                self._answer_event.set()
                if channel := self._channels.get(number):
                    channel.receive(kind, data)
        except (OSError, EOFError, struct.error) as error:
            self._break(f"{self.name} ended: {error}")

    def _break(self, why: str) -> None:
        with self._lock:
            self._broken = self._broken or why
            channels = tuple(self._channels.values())
        self._closing.set()
        self._answer_event.set()
        self._owes.set()
        self._stream.close()
        for channel in channels:
            channel.receive(relay.CLOSE, b"broken")


class _Channel:
    """A connection over the relay; see :class:`jupyter_slurm.transport.base.Stream`."""

    def __init__(self, owner: Multiplex, number: int, host: str) -> None:
        self._owner, self.number, self._host = owner, number, host
        self._changed = threading.Condition()
        self._answers: list[tuple[int, bytes]] = []
        self._in = bytearray()
        self._credit = relay.WINDOW
        self._consumed = 0
        self._has_ended = self._is_broken = self._is_closed = self._has_shut = False

    def __enter__(self) -> _Channel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def closed(self) -> bool:
        """Return whether the connection has ended in both directions."""
        return self._is_closed or self._is_broken

    def answer(self, limit: int, timeout: float, port: int) -> bytes:
        """Wait for the answer to a query about a port."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while not self._answers:
                if self._is_broken:
                    raise TransportError(f"The relay ({self._owner.name}) has ended.", hint="Try again.")
                if not self._changed.wait(deadline - time.monotonic()):
                    raise TransportError(
                        f"The relay ({self._owner.name}) gave no answer within {timeout:g} s.", hint="Try again later."
                    )
            kind, data = self._answers.pop()
        if kind == limit:
            return data
        why, _, words = data.decode("utf-8", "replace").partition(" ")
        if why == "stranger":
            verify_address(None, [int(uid) for uid in words.split(", ")], self._host, port)
        raise TunnelError(
            f"No program answers on port {port} of {self._host}: {words}",
            hint="Check that your program has started, and that it listens on this port.",
            why="refused",
        )

    def receive(self, kind: int, data: bytes) -> None:
        """Process a message of the relay for this connection."""
        with self._changed:
            if kind == relay.DATA:
                self._take(data)
            elif kind == relay.END:
                self._has_ended = True
            elif kind == relay.CREDIT:
                self._credit += struct.unpack(">I", data)[0]
            elif kind == relay.CLOSE:
                self._is_broken = self._is_broken or bool(data)
                self._has_ended = self._is_closed = True
            elif not self._answers:  # there is one answer to a query
                self._answers.append((kind, data))
            self._changed.notify_all()

    def _take(self, data: bytes) -> None:
        if len(self._in) + len(data) > relay.WINDOW:  # the relay had no credit for so much
            self._in.clear()
            self._is_broken = self._has_ended = True
        elif not self._has_ended:
            self._in += data

    def recv(self, size: int, /) -> bytes:
        """Wait for bytes."""
        with self._changed:
            while not self._in and not self._has_ended:
                self._changed.wait()
            if not self._in and self._is_broken:
                raise ConnectionResetError("the connection broke")
            data = bytes(memoryview(self._in)[:size])
            del self._in[: len(data)]
            self._consumed += len(data)
            taken = self._consumed if self._consumed >= relay.WINDOW // 4 and not self._has_ended else 0
            self._consumed -= taken
        if taken:
            self._owner._send(relay.CREDIT, self.number, struct.pack(">I", taken))
        return data

    def sendall(self, data: bytes | memoryview, /) -> None:
        """Send all bytes, as fast as the service reads them."""
        left = memoryview(data)
        while left:
            with self._changed:
                while self._credit <= 0 and not self.closed:
                    self._changed.wait()
                if self.closed:
                    raise ConnectionResetError("the connection has ended")
                piece = left[: min(self._credit, relay.PIECE)]
                self._credit -= len(piece)
            self._owner._send(relay.DATA, self.number, piece)
            left = left[len(piece) :]

    def shutdown_write(self) -> None:
        """End the outgoing direction."""
        with self._changed:
            if self._has_shut or self.closed:
                return
            self._has_shut = True
        with contextlib.suppress(OSError):
            self._owner._send(relay.END, self.number)

    def close(self) -> None:
        """Close the connection."""
        with self._changed:
            was_open, self._is_closed = not self.closed, True
            if was_open and not self._has_ended:
                self._is_broken = True
            self._has_ended = True
            self._changed.notify_all()
        self._owner._forget(self)
        if was_open:
            with contextlib.suppress(OSError):
                self._owner._send(relay.CLOSE, self.number)
