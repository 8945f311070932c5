"""Tests of the job card: names given by others are harmless."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.output.rich_output import DisplayedOutput
from jupyter_slurm.client.output.timeline import Timeline
from jupyter_slurm.client.render.job_card import (
    OutputPane,
    as_html,
    as_text,
    headline,
    output_as_html,
)
from jupyter_slurm.client.render.sentences import sentences
from jupyter_slurm.domain.slurm_values import format_duration
from jupyter_slurm.errors import JobFailed, from_problem

NASTY = st.sampled_from(["<img src=x onerror=alert(1)>", "\x1b]0;x\x07", "a\nb", "'\"><script>"]) | st.text(max_size=20)
FIELDS = ("name", "reason", "reason_text", "next_step", "nodes", "partition", "state", "stdout", "label")


def _job(**values: Any) -> dict[str, Any]:
    return {"id": "12", "state": "FAILED", "finished": True, "known": True, "exit_code": 3, **values}


@given(st.fixed_dictionaries(dict.fromkeys(FIELDS, NASTY)), NASTY, st.booleans())
def test_nothing_becomes_markup(
    read_html: Callable[[str], Any], values: dict[str, str], log: str, finished: bool
) -> None:
    job = _job(**values, warnings=[log], error={"detail": log, "hint": log})
    job["finished"] = finished
    timeline = Timeline(50, 50)
    timeline.feed("stdout", 1, log.encode("utf-8", "replace"))
    panes = timeline.blocks(50, values)[0]
    assert not isinstance(panes, DisplayedOutput)
    html = read_html(as_html(job, panes, trouble=log))
    assert html.tags <= {"div", "b", "span", "pre"}
    assert html.attributes <= {"class", "data-job", "data-state", "style", "title"}
    html = read_html(output_as_html(panes))
    assert html.tags <= {"div", "pre", "span"}
    text = as_text(job, panes, trouble=log)
    assert "\x1b" not in text
    assert "\n" not in headline(job)
    text.encode("utf-8")


def test_a_pane_keeps_the_end_and_says_where_the_rest_is() -> None:
    timeline = Timeline(10_000, 50)
    timeline.feed("stdout", 0, b"".join(b"line %d\n" % i for i in range(500)))
    (pane,) = timeline.blocks(50, {"stdout": "/somewhere/stdout"})[0]
    assert len(pane.text) <= 50
    assert pane.text.startswith("line ")
    assert pane.text.endswith("line 499\n")
    assert "/somewhere/stdout" in as_text(_job(), [pane])
    assert "/somewhere/stdout" in as_html(_job(), [pane])


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (65.9, "1:05"), (3661, "1:01:01"), (90_061, "1-01:01:01"), (-3, "0:00")]
)
def test_durations_are_slurms(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


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


LOOK = "See the last lines of its output."


def test_the_last_lines_are_named_only_where_they_are_shown() -> None:
    job = _job(reason="NonZeroExitCode", reason_text="The job ended with exit code 3.", next_step=LOOK)
    assert LOOK not in as_text(job, [])
    assert LOOK not in as_html(job, [])
    assert LOOK in as_text(job, [OutputPane("stdout", "no", False, None)])
    with_log = str(failure(job, "no", "/somewhere/stdout"))
    assert LOOK not in with_log, "they stand above"
    assert with_log.endswith("Read the whole log: job.stdout, job.stderr (/somewhere/stdout).")
    empty = str(failure(job, "", "/somewhere/stdout"))
    assert LOOK not in empty
    assert "empty" in empty
    array = str(failure({**job, "tasks": {"FAILED": 2}}, "", None))
    assert LOOK not in array
    assert array.endswith("job[N].stdout; job.failed() are those to look at")


def test_what_never_ran_has_no_log() -> None:
    job = _job(state="CANCELLED", exit_code=0, start_time=5.0, end_time=5.0)
    said = str(failure(job, "", "/somewhere/stdout"))
    assert "log" not in said
    assert "output" not in said
    assert "ran 0:00" not in said


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ({"state": "COMPLETED", "exit_code": 0}, "exit code 0"),
        ({"state": "FAILED", "exit_code": 3}, "exit code 3"),
        ({"state": "FAILED", "exit_code": 0, "signal": 9}, "ended by signal 9"),
        ({"state": "CANCELLED", "exit_code": 0}, ""),
        ({"state": "CANCELLED", "exit_code": 0, "signal": 15}, "ended by signal 15"),
        ({"state": "TIMEOUT", "exit_code": 0}, ""),
        ({"state": "FAILED", "exit_code": 0}, ""),
        ({"state": "OUT_OF_MEMORY", "exit_code": 0, "signal": 125}, ""),
    ],
)
def test_exit_codes_are_shown_where_they_say_something(values: dict[str, Any], shown: str) -> None:
    assert headline(_job(**{"exit_code": None, **values})).partition(": ")[2] == ", ".join(
        text for text in (values["state"], shown) if text
    )


def test_the_reason_why_it_waited_is_not_mixed_with_the_end() -> None:
    job = _job(state="CANCELLED", reason="Priority", reason_text="The job was cancelled.")
    assert "Priority" not in as_text(job, [])
    waiting = _job(state="PENDING", finished=False, reason="Priority", reason_text="Other jobs come first.")
    assert "Priority: Other jobs come first." in as_text(waiting, [])


def test_the_limit_is_shown_while_it_counts() -> None:
    job = _job(state="RUNNING", finished=False, start_time=1.0, time_limit=7200, exit_code=None)
    assert headline(job).endswith(", limit 2:00:00")
    assert "limit 2:00:00" in as_html(job, [])
    assert "limit" not in headline(_job(time_limit=7200))


def test_what_several_said_are_sentences() -> None:
    assert sentences("squeue is not on the PATH", "Can it be used?", None, " ", "No") == (
        "squeue is not on the PATH. Can it be used? No."
    )
    job = _job(state="RUNNING", finished=False)
    assert "does not answer. Trying again" in as_text(job, [], trouble="It does not answer")


def test_an_answer_that_is_still_to_come_is_one_line() -> None:
    error = {"detail": "sbatch has not answered yet: it is looked for", "hint": "Do not submit it again."}
    job = _job(state="SUBMITTING", finished=False, known=False, exit_code=None, id=None, error=error)
    assert as_text(job, []).split("\n")[1:] == [
        "  sbatch has not answered yet: it is looked for. Do not submit it again."
    ]
