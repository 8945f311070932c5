"""Printer of a remote cell's output in the calling kernel: in order, in the thread that waits."""

from __future__ import annotations

import contextlib
import queue
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.rich_output import DisplayedOutput, DisplayMessages, stream_position
from jupyter_slurm.client.output.timeline import DISPLAY, STREAMS, omitted_text
from jupyter_slurm.client.render.terminal import IncrementalFilter
from jupyter_slurm.runner.cell.display import CLEAR, CLEAR_LATER

if TYPE_CHECKING:
    from jupyter_slurm.client.output.rich_output import DisplayMessage

__all__ = ["Printer"]

_TAIL_CHARACTERS = 1000  # characters shown from the end of a truncated output
_MAX_OVERWRITTEN = 64  # times the limit: most characters that are printed, overwritten ones included
_CLEARS = (CLEAR.encode("ascii"), CLEAR_LATER.encode("ascii"))
_CLEAR = re.compile(b"|".join(map(re.escape, _CLEARS)))
_PIECE = re.compile(r"\r+|\n|[^\r\n]+")
_published: set[str] = set()  # display ids that this kernel has used


class _Text:
    """One stream: its text that has arrived but is not printed yet."""

    def __init__(self) -> None:
        self.waiting = bytearray()
        self.position = 0  # bytes
        self.is_full = False  # no more text is printed until a clear
        self.omitted = 0  # characters, or bytes of unread output
        self._held = b""
        self._filter = IncrementalFilter()
        self.clear()

    def clear(self) -> None:
        """Forget the printed text."""
        self.is_full, self.omitted = False, 0
        self._visible = self._line = self._printed = 0  # characters: visible, before the last line, and printed
        self._is_returned = False  # the next character overwrites the last line

    def fit(self, text: str, limit: int) -> int:
        """Count a text to print; return how many characters of it fit. A progress bar overwrites its own line."""
        room = _MAX_OVERWRITTEN * limit - self._printed
        self._printed += len(text)
        for piece in _PIECE.finditer(text):
            if piece[0][0] == "\r":
                self._is_returned = True
                continue
            is_newline = piece[0] == "\n"
            if self._is_returned and not is_newline:
                self._visible = self._line
            self._is_returned = False
            self._visible += len(piece[0])
            if self._visible > limit:
                return min(room, piece.end() - (self._visible - limit))
            if is_newline:
                self._line = self._visible
        return min(room, len(text))

    def read_until(self, until: int | None) -> Iterator[str | bool]:
        """Yield the text up to a place in the stream (None: all); at a clear, yield whether it waits for new output."""
        count = len(self.waiting) if until is None else min(len(self.waiting), max(0, until - self.position))
        data = self._held + bytes(self.waiting[:count])
        del self.waiting[:count]
        self.position += count
        self._held, at = _half(data), 0
        data = data[: len(data) - len(self._held)]
        for found in _CLEAR.finditer(data):
            yield self._text(data[at : found.start()])
            yield found[0] == _CLEARS[1]
            at = found.end()
        yield self._text(data[at:])

    def _text(self, data: bytes) -> str:
        if self.is_full:
            self.omitted += len(data)
            return ""
        return self._filter.feed(data)


def _half(data: bytes) -> bytes:
    """Return a possible first half of a clear sequence."""
    ends = (sequence[:size] for sequence in _CLEARS for size in range(len(sequence) - 1, 0, -1))
    return max((end for end in ends if data.endswith(end)), key=len, default=b"")


