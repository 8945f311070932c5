"""Tests of the order of text, figures and tables, for any order of the job's files."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.client.output.rich_output import DisplayedOutput
from jupyter_slurm.client.output.timeline import Timeline


class Writer:
    """Writer of a runner's three files."""

    def __init__(self) -> None:
        self.files = {"display": b"", "stdout": b"", "stderr": b""}
        self.run(0)

    def run(self, restarts: int, *, anew: bool = False) -> None:
        if anew:
            self.files |= {"stdout": b"", "stderr": b""}
        self.files["display"] += json.dumps({"format": 1, "job": "1", "restarts": restarts}).encode() + b"\n"

    def print(self, text: str, stream: str = "stdout") -> None:
        self.files[stream] += text.encode()

    def note(self, kind: str, text: str = "", name: str | None = None, **more: Any) -> None:
        at = {stream: len(self.files[stream]) for stream in ("stdout", "stderr")}
        message = {"type": kind, "data": {"text/plain": text}, "metadata": {}, "id": name, "at": at, **more}
        self.files["display"] += json.dumps(message).encode() + b"\n"

    def clear(self, *, wait: bool) -> None:
        """Write a clear as the runner does: also into the text."""
        for stream in ("stdout", "stderr"):
            self.print("\x1b[02J\x1b[H" if wait else "\x1b[2J\x1b[H", stream)
        self.note("clear", wait=wait)


def _seen(timeline: Timeline, limit: int = 100_000) -> list[str]:
    """Return the visible blocks: text as ``stream:text``, displays as ``[text]``."""
    seen = []
    for block in timeline.blocks(limit, {"stdout": "/out", "stderr": "/err"}):
        if isinstance(block, DisplayedOutput):
            seen.append(f"[{block.data['text/plain']}]")
        else:
            seen += [f"{pane.stream}:{pane.text}" for pane in block]
    return seen


def _fed(writer: Writer, order: Iterable[str] = ("display", "stdout", "stderr"), limit: int = 10_000) -> Timeline:
    timeline = Timeline(limit, 10_000_000)
    for stream in order:
        timeline.feed(stream, 0, writer.files[stream])
    return timeline


def _story() -> Writer:
    writer = Writer()
    writer.print("one\n")
    writer.print("warning\n", "stderr")
    writer.note("display", "figure 1")
    writer.note("display", "figure 2", "a")
    writer.print("two\n")
    writer.note("display", "figure 3")
    writer.note("update", "figure 2, new", "a")
    writer.print("\r 10%\r100%", "stderr")
    return writer


SEEN = [
    "stdout:one\n",
    "stderr:warning\n",
    "[figure 1]",
    "[figure 2, new]",
    "stdout:two\n",
    "[figure 3]",
    "stderr:100%",
]


def test_text_and_figures_stand_in_the_order_in_which_they_were_made() -> None:
    for order in itertools.permutations(("display", "stdout", "stderr")):
        assert _seen(_fed(_story(), order)) == SEEN


@given(st.lists(st.tuples(st.sampled_from(["display", "stdout", "stderr"]), st.integers(1, 400))))
def test_it_does_not_matter_when_which_piece_comes(pieces: list[tuple[str, int]]) -> None:
    files, timeline = _story().files, Timeline(10_000, 10_000_000)
    done = dict.fromkeys(files, 0)
    for stream, size in [*pieces, *((stream, 10_000) for stream in files)]:
        data = files[stream][done[stream] : done[stream] + size]
        timeline.feed(stream, done[stream], data)
        done[stream] += len(data)
        timeline.blocks(10_000, {})
    assert _seen(timeline) == SEEN


ACTIONS = st.one_of(
    st.tuples(st.just("print"), st.sampled_from(["stdout", "stderr"])),
    st.tuples(st.just("display"), st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("update"), st.sampled_from(["a", "b"])),
    st.tuples(st.just("clear"), st.sampled_from(["now", "later"])),
)


class Notebook:
    """Outputs of a local cell in a front end."""

    def __init__(self) -> None:
        self.outputs: list[list[str]] = []
        self.clears = False

    def clear(self, *, wait: bool) -> None:
        self.clears = True
        if not wait:
            self._clear()

    def _clear(self) -> None:
        if self.clears:
            self.outputs, self.clears = [], False

    def print(self, text: str, stream: str) -> None:
        self._clear()
        # Between two displays the streams are separate, and their relative order is unknown.
        for output in reversed(self.outputs):
            if output[0] == "display":
                break
            if output[0] == stream:
                output[1] += text
                return
        self.outputs.append([stream, text])
        if stream == "stdout" and len(self.outputs) > 1 and self.outputs[-2][0] == "stderr":
            self.outputs[-2:] = reversed(self.outputs[-2:])

    def display(self, text: str, name: str) -> None:
        self._clear()
        self.outputs.append(["display", text, name])

    def update(self, text: str, name: str) -> bool:
        """Update an existing display; others are unknown."""
        places = [output for output in self.outputs if output[0] == "display" and output[2] == name]
        for output in places:
            output[1] = text
        return bool(places)

    def seen(self) -> list[str]:
        return [f"[{out[1]}]" if out[0] == "display" else f"{out[0]}:{out[1]}" for out in self.outputs]


