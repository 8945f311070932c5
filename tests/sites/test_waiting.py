"""Tests of the explanation of a waiting job, if the site's Slurm reports another reason."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from replicas import Replica


@pytest.mark.sites("aau-aicloud")
def test_who_waits_for_memory_reads_of_it_although_slurm_names_the_limit_of_gpus(
    replica: Replica, wait_for: Callable[..., Any]
) -> None:
    node, laptop = replica.site.cluster.node_names[0], replica.laptop
    ask = f"-p batch -w {node} --mem=1000G --gpus 1"
    for name in ("first", "second"):
        begun = laptop.run(f"%%sbatch {ask} as={name}\n#!/bin/sh\nsleep 600")
        assert not begun.error, begun.error
    wait_for(lambda: "memory" in laptop.value("second.refresh().reason_text"), "why it waits")
    reason, step = (laptop.value(f"second.{name}") for name in ("reason", "next_step"))
    assert reason in ("QOSMaxGRESPerUser", "Resources")
    assert "--mem=64G" in step, "what the site advises"
    laptop.run("first.cancel(); second.cancel()")