class Printer:
    """Print a follower's output in the waiting thread: ``with Printer(…) as printer: printer.print_for(1)``.

    Parameters
    ----------
    follower : Follower
        Follower of the cell from its beginning.
    shell : InteractiveShell
        Shell that prints.
    scope : str
        Namespace of display ids: the cells of one process share it.
    limit : int
        Visible characters of each stream to print.
    display_limit : int
        Bytes of figures and tables to show at a time.
    """

    def __init__(self, follower: Follower, shell: Any, scope: str, limit: int, display_limit: int) -> None:
        self._follower, self._publisher, self._scope = follower, shell.display_pub, scope
        self._limit, self._display_limit = limit, display_limit
        self._news: queue.SimpleQueue[tuple[str, bytes]] = queue.SimpleQueue()
        self._texts = {stream: _Text() for stream in STREAMS}
        self._messages = DisplayMessages()
        self._waiting: list[tuple[DisplayMessage, int]] = []  # displays whose preceding text has not arrived yet
        self._sizes: dict[str | None, int] = {}  # bytes of the shown displays by display id
        self._omitted = 0

    def __enter__(self) -> Printer:
        self._follower.listen(self._receive, raw=True, is_for_all=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._follower.unlisten(self._receive)
        self._apply_all()
        self._emit(is_over=True)
        for stream, text in self._texts.items():
            if text.is_full:
                self._print_end(stream, text.omitted)
        if self._omitted:
            where = self._follower.data.get("folder")
            sys.stderr.write(f"{omitted_text(self._omitted, where, self._follower.timeline)}\n")

    def _print_end(self, stream: str, omitted: int) -> None:
        """Print the last lines of a truncated output."""
        kept = "".join(text for of, text in self._follower.timeline.texts() if of == stream)
        end = kept[-min(omitted, _TAIL_CHARACTERS) :]
        if len(end) < omitted:  # starts within a line
            end = end.partition("\n")[2] or end
        sys.stderr.write(f"The last lines of {stream}:\n")
        sys.stderr.flush()
        (sys.stderr if stream == "stderr" else sys.stdout).write(end)

    def print_for(self, seconds: float) -> None:
        """Print new output, for at most the given seconds."""
        with contextlib.suppress(queue.Empty):
            self._apply(*self._news.get(timeout=seconds))
        self._apply_all()
        self._emit()

    def _receive(self, stream: str, data: bytes) -> None:
        self._news.put((stream, data))

    def _apply_all(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._apply(*self._news.get_nowait())

    def _apply(self, stream: str, data: bytes) -> None:
        if stream in self._texts:
            self._texts[stream].waiting += data
        elif stream == DISPLAY:
            self._waiting += self._messages.feed(data)

    def _emit(self, *, is_over: bool = False) -> None:
        while self._waiting:
            message, size = self._waiting[0]
            places = {stream: stream_position(message, stream) or 0 for stream in STREAMS}
            for stream, place in places.items():
                self._print(stream, place)
            if not is_over and any(self._texts[stream].position < place for stream, place in places.items()):
                return
            del self._waiting[0]
            self._show(message, size)
        for stream in STREAMS:
            self._print(stream, None)

    def _print(self, stream: str, until: int | None) -> None:
        for part in self._texts[stream].read_until(until):
            if isinstance(part, str):
                self._write(stream, part)
            elif stream == STREAMS[0]:  # a clear affects all streams; one of them reports it
                for text in self._texts.values():
                    text.clear()
                self._sizes, self._omitted = {}, 0
                self._publisher.clear_output(wait=part)

    def _write(self, stream: str, text: str) -> None:
        if not text:
            return
        fitting = self._texts[stream].fit(text, self._limit)
        target = sys.stderr if stream == "stderr" else sys.stdout
        target.write(text[:fitting])
        target.flush()
        if fitting < len(text):
            self._texts[stream].is_full = True
            self._texts[stream].omitted = len(text) - fitting
            path = self._follower.data.get(stream)
            sys.stderr.write(f"\n… the rest of {stream} is not shown; the whole output is in {path}\n")

    def _show(self, message: DisplayMessage, size: int) -> None:
        output = DisplayedOutput.from_message(message, size, 0, self._follower.timeline.screen)
        if message.get("type") not in ("display", "update") or output is None:
            return
        is_update = message["type"] == "update"
        before = self._sizes.get(output.id, 0)
        replaced = before if is_update and output.id else 0
        if sum(self._sizes.values()) - replaced + size > self._display_limit:
            self._omitted += 1
            return
        self._sizes[output.id] = before - replaced + size
        name = f"jupyter-slurm-{self._scope}-{output.id}" if output.id else None
        # A display of another notebook, or of an earlier kernel, cannot be changed from this kernel: it is shown again.
        is_update = is_update and name in _published
        if name is not None:
            _published.add(name)
        transient = {} if name is None else {"display_id": name}
        self._publisher.publish(output.data, output.metadata, transient=transient, update=is_update)
