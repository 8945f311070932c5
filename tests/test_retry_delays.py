"""Tests of the delays between attempts: increasing, and short again after a long success."""

from __future__ import annotations

from jupyter_slurm.retry_delays import RetryDelays


def test_delays_increase_up_to_the_longest_and_restart_after_a_long_success() -> None:
    delays = RetryDelays(0.1, 5.0)
    followed = [delays.next() for _ in range(10)]
    assert followed == sorted(followed)
    assert followed[-1] == followed[-2] == 5.0
    assert delays.next(lasted=60.0) == followed[0] == 0.1
    assert delays.next(lasted=1.0) == followed[1], "a short success changes nothing"
    delays.reset()
    assert delays.upcoming == delays.next() == 0.1


def test_random_delays_lie_below_increasing_limits() -> None:
    many = [RetryDelays(1.0, 4.0) for _ in range(200)]
    for limit in (1.0, 2.0, 4.0, 4.0):
        drawn = [delays.next_random() for delays in many]
        assert 0 <= min(drawn) < limit / 4 < limit * 3 / 4 < max(drawn) <= limit
