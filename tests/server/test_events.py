"""Tests of the Jupyter events for the agent's events."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_slurm.server import events
from jupyter_slurm.server.events import Events

ENDED = {"state": "COMPLETED", "finished": True}


class Told:
    """Emitted events."""

    def __init__(self) -> None:
        self.seen: list[dict[str, Any]] = []
        self._events = Events(lambda *, schema_id, data: self.seen.append(data))

    def job(self, **more: Any) -> int:
        """Report a job; return the number of events so far."""
        self._events.handle_event(
            "job", {"cluster": "c", "key": "k", "id": "1", "state": "RUNNING", "finished": False, **more}
        )
        return len(self.seen)


def test_each_change_of_state_is_told_once_also_after_the_end() -> None:
    told = Told()
    assert [told.job(), told.job(reason="x"), told.job(session={"state": "ready"}), told.job(**ENDED)] == [1, 1, 2, 3]
    assert [told.job(**ENDED), told.job(**ENDED, exit_code=0)] == [3, 3], "a record that is looked at again"
    assert told.job() == 4, "it was requeued"
    assert told.job(**ENDED) == 5
    assert told.job(key=None, submit_time=1.0, **ENDED) == 6, "another job, of nobody that we know"
    assert told.job(key=None, submit_time=2.0, **ENDED) == 7, "its number, given again"
    assert told.job(cluster="d", key=None, submit_time=2.0, **ENDED) == 8


def test_the_jobs_of_long_ago_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "_MAX_REMEMBERED_JOBS", 2)
    told = Told()
    assert [told.job(key=key) for key in "abacab"] == [1, 2, 2, 3, 3, 4]
