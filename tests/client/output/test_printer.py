"""Tests of the printer of a remote cell: what counts towards the limits of a notebook's output."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.client.output.follower import Follower
from jupyter_slurm.client.output.printer import Printer
from jupyter_slurm.runner.cell.display import CLEAR_LATER

LIMIT = 1000


class Notebook:
    """A notebook and the files of its cell; ``shown`` has what the front end received, in order."""

    def __init__(self) -> None:
        self.shown: list[str] = []
        self.display_pub = SimpleNamespace(publish=self._publish, clear_output=self._clear)
        timeline = SimpleNamespace(texts=list, screen=lambda *display: display, is_full=False)
        follower = SimpleNamespace(
            timeline=timeline, data={"stderr": "/job/stderr", "folder": "/job"}, listen=self._listen, unlisten=bool
        )
        self.printer = Printer(cast(Follower, follower), self, "scope", LIMIT, LIMIT)
        self._written = {"stdout": 0, "stderr": 0}

    def _listen(self, listener: Any, **_: Any) -> None:
        self._send = listener

    def _publish(self, data: Any, metadata: Any, *, transient: Any, update: bool) -> None:
        self.shown.append(f"{'update ' if update else ''}{data['text/plain'][:8]}")

    def _clear(self, *, wait: bool) -> None:
        self.shown.append("clear")

    def print(self, text: str, stream: str = "stderr") -> None:
        self._written[stream] += len(text)
        self._send(stream, text.encode())

    def show(self, text: str, kind: str = "display", name: str | None = None) -> None:
        message = {"type": kind, "data": {"text/plain": text}, "metadata": {}, "id": name, "at": self._written}
        self._send("display", json.dumps(message).encode() + b"\n")

    def clear(self) -> None:
        for stream in ("stdout", "stderr"):
            self.print(CLEAR_LATER, stream)


def test_a_progress_bar_counts_as_its_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = Notebook()
    with notebook.printer:
        for step in range(300):
            notebook.print(f"\r{step:3}% " + "#" * 50)
            notebook.printer.print_for(0)
        notebook.print("\nwarning\r")
        notebook.printer.print_for(0)
        notebook.print("\nthe end\r\n")
    assert capsys.readouterr().err.endswith(f"\r299% {'#' * 50}\nwarning\r\nthe end\r\n")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("x" * 300 + "\n", LIMIT),
        ("x" * 299 + "\r\n", LIMIT + 3),  # the carriage returns are not visible
        ("\r" + "x" * 300, 64 * LIMIT),
    ],
    ids=["lines", "lines with carriage returns", "overwritten"],
)
def test_lines_count_and_so_does_far_too_much_that_is_overwritten(
    capsys: pytest.CaptureFixture[str], text: str, shown: int
) -> None:
    notebook = Notebook()
    with notebook.printer:
        for _ in range(400):
            notebook.print(text)
            notebook.printer.print_for(0)
    printed, _, rest = capsys.readouterr().err.partition("\n… the rest of stderr is not shown")
    assert printed == (text * 400)[:shown]
    assert "the whole output is in /job/stderr" in rest


def test_figures_that_a_clear_removed_do_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = Notebook()
    with notebook.printer:
        for epoch in range(20):
            notebook.clear()
            notebook.show(f"figure{epoch:2}{'x' * 400}")
            notebook.printer.print_for(0)
    assert notebook.shown == [said for epoch in range(20) for said in ("clear", f"figure{epoch:2}")]
    assert capsys.readouterr().err == ""


def test_an_update_replaces_the_size_of_its_display(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = Notebook()
    with notebook.printer:
        notebook.show("begin" + "x" * 400, name="bar")
        for _ in range(20):
            notebook.show("went on" + "x" * 400, "update", "bar")
        notebook.show("one more" + "x" * 800)
    assert notebook.shown == ["beginxxx", *["update went onx"] * 20]
    assert "1 figures, tables or updates of them are not shown" in capsys.readouterr().err
