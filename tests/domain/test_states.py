"""States of jobs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_slurm.domain.states import COMPACT_CODES, FINAL_STATES, KNOWN_STATES, JobState

PENDING, RUNNING, FINISHED = "pending", "running", "finished"


def phase(state: JobState) -> set[str]:
    answers = {PENDING: state.is_pending, RUNNING: state.is_running, FINISHED: state.is_finished}
    return {name for name, true in answers.items() if true}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("PENDING", PENDING),
        ("RUNNING", RUNNING),
        ("SUSPENDED", RUNNING),
        ("S", RUNNING),
        ("STOPPED", RUNNING),
        ("CONFIGURING", RUNNING),
        ("COMPLETING", RUNNING),
        ("SIGNALING", RUNNING),
        ("STAGE_OUT", RUNNING),
        ("RESIZING", RUNNING),
        ("EXPEDITING", RUNNING),
        ("REQUEUED", PENDING),
        ("REQUEUE_HOLD", PENDING),
        ("REQUEUE_FED", PENDING),
        ("RESV_DEL_HOLD", PENDING),
        ("SPECIAL_EXIT", PENDING),
        ("REVOKED", FINISHED),
        *((name, FINISHED) for name in sorted(FINAL_STATES)),
        (["COMPLETED", "COMPLETING"], RUNNING),
        (["COMPLETED", "STAGE_OUT"], RUNNING),
        (["PREEMPTED", "REQUEUED"], PENDING),
        (["FAILED", "SPECIAL_EXIT"], PENDING),
        (["TIMEOUT", "REQUEUED", "COMPLETING"], RUNNING),
        (["PENDING", "REVOKED"], FINISHED),
        (["RUNNING", "POWER_UP_NODE"], RUNNING),
        (["FAILED", "LAUNCH_FAILED"], FINISHED),
        (["PENDING", "LAUNCH_FAILED"], PENDING),
        (["PENDING", "RECONFIG_FAIL"], PENDING),
    ],
)
def test_where_a_job_stands(text: str | list[str], expected: str) -> None:
    state = JobState.parse(text)
    assert phase(state) == {expected}
    assert {state.name, *state.flags} <= KNOWN_STATES


def test_cancelled_by_somebody() -> None:
    state = JobState.parse("CANCELLED by 1000")
    assert (state.name, state.by, state.is_finished) == ("CANCELLED", 1000, True)


@pytest.mark.parametrize("text", ["CANCELLED+", "cancelled", "CA", ["CANCELLED"]])
def test_other_ways_to_write_it(text: str | list[str]) -> None:
    assert JobState.parse(text).name == "CANCELLED"


@pytest.mark.parametrize("text", ["HIBERNATING", "?", "", "CANCELLED by root", ["RUNNING", "DREAMING"]])
def test_unknown_states_keep_their_name_and_are_nothing_final(text: str | list[str]) -> None:
    state = JobState.parse(text)
    assert not state.is_finished
    if isinstance(text, str) and text:
        assert str(state) == text


def test_a_known_base_is_found_beside_an_unknown_flag() -> None:
    state = JobState.parse(["DREAMING", "RUNNING"])
    assert (state.name, state.flags, state.is_running) == ("RUNNING", ("DREAMING",), True)


def test_every_compact_code_is_a_known_state() -> None:
    assert all(JobState.parse(code) == JobState(name) for code, name in COMPACT_CODES.items())


@given(st.lists(st.sampled_from(sorted(KNOWN_STATES)), min_size=1, max_size=5, unique=True))
def test_round_trip(words: list[str]) -> None:
    state = JobState.parse(words)
    assert {state.name, *state.flags} == set(words)
    assert JobState.parse(str(state)) == state
    assert len(phase(state)) <= 1


@given(st.text() | st.lists(st.text()))
def test_nothing_raises(text: str | list[str]) -> None:
    state = JobState.parse(text)
    assert state.name
    assert len(phase(state)) <= 1
