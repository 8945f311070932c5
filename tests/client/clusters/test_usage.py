"""Tests of the cost of a period, by user and place."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from jupyter_slurm.client.clusters.usage import Usage, moment
from jupyter_slurm.errors import UsageError


def _sum(user: str, partition: str, gpu_type: str, cpu_hours: float, gpu_hours: float) -> dict[str, Any]:
    seconds = {"cpu_seconds": int(cpu_hours * 3600), "gpu_seconds": int(gpu_hours * 3600)}
    return {"user": user, "account": "p", "partition": partition, "qos": "", "gpu_type": gpu_type, "jobs": 2, **seconds}


SUMS = [_sum("ana", "gdl", "v100", 10, 2), _sum("<b>", "dev", "", 1, 0), _sum("ana", "dev", "k40", 4, 4)]
COST = {"unit": "UA", "cpu_hour": 1, "gpu_hour": {"v100": 4}, "partitions": {"gdl": 2}}
LIMITS = [
    {
        "scope": "account",
        "name": "p",
        "kind": "minutes",
        "resource": "gres/gpu",
        "most": 600,
        "used": 90,
        "partition": "",
    },
    {"scope": "account", "name": "p", "kind": "in-use", "resource": "cpu", "most": 8, "used": 1, "partition": ""},
]


def _usage(cost: Any = COST) -> Usage:
    told = {"start": 0, "end": 86400, "user": None, "accounts": ["p"], "sums": SUMS, "jobs": [], "left_out": 0}
    return Usage({**told, "cost": cost}, LIMITS)


def test_the_site_s_price_counts_by_type_of_gpu_and_partition() -> None:
    used = _usage()
    assert used.by("user").rows == [["ana", 4, 14.0, 6.0, 40.0], ["<b>", 2, 1.0, 0.0, 1.0]]
    assert used.by("partition", "gpu").rows[0] == ["gdl", "v100", 2, 10.0, 2.0, 36.0]
    assert used.by("gpu")["UA"] == [36.0, 4.0, 1.0]
    assert used.left.rows == [["account", "p", "GPUs", 10.0, 1.5, 8.5]]
    assert "&lt;b&gt;" in used._repr_html_()


def test_where_nobody_says_what_it_costs_the_use_alone_is_told() -> None:
    assert _usage(None).by("user").columns == ["USER", "JOBS", "CPU HOURS", "GPU HOURS"]


def test_times_are_dates_of_here() -> None:
    first = datetime.datetime(2026, 11, 1).timestamp()
    assert [moment(told) for told in ("2026-11-01", datetime.date(2026, 11, 1), first)] == [first] * 3
    with pytest.raises(UsageError, match="is not a date"):
        moment("01/11/2026")
