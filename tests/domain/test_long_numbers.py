"""Numbers of a hostile cluster that have more digits than Python reads: they are no numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.domain.advice.waiting_limits import parse_licences
from jupyter_slurm.domain.ids import JobId
from jupyter_slurm.domain.queries.job_usage import _SSTAT, parse_usage
from jupyter_slurm.domain.queries.output_paths import expand_pattern
from jupyter_slurm.domain.queries.start_estimate import parse_start_estimate
from jupyter_slurm.domain.slurm_values import parse_exit, parse_gres
from jupyter_slurm.domain.staging_rules import parse_equal, parse_listing
from jupyter_slurm.services.slurm.client import job_memory

LONG = "9" * 5000


def _used(text: str) -> Any:
    usage = parse_usage("|".join(text if name.startswith("TRESUsageInTot") else "" for name in _SSTAT).encode())
    assert usage is not None
    return usage.cpu, usage.memory


@pytest.mark.parametrize(
    ("parse", "text", "expected"),
    [
        (lambda text: job_memory({"MinJobAge": text}), "# sec", 0.0),
        (parse_exit, "#", (None, None)),
        (parse_exit, "#:#", (None, None)),
        (lambda text: parse_gres(text)[0].indices, "gpu:a:2(IDX:#,1-#,3)", (3,)),
        (parse_licences, "LicenseName=a Total=# Free=#", {}),
        (lambda text: expand_pattern(text, job=JobId(4)), "%#j", f"/%{LONG}j"),
        (lambda text: parse_start_estimate(text).cpus, "sbatch: Job 5 to start at 1785000000 using # processors", None),
        (_used, "cpu=#:00:00,mem=#", (0.0, None)),
        (lambda text: parse_equal(text.encode()), ".f          # x name", set()),
        (lambda text: parse_listing(text.encode()), ">f+++++++++ # 2026/01/01-00:00:00 name", []),
    ],
)
def test_a_number_without_end_is_no_number(parse: Callable[[str], Any], text: str, expected: Any) -> None:
    assert parse(text.replace("#", "7")) != expected, "a short number is read"
    assert parse(text.replace("#", LONG)) == expected
