r"""Frames that carry the output of several ranks in one pipe, and its labels. Python 3.8+, standard library only.

A rank (``rank.py``) splits its output at line ends and at carriage returns, so that progress bars move, too. The rank
sends frames, one a line and short enough that Slurm forwards them whole::

    \x1e RANK STREAM KIND content \n

STREAM is ``o`` or ``e`` (standard output and error), ``d`` (a message of ``cell/display.py``) or ``x`` (the end of the
rank, as JSON). KIND names the text after the content: ``n`` a line end, ``r`` a carriage return, ``-`` the rest of it,
``p`` nothing for now. ``l`` is a line end after content whose line ends are written as \x1d. A line that is not a frame
was printed by the program that started the ranks.

The reader of the pipe (``launch.py``) writes each piece with the label of its rank: ``[3] text\n``, ``[3] text\r``.
Text after a carriage return begins with ``\x1b[K``, which clears the line of another rank. A line of more than 64 kB is
broken.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Callable

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import RankEnd

MARK = b"\x1e"
_MAX_CONTENT_BYTES = 960  # bytes: Slurm cuts lines of more than 1024
_MAX_WRITE_BYTES = 4000  # bytes: writes by several processes stay whole only up to PIPE_BUF
_MAX_LINE_BYTES = 65536  # bytes of a line
_MAX_DRAWN_BYTES = 4096  # bytes of a line that is shown before its end
_CUT = re.compile(rb"\r?\n|\r(?!\Z)")  # a line end may still follow the last carriage return
_MOVE = re.compile(rb"\x1b(?!\[[0-9;]*[mK])")  # drawn twice, it would move twice
_FRAME = re.compile(rb"\x1e(\d{1,9})([oedx])([lnrp-])(.*)", re.DOTALL)
_PACKED = b"\x1d"  # a line end inside several lines


class Sender:
    """Sender of frames, in a rank.

    Parameters
    ----------
    rank : int
    write : callable
        Takes bytes, which must reach the pipe in one piece.
    """

    def __init__(self, rank: int, write: Callable[[bytes], Any]) -> None:
        self._rank, self._write = b"%d" % rank, write
        self._open = {b"o": b"", b"e": b"", b"d": b""}  # incomplete lines
        self._has_more = {b"o": False, b"e": False}  # whether a part was not shown yet
        self._frames: list[bytes] = []
        self._size = 0

    @property
    def is_waiting(self) -> bool:
        """Return whether the end of an incomplete line has not been shown."""
        return any(self._has_more.values())

    def feed(self, stream: bytes, data: bytes) -> None:
        """Send printed data, as far as it is complete."""
        data, at = self._open[stream] + data, 0
        if stream != b"d" and not (b"\r" in data or _PACKED in data):
            at = self._pack(stream, data)
        for cut in _CUT.finditer(data, at):
            self._frame(stream, b"n" if cut[0].endswith(b"\n") else b"r", data[at : cut.start()])
            at = cut.end()
        rest = data[at:]
        while len(rest) > _MAX_CONTENT_BYTES:
            self._frame(stream, b"-", rest[:_MAX_CONTENT_BYTES])
            rest = rest[_MAX_CONTENT_BYTES:]
        self._open[stream] = rest
        if stream in self._has_more:
            self._has_more[stream] = bool(rest)
        self.flush()

    def _pack(self, stream: bytes, data: bytes) -> int:
        """Send whole lines, many at once; return the start of the rest."""
        at = 0
        while True:
            end = data.rfind(b"\n", at, at + _MAX_CONTENT_BYTES + 1)
            if end >= 0:
                self._frame(stream, b"l", data[at:end].replace(b"\n", _PACKED))
                at = end + 1
            elif len(data) - at > _MAX_CONTENT_BYTES:
                self._frame(stream, b"-", data[at : at + _MAX_CONTENT_BYTES])
                at += _MAX_CONTENT_BYTES
            else:
                return at

    def show(self) -> None:
        """Send incomplete lines, to be shown now."""
        for stream, has_more in self._has_more.items():
            if has_more:
                rest = self._open[stream]
                self._frame(stream, b"r" if rest.endswith(b"\r") else b"p", rest.rstrip(b"\r"))
                self._open[stream], self._has_more[stream] = b"", False
        self.flush()

    def end(self, told: RankEnd) -> None:
        """Send the remaining data, and how the rank ended."""
        for stream, rest in self._open.items():
            if rest and stream in self._has_more:
                self._frame(stream, b"-", rest.rstrip(b"\r"))
                self._open[stream] = b""
        self._frame(b"x", b"n", json.dumps(told).encode("ascii"))
        self.flush()

    def flush(self) -> None:
        """Write the collected frames."""
        if self._frames:
            self._write(b"".join(self._frames))
        self._frames, self._size = [], 0

    def _frame(self, stream: bytes, kind: bytes, content: bytes) -> None:
        while len(content) > _MAX_CONTENT_BYTES:
            self._add(b"%s%s%s-%s\n" % (MARK, self._rank, stream, content[:_MAX_CONTENT_BYTES]))
            content = content[_MAX_CONTENT_BYTES:]
        self._add(b"%s%s%s%s%s\n" % (MARK, self._rank, stream, kind, content))

    def _add(self, frame: bytes) -> None:
        if self._size + len(frame) > _MAX_WRITE_BYTES:
            self.flush()
        self._frames.append(frame)
        self._size += len(frame)


class Gatherer:
    """Receiver of frames, in the program that started the ranks.

    Parameters
    ----------
    write : callable
        Takes ``o`` or ``e`` and bytes for that stream.
    show : callable
        Takes a rank and its displayed message.
    ended : callable
        Takes a rank and its message at the end.
    """

    def __init__(
        self,
        write: Callable[[bytes, bytes], Any],
        show: Callable[[int, Any], Any],
        ended: Callable[[int, Any], Any],
    ) -> None:
        self._write, self._show, self._ended = write, show, ended
        self._rest = b""
        self._lines: dict[tuple[int, bytes], bytes] = {}  # incomplete lines, by rank and stream
        self._drawn: dict[tuple[int, bytes], bytes] = {}  # their visible part, or visible text in their place
        self._is_dirty = {b"o": False, b"e": False}  # whether text without a line end was drawn
        self._out: dict[bytes, list[bytes]] = {b"o": [], b"e": []}

    def feed(self, data: bytes) -> None:
        """Process data from the pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._take(line)
        self.flush()

    def write_line(self, stream: bytes, line: bytes) -> None:
        """Write a line that does not come from a rank."""
        self._put(stream, line + b"\n")

    def end(self) -> None:
        """Write incomplete lines at the end of the data."""
        if self._rest:
            self._take(self._rest)
        for (rank, stream), line in sorted(self._lines.items()):
            if line:
                self._put(stream, b"[%d] %s\n" % (rank, line))
        self._lines.clear()
        self.flush()

    def flush(self) -> None:
        """Write the collected output."""
        for stream, pieces in self._out.items():
            if pieces:
                self._write(stream, b"".join(pieces))
                pieces.clear()

    def _take(self, line: bytes) -> None:
        frame = _FRAME.fullmatch(line)
        if frame is None:
            self.write_line(b"o", line)
            return
        rank, stream, kind = int(frame[1]), frame[2], frame[3]
        place = rank, stream
        begun, content = self._lines.pop(place, b""), frame[4]
        if kind == b"l":
            content, kind = content.replace(_PACKED, b"\n[%d] " % rank), b"n"
        content = begun + content
        if stream in (b"d", b"x"):
            if kind == b"-":
                self._lines[place] = content
            else:
                self._hand_on(rank, stream, content)
            return
        if kind in b"-p":
            self._keep(place, content, is_drawn=kind == b"p")
            return
        drawn = self._drawn.pop(place, b"")
        if kind == b"n":
            if not content or content.startswith(b"\n"):  # the line end of drawn text
                content = drawn + content
            self._put(stream, b"[%d] %s\n" % (rank, content))
        elif content:
            self._drawn[place] = content
            if content != drawn:
                self._put(stream, b"[%d] %s\r" % (rank, content))

    def _keep(self, place: tuple[int, bytes], content: bytes, *, is_drawn: bool) -> None:
        rank, stream = place
        if len(content) > _MAX_LINE_BYTES:
            self._drawn.pop(place, None)
            self._put(stream, b"[%d] %s\n" % (rank, content))
            return
        self._lines[place] = content
        if is_drawn and len(content) <= _MAX_DRAWN_BYTES and not _MOVE.search(content):
            self._drawn[place] = content
            reset = b"\x1b[0m" if b"\x1b" in content else b""
            self._put(stream, b"[%d] %s%s\r" % (rank, content, reset))

    def _put(self, stream: bytes, piece: bytes) -> None:
        pieces = self._out[stream]
        if self._is_dirty[stream]:
            pieces.append(b"\x1b[K")
        pieces.append(piece)
        self._is_dirty[stream] = piece.endswith(b"\r")

    def _hand_on(self, rank: int, stream: bytes, content: bytes) -> None:
        self.flush()  # so that text printed before is visible before
        try:
            told = json.loads(content.decode("ascii"))
        except ValueError:
            return
        if isinstance(told, dict):
            (self._show if stream == b"d" else self._ended)(rank, told)
