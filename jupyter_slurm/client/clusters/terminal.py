"""Terminals on the login node and in jobs: start, list, and the connection of a viewer."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.login.call import answering
from jupyter_slurm.errors import TransportError
from jupyter_slurm.runner.terminal.keeper import HEAD, MAX_INPUT_BYTES, SIZE

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = [
    "MAX_FRAME_BYTES",
    "FrameReader",
    "TerminalViewer",
    "exit_code",
    "frame",
    "input_frames",
    "list_terminals",
    "place_text",
    "resize_frame",
    "start_terminal",
]

MAX_FRAME_BYTES: Final = 1 << 20
_RECEIVED_BYTES: Final = 1 << 16
_FILES_TIMEOUT_S: Final = 10.0
_MAX_CODE_DIGITS: Final = 3


def start_terminal(
    cluster: Cluster, job: str | None, columns: int, rows: int, *, is_on_host: bool = False
) -> api.Terminal:
    """Start a terminal on the login node, or inside a running job: by its ID, its key or a name.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the terminal.
    job : str or None
        The job; None: the login node.
    columns, rows : int
        Size of the terminal.
    is_on_host : bool
        In a job with a container: on the node itself, not in the container.

    Raises
    ------
    JobNotFound, JobError, UsageError
        The target is not one running job.
    TransportError
        The terminal cannot be started.
    """
    asked: api.StartTerminalRequest = {"job": job, "host": is_on_host, "columns": columns, "rows": rows}
    path = cluster.path("terminals")
    made: api.Terminal = answering(
        cluster.client, cluster.name, lambda: cluster.client.post(path, json=asked, timeout=None)
    )
    return made


def list_terminals(cluster: Cluster) -> list[api.Terminal]:
    """Return the terminals on the login node of a cluster, oldest first."""
    found: list[api.Terminal] = cluster.client.get(cluster.path("terminals"))
    return found


def place_text(terminal: api.Terminal) -> str:
    """Return where a terminal is: the login node, or a job and its node."""
    if not terminal["job"]:
        return terminal["host"]
    job = f"job {terminal['job']}"
    named = f"{terminal['name']} ({job})" if terminal["name"] else job
    return f"{named} on {terminal['node']}" if terminal["node"] else named


def frame(kind: bytes, content: bytes) -> bytes:
    """Return a frame; see :mod:`jupyter_slurm.runner.terminal.keeper`."""
    return HEAD.pack(kind, len(content)) + content


def resize_frame(columns: int, rows: int) -> bytes:
    """Return the frame with the size of a viewer."""
    return frame(b"r", SIZE.pack(max(1, min(columns, 10_000)), max(1, min(rows, 10_000))))


def exit_code(content: bytes) -> int | None:
    """Return the exit code in the last frame of a keeper, if it is known."""
    return int(content) & 0xFF if content.isdigit() and len(content) <= _MAX_CODE_DIGITS else None


def input_frames(data: bytes) -> bytes:
    """Return the frames with input."""
    if len(data) <= MAX_INPUT_BYTES:
        return frame(b"i", data)
    return b"".join(
        frame(b"i", data[start : start + MAX_INPUT_BYTES]) for start in range(0, len(data), MAX_INPUT_BYTES)
    )


class FrameReader:
    """Parser of the frames of a keeper."""

    def __init__(self) -> None:
        self._received = bytearray()

    def feed(self, data: bytes) -> Iterable[tuple[bytes, bytes]]:
        """Return the complete frames in new data: kind and content.

        Raises
        ------
        TransportError
            The host sends something else.
        """
        if not self._received and data[:1] == b"o":
            content = data[HEAD.size :]
            if content and len(content) == int.from_bytes(data[1 : HEAD.size], "big"):
                return ((b"o", content),)  # the echo of a key
        return self._frames(data)

    def _frames(self, data: bytes) -> Iterator[tuple[bytes, bytes]]:
        self._received += data
        while len(self._received) >= HEAD.size:
            kind, length = HEAD.unpack_from(self._received)
            if kind not in (b"o", b"x") or length > MAX_FRAME_BYTES:
                raise TransportError(
                    "The host does not send a terminal.", hint="Start another terminal: `jupyter slurm shell`."
                )
            if len(self._received) < HEAD.size + length:
                return
            content = bytes(self._received[HEAD.size : HEAD.size + length])
            del self._received[: HEAD.size + length]
            yield kind, content


class TerminalViewer:
    """Connection of a viewer to a terminal.

    Parameters
    ----------
    path : str
        Socket of this computer that leads to the terminal.
    has_files : bool
        Whether the agent can hand over the files of its connection, so that no byte passes through it.

    Attributes
    ----------
    sock, source, sink : socket
        Socket of the agent, which ends with the connection, and the sockets to read and to write.

    Raises
    ------
    OSError
        There is no such socket, or the connection broke.
    """

    def __init__(self, path: str, *, has_files: bool = False) -> None:
        self.sock = self.source = self.sink = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.sock.connect(path)
            if has_files:
                self._take_files()
        except BaseException:
            self.close()
            raise
        self._reader = FrameReader()

    @classmethod
    def attach(cls, cluster: Cluster, terminal: str) -> TerminalViewer:
        """Attach to a terminal of a cluster."""
        told: api.TerminalSocket = cluster.client.post(cluster.path("terminals", terminal, "attach"))
        return cls(told["socket"], has_files=told.get("has_files", False))

    def _take_files(self) -> None:
        self.sock.settimeout(_FILES_TIMEOUT_S)
        self.sock.sendall(frame(b"f", b""))
        _, files, _, _ = socket.recv_fds(self.sock, HEAD.size, 2)
        if len(files) != 2:
            raise ConnectionResetError("the connection broke")
        self.source, self.sink = (socket.socket(fileno=file) for file in files)
        for sock in (self.source, self.sink):
            sock.set_inheritable(False)

    def send(self, data: bytes) -> None:
        """Send input."""
        self.sink.sendall(input_frames(data))

    def resize(self, columns: int, rows: int) -> None:
        """Set the size of the terminal."""
        self.sink.sendall(resize_frame(columns, rows))

    def receive(self) -> Iterable[tuple[bytes, bytes]]:
        """Wait for data, and return the complete frames.

        Raises
        ------
        OSError
            The connection broke.
        """
        data = self.source.recv(_RECEIVED_BYTES)
        if not data:
            raise ConnectionResetError("the connection broke")
        return self._reader.feed(data)

    def close(self) -> None:
        """Detach; the terminal stays."""
        for sock in (self.source, self.sink, self.sock):
            sock.close()
