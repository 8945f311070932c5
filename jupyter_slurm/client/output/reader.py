"""Reader of a job's output for its handle: piece by piece, from either end."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.client.output.progress import report_progress
from jupyter_slurm.client.render.job_card import title
from jupyter_slurm.client.render.table import CommandText
from jupyter_slurm.client.render.terminal import IncrementalFilter, Screen, plain
from jupyter_slurm.domain.ranks import RankedOutput, has_ranks
from jupyter_slurm.errors import JobOutputMissing, SlurmError

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["OutputReader"]

_CHUNK_BYTES = 1_048_576  # bytes of one request
_MAX_TAIL_BYTES = 8_388_608  # bytes, at most, read for the last lines
_MAX_RANK_TAIL_BYTES = 1_048_576  # bytes of all ranks read for the lines of one
_MAX_LOG_LINES = 20
_TASK_STREAM_HINTS = {"stdout": "job[N].stdout", "stderr": "job[N].stderr", "values": "job[N].outputs"}


class OutputReader:
    """Reader of the streams of one job, and of the file of its values.

    Parameters
    ----------
    client : AgentClient
        Client of the agent.
    path : str
        API path of the job's output.
    data : mapping
        The job: its name, and whether several ranks print, which cannot clear each other's output.
    is_array : bool
        Whether the job is an array, whose tasks have their own output.
    """

    def __init__(self, client: AgentClient, path: str, data: api.Job, *, is_array: bool) -> None:
        self._client, self._path, self._title = client, path, title(data)
        self._is_array, self._has_ranks = is_array, has_ranks(data)

    def text(self, stream: str) -> str:
        """Return the text of a stream so far."""
        _, size = self._request(stream, 0, 0)
        pieces = report_progress(self._pieces(stream, 0, size), f"{self._title}, {stream}", size)
        return CommandText(b"".join(pieces).decode("utf-8", "replace"))

    def tail(self, lines: int, stream: str) -> str:
        """Return the last lines of a stream, as a terminal shows them."""
        _, size = self._request(stream, 0, 0)
        length = min(size, 4096 + 200 * lines)
        while True:
            screen, kept = Screen(_MAX_TAIL_BYTES), IncrementalFilter()
            for piece in self._pieces(stream, size - length, length):
                screen.feed(kept.feed(piece).encode() if self._has_ranks else piece)
            shown = plain(screen.text()).removesuffix("\n").split("\n")
            if len(shown) > lines or length >= min(size, _MAX_TAIL_BYTES):
                return CommandText("\n".join(shown[-lines:] if lines > 0 else []))
            length = min(size, length * 8, _MAX_TAIL_BYTES)

    def values(self) -> bytearray:
        """Return the file of the values, read into one buffer without a second copy."""
        _, size = self._request("values", 0, 0)
        content, done = bytearray(size), 0
        for piece in report_progress(self._pieces("values", 0, size), f"{self._title}, values", size):
            content[done : done + len(piece)], done = piece, done + len(piece)
        return content

    def log(
        self, streams: Sequence[str] = ("stderr", "stdout"), ranks: api.JobRanks | None = None
    ) -> tuple[str, str | None]:
        """Return the end of the first stream with output, and its name; with ranks, that of the first rank to fail."""
        rank = ranks["first"]["rank"] if ranks else None
        for stream in streams:
            with contextlib.suppress(SlurmError):
                text = self.tail(_MAX_LOG_LINES, stream) if rank is None else self._rank_tail(rank, stream)
                if text.strip():
                    return text, stream
        return self.log(streams) if ranks else ("", None)

    def _rank_tail(self, rank: int, stream: str) -> str:
        """Return the last lines of one rank."""
        _, size = self._request(stream, 0, 0)
        length, labelled, screen = min(size, _MAX_RANK_TAIL_BYTES), RankedOutput(), Screen(_MAX_RANK_TAIL_BYTES)
        for piece in self._pieces(stream, size - length, length):
            for who, data in labelled.feed(piece):
                if who == rank:
                    screen.feed(data)
        lines = plain(screen.text()).removesuffix("\n").split("\n")
        return "\n".join(f"[{rank}] {line}" for line in lines[-_MAX_LOG_LINES:]) if screen else ""

    def _request(self, stream: str, offset: int, limit: int) -> tuple[bytes, int]:
        if stream not in _TASK_STREAM_HINTS:
            raise ValueError(f"A job has stdout and stderr, not {stream!r}.")
        try:
            return self._client.get_bytes(self._path, {"stream": stream, "offset": offset, "limit": limit})
        except JobOutputMissing as error:
            if self._is_array:
                error.message, error.hint = "Each task of an array has its own output.", _TASK_STREAM_HINTS[stream]
            raise

    def _pieces(self, stream: str, offset: int, length: int) -> Iterable[bytes]:
        while length > 0:
            piece, _ = self._request(stream, offset, min(length, _CHUNK_BYTES))
            if not piece:
                return
            yield piece
            offset, length = offset + len(piece), length - len(piece)
