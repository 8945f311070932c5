"""Rows of jobs in ``monitor()``."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_slurm.widgets.job_row import row


@pytest.mark.parametrize(
    ("job", "where"),
    [
        (
            {"tasks": {"COMPLETED": 11, "FAILED": 1, "RUNNING": 3}, "nodes": "c[1-3]"},
            "11 COMPLETED, 1 FAILED, 3 RUNNING",
        ),
        ({"tasks": None, "nodes": "c1"}, ">c1<"),
        ({"tasks": None, "nodes": None, "reason": "JobHeldUser", "reason_text": "It is held."}, ">It is held.<"),
    ],
)
def test_a_row_counts_the_tasks_of_an_array_and_says_where_or_why(job: dict[str, Any], where: str) -> None:
    shown: Any = {"id": "7", "state": "RUNNING", "finished": False, "known": True, **job}
    assert where in row(shown)
