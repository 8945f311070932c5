"""Tests of answers that no Slurm prints: a cluster that means harm must not hold the agent."""

from __future__ import annotations

import time

import pytest

from jupyter_slurm.domain.queries import tables
from jupyter_slurm.domain.queries.job_actions import refusals
from jupyter_slurm.domain.queries.limits import parse_limits
from jupyter_slurm.domain.queries.start_estimate import StartEstimate, parse_start_estimate


@pytest.mark.parametrize(
    "line",
    [
        "ClusterName=c" + " Account=a UserName=u Partition=p" * 500,
        "ClusterName=c Account=a UserName= Partition= Priority=0 GrpTRES=" + "a" * 50_000,
        "QOS=few UsageRaw=0 GrpTRES=" + "cpu" * 20_000,
        "QOS=few" + "(1" * 20_000,
        "QOS=few UsageRaw=0 User Limits=" + " a(" * 20_000,
    ],
    ids=lambda line: line[:70],
)
def test_lines_of_limits_are_read_at_once(line: str) -> None:
    begun = time.process_time()
    assert parse_limits(line.encode(), "ann", "c", [], ["few"]).limits == ()
    assert time.process_time() - begun < 1.0


@pytest.mark.parametrize("text", ["job " * 30_000, "job start at " * 20_000 + "\n" + "start at " * 20_000])
def test_an_estimate_is_read_at_once(text: str) -> None:
    begun = time.process_time()
    assert parse_start_estimate(text).cpus is None
    assert time.process_time() - begun < 1.0


def test_the_first_start_after_a_job_is_the_start() -> None:
    text = "start at 3, job of job 7 to start at 5 using 4 processors, start at 6"
    assert parse_start_estimate(text) == StartEstimate(5, 4)


@pytest.mark.parametrize("act", ["cancel", "hold"])
def test_refusals_are_read_at_once(act: str) -> None:
    begun = time.process_time()
    assert refusals(act, ["12"], "1" * 100_000 + "\n" + " for job x" * 20_000 + "\n12: Invalid job id") == (
        {} if act == "cancel" else {"12": "Invalid job id"}
    )
    assert time.process_time() - begun < 1.0


def test_zeros_of_a_table_are_found_at_once() -> None:
    begun = time.process_time()
    assert [bool(tables._ZERO.fullmatch(cell)) for cell in ("", " ", " 0.00 ", "(null)", "-", "0.1")] == [True] * 5 + [
        False
    ]
    assert not tables._ZERO.fullmatch(" " * 50_000 + "1")
    assert time.process_time() - begun < 1.0