@given(st.lists(ACTIONS, max_size=30), st.lists(st.tuples(st.integers(0, 2), st.integers(1, 300)), max_size=60))
def test_it_looks_as_if_it_had_run_here(actions: list[tuple[str, str]], pieces: list[tuple[int, int]]) -> None:
    writer, notebook = Writer(), Notebook()
    for number, (action, how) in enumerate(actions):
        text = f"{number}\n"
        if action == "print":
            writer.print(text, how)
            notebook.print(text, how)
        elif action == "clear":
            writer.clear(wait=how == "later")
            notebook.clear(wait=how == "later")
        elif action == "display":
            writer.note("display", text, how or None)
            notebook.display(text, how or f"nameless {number}")
        elif notebook.update(text, how):
            writer.note("update", text, how)
    timeline, files = Timeline(10_000, 10_000_000), writer.files
    names, done = list(files), dict.fromkeys(files, 0)
    for which, size in [*pieces, (0, 10**6), (1, 10**6), (2, 10**6)]:
        data = files[names[which]][done[names[which]] : done[names[which]] + size]
        timeline.feed(names[which], done[names[which]], data)
        done[names[which]] += len(data)
    assert _seen(timeline) == notebook.seen()


def test_without_a_place_the_text_stands_before() -> None:
    writer = Writer()
    writer.note("display", "figure", at={"stdout": None, "stderr": None})
    writer.note("display", "figure of an older runner", at=None)
    writer.print("text\n")
    for order in itertools.permutations(("display", "stdout")):
        assert _seen(_fed(writer, order)) == ["stdout:text\n", "[figure]", "[figure of an older runner]"]
    writer.note("clear", wait=False, at=None)
    writer.print("after\n")
    assert _seen(_fed(writer)) == ["stdout:text\nafter\n"]


def test_what_was_cleared_later_waits_for_something_else() -> None:
    writer = Writer()
    writer.print("text\n")
    writer.note("display", "figure")
    writer.clear(wait=True)
    assert _seen(_fed(writer)) == ["stdout:text\n", "[figure]"]
    writer.print("more", "stderr")
    assert _seen(_fed(writer)) == ["stderr:more"]


def test_the_end_is_kept_whole_parts_go_first_and_it_is_said_where_the_rest_is() -> None:
    writer = Writer()
    for number in range(50):
        writer.print(f"{number}\n" * 100)
        writer.note("display", f"figure {number}")
    timeline = _fed(writer, limit=1000)
    blocks = timeline.blocks(1000, {"stdout": "/out"})
    texts = [block for block in blocks[1:] if not isinstance(block, DisplayedOutput)]
    assert blocks[0] == ()
    assert len([block for block in blocks if isinstance(block, DisplayedOutput)]) == 50
    assert [pane.text for panes in texts for pane in panes] == [f"{n}\n" * 100 for n in (47, 48, 49)]
    assert [pane.shortened for panes in texts for pane in panes] == [True, False, False]
    assert "/out" in texts[0][0].note()
    writer.print("x" * 5000)
    assert len(_seen(_fed(writer, limit=1000), 1000)) == 51


def test_who_asks_for_the_end_of_a_long_output_finds_the_figures_in_their_places() -> None:
    writer = Writer()
    writer.print("long ago\n" * 100)
    writer.note("display", "first")
    writer.print("before\n")
    writer.note("display", "last")
    writer.print("after\n")
    for order in (("display", "stdout"), ("stdout", "display")):
        timeline = Timeline(10_000, 10_000)
        for stream in order:
            start = 900 if stream == "stdout" else 0
            timeline.feed(stream, start, writer.files[stream][start:])
        assert _seen(timeline) == ["[first]", "stdout:before\n", "[last]", "stdout:after\n"]


def test_a_run_that_begins_its_output_anew_follows_what_was_shown() -> None:
    writer = Writer()
    writer.print("of the first run\n")
    writer.note("display", "figure 1")
    live = _fed(writer)
    writer.run(1, anew=True)
    writer.print("again\n")
    writer.note("display", "figure 2")
    writer.print("end\n")
    assert _seen(_fed(writer)) == ["[figure 1]", "stdout:again\n", "[figure 2]", "stdout:end\n"]
    for order in (("display", "stdout"), ("stdout", "display")):
        live = Timeline(10_000, 10_000)
        live.feed("display", 0, writer.files["display"][: writer.files["display"].index(b"\n", 60) + 1])
        live.feed("stdout", 0, b"of the first run\n")
        done = {"display": writer.files["display"].index(b"\n", 60) + 1, "stdout": 0}
        for stream in order:
            live.feed(stream, done[stream], writer.files[stream][done[stream] :])
        assert _seen(live) == ["[figure 1]", "stdout:again\n", "[figure 2]", "stdout:end\n"]


def test_a_late_word_on_a_flood_costs_no_text() -> None:
    writer = Writer()
    writer.print("first\n")
    writer.note("display", "figure")
    writer.print("x" * 99 + "\n")
    timeline = Timeline(1000, 10_000)
    flood = writer.files["stdout"] + b"y\n" * 2_000_000
    for at in range(0, len(flood), 262_144):
        timeline.feed("stdout", at, flood[at : at + 262_144])
    timeline.feed("display", 0, writer.files["display"])
    timeline.feed("stdout", len(flood), b"end\n")
    before, *rest = _seen(timeline, 1000)
    assert before.endswith("y\n" * 400)
    assert rest == ["[figure]", "stdout:end\n"]
