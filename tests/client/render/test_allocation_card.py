"""Tests of the times on the cards of allocations and sessions."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest

from jupyter_slurm.client.allocations.allocation import Allocation
from jupyter_slurm.client.render.job_card import as_html, as_text, headline
from jupyter_slurm.client.sessions.session import Session
from jupyter_slurm.magics.srun import report_allocation


def _held(**values: Any) -> dict[str, Any]:
    fixed = {"id": "12", "kind": "allocation", "label": "gpu", "name": "allocation", "known": True, "lease": 1800.0}
    return {**fixed, "state": "RUNNING", "finished": False, "nodes": "dgx01", "time_limit": 3600, **values}


def test_what_pends_says_when_it_could_start_and_what_runs_how_long_yet() -> None:
    pending = as_text(_held(state="PENDING", nodes=None, estimated_start=time.time() + 7200, reason="Resources"), [])
    assert pending.startswith("Allocation 12 (gpu): PENDING")
    assert "Earliest start, by Slurm's estimate: " in pending
    assert " left" not in pending
    running = as_text(_held(start_time=time.time() - 60, gpus=2), [])
    assert "on dgx01" in running
    assert "2 GPUs" in running
    assert "58:5" in running
    assert "after 30 min without a step or kernel" in running
    assert "Warning" not in running


def test_its_end_is_told_before_it_comes_and_nothing_after() -> None:
    ending = _held(start_time=time.time() - 3400)
    for shown in (as_text(ending, []), as_html(ending, [])):
        assert "Warning: it ends in 3:1" in shown
    assert "Warning" not in as_text(_held(start_time=time.time() - 3400, time_limit=None), [])
    over = as_text(_held(state="TIMEOUT", finished=True, start_time=1.0, end_time=3601.0), [])
    assert " left" not in over
    assert "Used by" not in over


def test_a_session_says_when_it_could_start_and_that_it_ends_soon() -> None:
    steps = [{"state": "submitted", "time": 1000.0}]
    known = {
        "state": "ready",
        "message": "",
        "url": "http://127.0.0.1:8000/",
        "path": "/",
        "idle": 3600.0,
        "steps": steps,
    }
    session = {**known, "command": None, "ends": None}
    pending = _held(
        kind="session", state="PENDING", estimated_start=time.time() + 7200, session={**session, "state": "pending"}
    )
    where: Any = None
    assert "\n  Earliest start, by Slurm's estimate: " in as_text(pending, [])
    assert "; earliest start" not in Session(where, pending).history()
    assert ", earliest start, by Slurm's estimate: " in Session(where, pending).history()
    running = _held(kind="session", start_time=time.time() - 3400, session=session)
    assert "Warning" not in as_text(running, [])
    assert Session(where, running).near_end() == ""
    running["session"] = {**session, "ends": time.time() + 200}
    for shown in (as_text(running, []), as_html(running, []), Session(where, running).near_end()):
        assert re.search("Warning: it ends in 3:(20|19), with all that runs in it", shown)
    running["session"]["resume"] = 2
    assert "The memory of its kernels will be lost" in as_text(running, [])


def test_a_cell_says_where_it_runs_and_that_this_ends_soon(capsys: pytest.CaptureFixture[str]) -> None:
    where: Any = None  # no request: the known data is fresh
    report_allocation(Allocation(where, _held(start_time=time.time() - 600)))
    assert re.fullmatch(r"Allocation 12 \(gpu\), (50:00|49:59) left\n", capsys.readouterr().out)
    report_allocation(Allocation(where, _held(start_time=time.time() - 3400)))
    said = capsys.readouterr()
    assert re.fullmatch(r"Allocation 12 \(gpu\), 3:(20|19) left\n", said.out)
    assert re.fullmatch(r"Warning: it ends in 3:(20|19), with all that runs in it.\n", said.err)


def test_what_was_given_back_looks_like_no_failure() -> None:
    given = _held(start_time=time.time() - 90, released="asked")
    for shown in (as_text(given, []), as_html(given, [])):
        assert "being released" in shown
        assert "RUNNING" not in shown.replace('data-state="RUNNING"', "")  # for JupyterLab, not for people
        assert "Used by" not in shown
    over = {"finished": True, "released": "asked", "start_time": 1000.0, "end_time": 1750.0, "signal": 15}
    told = {"reason": "CANCELLED", "reason_text": "The job was cancelled.", "next_step": "Look why."}
    text = as_text(_held(**over, **told, state="CANCELLED"), [])
    assert text == "Allocation 12 (gpu): released, on dgx01, used 12:30 of 1:00:00"
    assert "error-color" not in as_html(_held(**over, **told, state="CANCELLED"), [])
    late = as_text(_held(**over, **told, state="TIMEOUT"), [])
    assert "TIMEOUT" in late
    assert "Look why." in late
    forgotten = as_text(_held(**{**over, "released": "forgotten"}, state="CANCELLED"), [])
    assert forgotten.endswith("Its kernel was killed and did not start again, so it was released.")
    never = _held(**{**over, "start_time": 5.0, "end_time": 5.0, "signal": None}, state="CANCELLED", nodes=None)
    assert as_text(never, []) == "Allocation 12 (gpu): released"
    assert "error-color" in as_html(_held(state="FAILED", finished=True, released=None), [])


def test_a_step_is_called_one() -> None:
    assert headline({"id": "12.0", "allocation": "key", "name": "hostname", "state": "RUNNING"}).startswith(
        "Step 12.0 (hostname): RUNNING"
    )
