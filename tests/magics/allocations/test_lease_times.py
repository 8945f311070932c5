"""Times of ``lease=`` of ``%salloc``."""

import pytest

from jupyter_slurm.errors import UsageError
from jupyter_slurm.magics.salloc import _lease


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30m", 1800),
        ("2h", 7200),
        ("1d", 86_400),
        ("1d 12h", 129_600),
        ("1h30", 5400),
        ("60s", 60),
        ("30", 1800),
        ("30:00", 1800),
        ("1:00:00", 3600),
        ("1-12", 129_600),
    ],
)
def test_a_lease_has_the_forms_of_idle_and_of_time(text: str, seconds: int) -> None:
    assert _lease(text) == seconds


@pytest.mark.parametrize("text", ["", "0", "59s", "0:59", "0.5m", "1x", "-5", "soon", "UNLIMITED", "-1", "2h x"])
def test_a_lease_below_a_minute_or_without_end_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        _lease(text)
    assert caught.value.message == f"lease={text} is not a time of at least one minute."
    assert "lease=30m" in (caught.value.hint or "")
