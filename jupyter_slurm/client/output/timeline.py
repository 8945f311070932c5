"""Timeline of a job's text and displays, in their order of creation."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.output.rich_output import DisplayedOutput, DisplayMessages, stream_position
from jupyter_slurm.client.output.text_stream import TextStream
from jupyter_slurm.client.render.job_card import OutputPane, output_path
from jupyter_slurm.client.render.rank_fold import RankedScreen, open_rank
from jupyter_slurm.client.render.terminal import Screen

if TYPE_CHECKING:
    from jupyter_slurm.client.output.rich_output import DisplayMessage, Screening
    from jupyter_slurm.domain import api_types as api

__all__ = ["DISPLAY", "STREAMS", "Panes", "Timeline", "omitted_text"]

STREAMS = ("stdout", "stderr")
DISPLAY = "display"
_MAX_DISPLAYS = 1000  # displays

Panes = tuple[OutputPane, ...]
"""Text between two displays: one pane for each stream."""


class Timeline:
    """The streams of a job, in one order.

    Parameters
    ----------
    limit : int
        Characters kept of each text stream: its end.
    display_limit : int
        Bytes kept of figures, tables and other displays; later displays are counted (:attr:`omitted`).
    has_ranks : bool
        Whether the text is labelled with the ranks of the job.
    """

    def __init__(
        self, limit: int, display_limit: int, *, has_ranks: bool = False, screen: Screening = lambda *display: display
    ) -> None:
        self.screen = screen
        self.omitted = 0
        self.is_full = False  # the job itself kept no further displays
        self._texts = {stream: TextStream(limit, RankedScreen if has_ranks else Screen) for stream in STREAMS}
        self._places: list[tuple[int | None, ...]] = []  # positions at which the text is divided
        self._displays: list[DisplayedOutput] = []
        self._removed_ids: list[str] = []  # ids of cleared displays, whose updates are dropped
        self._limit = display_limit
        self._messages = DisplayMessages()
        self._read = 0  # bytes read of the display file
        self._run: tuple[Any, Any] | None = None
        self._is_new_run = False
        self._clears: list[int] = []  # numbers of parts to clear at the next output

    def feed(self, stream: str, offset: int, data: bytes) -> bytes:
        """Add a piece of one of the files; return its form for text-only places."""
        if stream == DISPLAY:
            if offset < self._read:  # the file was rewritten
                self._messages, self._displays, self.omitted, self.is_full = DisplayMessages(), [], 0, False
            self._read = offset + len(data)
            texts = [self._apply(*message) for message in self._messages.feed(data)]
            return "".join(texts).encode("utf-8", "replace")
        self._texts[stream].feed(offset, data)
        self._apply_clear()
        return data

    def blocks(self, limit: int, data: api.Job | None) -> list[Panes | DisplayedOutput]:
        """Return the visible blocks in order. The first block is text, and may be empty; no other block is.

        Parameters
        ----------
        limit : int
            Characters, shared by the streams.
        data : mapping or None
            The job: the paths of its whole streams, and the visible rank.
        """
        used = [stream for stream in STREAMS if self._texts[stream].has_any(0)]
        shown = {stream: self._texts[stream].visible_parts(limit // len(used)) for stream in used}
        paths = {stream: output_path(data, stream) if data else None for stream in used}
        rank = open_rank(data) if data else None
        found: list[Panes | DisplayedOutput] = []
        waiting = list(reversed(self._displays))
        for number in range(len(self._places) + 1):
            panes = tuple(
                OutputPane(stream, *shown[stream][number], paths[stream], rank)
                for stream in used
                if number in shown[stream]
            )
            if panes or not number:
                found.append(panes)
            while waiting and waiting[-1].after <= number:
                found.append(waiting.pop())
        return found

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield all kept output as text: stream by stream, between the displays."""
        for block in self.blocks(2**62, None):
            if isinstance(block, DisplayedOutput):
                yield DISPLAY, block.text
            else:
                for pane in block:
                    yield pane.stream, pane.text

    def _apply(self, message: DisplayMessage, size: int) -> str:
        kind = message.get("type")
        if kind is None and "format" in message:
            run = message.get("job"), message.get("restarts")
            self._is_new_run |= self._run is not None and self._run != run
            self._run = run
        elif kind == "clear":
            self._divide(message)
            self._clears.append(len(self._places))
            if message.get("wait"):
                self._apply_clear()
            else:
                self._clear(len(self._places))
        elif kind == "full":
            self.is_full = True
        elif kind in ("display", "update"):
            return self._show(message, size, is_update=kind == "update")
        return ""

    def _show(self, message: DisplayMessage, size: int, *, is_update: bool) -> str:
        output = DisplayedOutput.from_message(message, size, 0, self.screen)
        if output is None:
            return ""
        if not is_update:
            self._clear(max(self._clears, default=0))
        elif output.id in self._removed_ids:
            return ""
        places = [n for n, shown in enumerate(self._displays) if is_update and shown.id and shown.id == output.id]
        kept = sum(shown.size for n, shown in enumerate(self._displays) if n not in places)
        if kept + size * max(1, len(places)) > self._limit or (not places and len(self._displays) >= _MAX_DISPLAYS):
            self.omitted += 1
            return ""
        if places:
            for n in places:
                self._displays[n] = DisplayedOutput(
                    output.id, output.data, output.metadata, size, self._displays[n].after
                )
        else:  # applies to an update as well: its first form was left out
            self._divide(message)
            self._removed_ids = [name for name in self._removed_ids if name != output.id]
            output.after = len(self._places) - 1
            self._displays.append(output)
        return output.text

    def _divide(self, message: DisplayMessage) -> None:
        """Divide the text at the position of a message, once for each position."""
        place = tuple(stream_position(message, stream) for stream in STREAMS)
        if not self._places or self._places[-1] != place or self._is_new_run:
            for stream, at in zip(STREAMS, place, strict=True):
                self._texts[stream].divide(at, is_new_run=self._is_new_run)
            self._places.append(place)
            self._is_new_run = False

    def _apply_clear(self) -> None:
        """Perform a clear that waits for new output, if the output has arrived."""
        due = [parts for parts in self._clears if any(text.has_any(parts) for text in self._texts.values())]
        self._clear(max(due, default=0))

    def _clear(self, parts: int) -> None:
        """Drop the first parts of the text, and the displays so far."""
        if parts:
            for text in self._texts.values():
                text.drop(parts)
            self._removed_ids = [*self._removed_ids, *(shown.id for shown in self._displays if shown.id)][
                -_MAX_DISPLAYS:
            ]
            self._displays = []
            self._clears = [later - parts for later in self._clears if later > parts]
            del self._places[:parts]


def omitted_text(count: int, folder: str | None, timeline: Timeline) -> str:
    """Return a note with the path of the displays and updates above the limit."""
    are = f"they are in {folder}; later ones were not kept" if timeline.is_full else f"all are in {folder}"
    return f"{count} figures, tables or updates of them are not shown; {are}."
