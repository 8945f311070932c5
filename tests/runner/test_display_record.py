"""Tests of the display file of a cell that runs for hours: its updates leave room for the figures at its end."""

from __future__ import annotations

import itertools
import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import comm
import pytest

from jupyter_slurm.runner.cell import display, ipython
from jupyter_slurm.runner.cell.display import DisplayRecord


def test_updates_leave_half_of_the_record_to_new_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(display, "MAX_RECORD_BYTES", 200_000)
    record = DisplayRecord(str(tmp_path / "display.jsonl"), "12", 0)
    record.show({"text/html": "begin"}, {}, "bar")
    for _ in range(500):
        record.show({"text/html": "x" * 1000}, {}, "bar", update=True)
    for _ in range(50):
        record.show({"text/html": "figure" + "x" * 1000}, {})
    record.close()
    lines = (tmp_path / "display.jsonl").read_text().splitlines()
    kept = [json.loads(line).get("type") for line in lines]
    assert (kept.count("display"), kept.count("full")) == (51, 0)
    updates = sum(len(line) + 1 for line in lines if json.loads(line).get("type") == "update")
    assert 98_000 < updates <= 100_000
    assert capsys.readouterr().err.count("No more updates of figures and progress bars are kept") == 1


class Hours:
    """Hours of a cell with a progress bar, in a moment: a clock, and timers that move it."""

    def __init__(self) -> None:
        self.now = 0.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def monotonic(self) -> float:
        return self.now

    def timer(self, wait: float, function: Callable[..., None], kwargs: dict[str, Any]) -> Any:
        self.due.append((self.now + wait, lambda: function(**kwargs)))
        return SimpleNamespace(start=bool)

    def ring(self) -> None:
        self.now, function = self.due.pop(0)
        function()


def test_pictures_of_a_widget_come_less_often_with_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, taken = Hours(), list[float]()
    monkeypatch.setattr(ipython, "time", clock)
    monkeypatch.setattr(ipython, "threading", SimpleNamespace(Timer=clock.timer, RLock=threading.RLock))
    monkeypatch.setattr(comm, "create_comm", comm.create_comm)
    bar = SimpleNamespace(value=0)
    monkeypatch.setitem(sys.modules, "ipywidgets.widgets.widget", SimpleNamespace(_instances={"m": bar}))
    widgets = ipython.Widgets(SimpleNamespace(show=lambda *_: taken.append(clock.now)))

    def run_for(hours: float) -> list[float]:
        begun = clock.now
        taken.clear()
        while clock.now < begun + hours * 3600:
            bar.value += 1
            widgets.record_changes()
            clock.ring()
        return [at - begun for at in taken]

    widgets.show({"application/vnd.jupyter.widget-view+json": {"model_id": "m"}})
    pictures = run_for(10)
    assert sum(at < 60 for at in pictures) > 200, "a few times a second at first"
    assert len(pictures) < 3000
    assert max(later - at for at, later in itertools.pairwise(pictures)) == pytest.approx(60)
    widgets.start_cell()  # another cell
    bar.value += 1
    widgets.record_changes()
    assert not clock.due
    assert sum(at < 60 for at in run_for(0.1)) > 200
