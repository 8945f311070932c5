"""The process on the login node that reads and writes files: its start, and its requests one after the other."""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Mapping
from importlib import resources
from typing import Any, Final, TypeVar

from jupyter_slurm.errors import TransportError
from jupyter_slurm.runner.login_node import files
from jupyter_slurm.transport.base import Stream, Transport

__all__ = ["FileHelper", "HelperAnswer"]

HelperAnswer = tuple[Mapping[str, Any], bytes]
"""Head and bytes of an answer, as the cluster sent them: not checked."""

_T = TypeVar("_T")

_START_TIMEOUT_S: Final = 30.0
_MAX_NOISE_BYTES: Final = 1 << 20
_MAX_HEAD_BYTES: Final = 64 << 20
_PIECE_BYTES: Final = 1 << 18
_MAX_CONTAINERS: Final = 1_000_000  # brackets of an answer, those in names included; the longest list has 100,000
# The process reads its program from standard input: the program needs no file, and is in no argv.
_LOADER: Final = (
    "import sys\n"
    "sys.stdout.write({mark!r} + chr(10)); sys.stdout.flush()\n"
    "text = b''\n"
    "while len(text) < {length}:\n"
    "    piece = sys.stdin.buffer.raw.read({length} - len(text))\n"
    "    if not piece: sys.exit(0)\n"
    "    text += piece\n"
    "exec(compile(text, 'files.py', 'exec'), {{'__name__': '__main__'}})\n"
)


class FileHelper:
    """A running process for files. Its methods block; :meth:`close` may be called from any thread.

    Parameters
    ----------
    transport : Transport
        Starts the process.
    name : str
        Name of the cluster, for messages.

    Raises
    ------
    TransportError
        The process cannot be started.
    """

    def __init__(self, transport: Transport, name: str) -> None:
        program = resources.files("jupyter_slurm.runner.login_node").joinpath("files.py").read_bytes()
        mark = secrets.token_hex(16)
        loader = _LOADER.format(mark=mark, length=len(program))
        self._name, self._ahead = name, bytearray()
        self._stream: Stream = transport.pipe(["python3", "-ISu", "-c", loader], _START_TIMEOUT_S)
        self._close_after(_START_TIMEOUT_S, lambda: self._start(mark.encode("ascii") + b"\n", program))

    def call(self, head: Mapping[str, object], data: bytes, timeout: float) -> HelperAnswer:
        """Send a request, and return its answer.

        Raises
        ------
        OSError
            The connection broke, or there is no answer within ``timeout`` (seconds).
        """
        return self._close_after(timeout, lambda: self._exchange(head, data))

    def close(self) -> None:
        """End the process."""
        self._stream.close()

    def _close_after(self, timeout: float, work: Callable[[], _T]) -> _T:
        """Call a function; an error or the end of the time closes the stream."""
        alarm = threading.Timer(timeout, self._stream.close)
        alarm.daemon = True
        alarm.start()
        try:
            return work()
        except BaseException:
            self._stream.close()
            raise
        finally:
            alarm.cancel()

    def _start(self, mark: bytes, program: bytes) -> None:
        try:
            while mark not in self._ahead:
                if len(self._ahead) > _MAX_NOISE_BYTES:
                    raise OSError("the start-up files of your shell print without end")
                self._ahead += self._stream.recv(_PIECE_BYTES)
            del self._ahead[: self._ahead.index(mark) + len(mark)]
            self._stream.sendall(program)
        except OSError as error:
            raise TransportError(
                f"The program for files cannot be started on {self._name}: {error}",
                hint="Check that python3 (3.8 or later) is on the PATH of the login node.",
            ) from error

    def _exchange(self, head: Mapping[str, object], data: bytes) -> HelperAnswer:
        text = json.dumps(head).encode("ascii")
        self._stream.sendall(files.LENGTHS.pack(len(text), len(data)) + text)
        if data:
            self._stream.sendall(data)
        head_size, data_size = files.LENGTHS.unpack(self._receive(files.LENGTHS.size))
        if head_size > _MAX_HEAD_BYTES or data_size > files.MAX_DATA:
            raise OSError("an answer is too large")
        try:
            head_text = self._receive(head_size)
            is_small = head_text.count(b"[") + head_text.count(b"{") < _MAX_CONTAINERS
            answer = json.loads(head_text) if is_small else None
        except (ValueError, RecursionError):
            answer = None
        if not isinstance(answer, dict):
            raise OSError("an answer cannot be read")
        return answer, self._receive(data_size)

    def _receive(self, size: int) -> bytes:
        while len(self._ahead) < size:
            piece = self._stream.recv(_PIECE_BYTES)
            if not piece:
                raise ConnectionResetError("the connection ended")
            self._ahead += piece
        data = bytes(memoryview(self._ahead)[:size])
        del self._ahead[:size]
        return data
