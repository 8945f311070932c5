"""Advice of a site, in addition to the rules that Slurm enforces."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_slurm.domain.advice.site_advice import advised
from jupyter_slurm.domain.options.request import Request

SKYNET = {"cpus_per_gpu": {"default": 7, "a40": 15}}


@pytest.mark.parametrize(
    ("chosen", "each"),
    [
        ({"gpus": "2", "cpus-per-task": "16"}, "8"),
        ({"gpus": "1", "cpus-per-task": "7"}, None),
        ({"gpus": "a40:1", "cpus-per-task": "15"}, None),
        ({"gpus": "a40:1", "cpus-per-task": "16"}, "16"),
        ({"gpus": "1", "cpus-per-task": "15", "constraint": "a40"}, None),
        ({"gpus-per-node": "rtx_6000:2", "nodes": "2", "ntasks-per-node": "2", "cpus-per-task": "9"}, "9"),
        ({"gpus-per-node": "2", "nodes": "2", "ntasks": "4", "cpus-per-task": "7"}, None),
        ({"gpus-per-task": "1", "ntasks": "4", "cpus-per-task": "12"}, "12"),
        ({"gres": "gpu:1", "cpus-per-task": "20"}, "20"),
        ({"gres": "gpu", "ntasks": "20"}, "20"),
        ({"cpus-per-gpu": "10", "gpus": "4"}, "10"),
        ({"cpus-per-task": "64"}, None),  # no GPUs: no other user waits for them
        ({"gpus": "0", "cpus-per-task": "64"}, None),
        ({"gpus": "1", "nodes": "1-4", "cpus-per-task": "64"}, None),  # the number of tasks is open
        ({"gpus": "1", "exclusive": None, "cpus-per-task": "64"}, None),
        ({"gpus-per-socket": "1", "cpus-per-task": "64"}, None),
        ({"gpus": "x y", "cpus-per-task": "?"}, None),
    ],
)
def test_more_cpus_a_gpu_than_the_site_advises_are_told(chosen: dict[str, str | None], each: str | None) -> None:
    told = advised(SKYNET, Request(chosen))
    assert [text.partition(" CPUs per GPU")[0] for text in told] == ([f"These are {each}"] if each else [])
    assert all("at most" in text and "15 for a40" in text for text in told)


@pytest.mark.parametrize(
    ("chosen", "is_told"),
    [
        ({"gpus": "1"}, True),
        ({"gpus": "1", "mem": "8G"}, False),
        ({"gpus": "1", "mem-per-cpu": "8G"}, False),
        ({}, False),
    ],
)
def test_jobs_with_gpus_that_say_no_memory_are_told_so(chosen: dict[str, Any], is_told: bool) -> None:
    assert bool(advised({"memory": "64G"}, Request(chosen))) is is_told


def test_where_nothing_is_advised_nothing_is_said() -> None:
    assert advised({}, Request({"gpus": "1", "cpus-per-task": "64"})) == []
