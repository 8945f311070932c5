"""How a job is shown: everything that somebody else may have named is harmless."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.errors import JobFailed, from_problem
from jupyter_slurm.handles.card import Pane, as_html, as_text, duration, headline
from jupyter_slurm.handles.failure import failure
from jupyter_slurm.handles.terminal import Screen

NASTY = st.sampled_from(["<img src=x onerror=alert(1)>", "\x1b]0;x\x07", "a\nb", "'\"><script>"]) | st.text(max_size=20)
FIELDS = ("name", "reason", "reason_text", "next_step", "nodes", "partition", "state", "stdout", "label")


def _job(**values: Any) -> dict[str, Any]:
    return {"id": "12", "state": "FAILED", "finished": True, "known": True, "exit_code": 3, **values}


class _Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@given(st.fixed_dictionaries(dict.fromkeys(FIELDS, NASTY)), NASTY, st.booleans())
def test_nothing_becomes_markup(values: dict[str, str], log: str, finished: bool) -> None:
    job = _job(**values, warnings=[log], error={"detail": log, "hint": log})
    job["finished"] = finished
    screen = Screen(50)
    screen.feed(log.encode("utf-8", "replace"))
    panes = [Pane.of("stdout", screen, 1, values["stdout"], 50)]
    parser = _Tags()
    parser.feed(as_html(job, panes, trouble=log))
    assert parser.tags <= {"div", "b", "span", "pre"}
    assert parser.attributes <= {"class", "style", "title"}
    text = as_text(job, panes, trouble=log)
    assert "\x1b" not in text
    assert "\n" not in headline(job)
    text.encode("utf-8")


def test_a_pane_keeps_the_end_and_says_where_the_rest_is() -> None:
    screen = Screen(10_000)
    screen.feed(b"".join(b"line %d\n" % i for i in range(500)))
    pane = Pane.of("stdout", screen, 0, "/somewhere/stdout", 50)
    assert len(pane.text) <= 50
    assert pane.text.startswith("line ")
    assert pane.text.endswith("line 499\n")
    assert "/somewhere/stdout" in as_text(_job(), [pane])
    assert "/somewhere/stdout" in as_html(_job(), [pane])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3661, "1:01:01"), (90_061, "1-01:01:01"), (-3, "0:00")]
)
def test_durations_are_slurms(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_a_controller_that_does_not_answer_is_not_an_end() -> None:
    text = as_text(_job(state="RUNNING", finished=False, known=False, unknown_since=1.0), [])
    assert "RUNNING" in text
    assert "has not answered since" in text


def test_a_failure_says_state_reason_log_and_next_step_and_travels() -> None:
    job = _job(reason="TimeLimit", reason_text="It reached its time limit.", next_step="Ask for more with --time.")
    error = failure(job, "epoch 1\n\x1b]0;x\x07epoch 2", "/somewhere/stderr")
    lines = error._render_traceback_()
    shown = "\n".join(lines)
    for part in ("FAILED", "exit code 3", "It reached its time limit.", "    epoch 1", "epoch 2", "/somewhere/stderr"):
        assert part in shown
    assert lines[-1] == "Ask for more with --time."
    assert "\x1b" not in shown
    again = from_problem(error.to_problem())
    assert isinstance(again, JobFailed)
    assert again.details["exit_code"] == 3
