"""Test of the one form of times."""

from __future__ import annotations

import time

import pytest

from jupyter_slurm.domain.clock_text import clock_text


@pytest.mark.parametrize(
    ("at", "seconds", "expected"),
    [
        ((2026, 11, 26, 0, 0, 5), True, "00:00:05"),
        ((2026, 11, 26, 16, 4, 0), False, "16:04"),
        ((2026, 11, 25, 23, 59, 0), False, "2026-11-25 23:59"),  # a minute ago
        ((2026, 11, 27, 1, 0, 0), False, "2026-11-27 01:00"),
        ((2025, 11, 26, 16, 4, 0), True, "2025-11-26 16:04:00"),  # the same day of another year
    ],
)
def test_a_time_of_another_day_has_its_date(at: tuple[int, ...], seconds: bool, expected: str) -> None:
    now = time.mktime((2026, 11, 26, 0, 1, 0, 0, 0, -1))
    moment = time.mktime((*at, 0, 0, -1))  # type: ignore[arg-type]
    assert clock_text(moment, now, has_seconds=seconds) == expected
