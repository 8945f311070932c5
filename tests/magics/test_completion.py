"""The Tab key, as a front end asks the kernel about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from jupyter_slurm.magics.batch import CELL_WORDS

pytestmark = pytest.mark.slurm


@pytest.fixture
def offered(kernel: Any) -> Callable[[str], list[str]]:
    """``offered(code)``: what the kernel offers at the end of the code's first line."""

    def ask(code: str) -> list[str]:
        at = len(code.partition("\n")[0])
        reply = kernel.client.complete(code, at, reply=True, timeout=60)["content"]
        return list(reply["matches"])

    return ask


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("%%sbatch --par", ["--parsable", "--partition"]),
        ("%%sbatch -n4 as=job --gpus-per-n\n#!/bin/sh\n", ["--gpus-per-node"]),
        ("%%sbatch ", [f"{word}=" if takes_value else word for word, takes_value in CELL_WORDS.items()]),
        ("%%sbatch wait -n1 s", ["show", "sweep="]),
        ("%sbatch wa", ["wait"]),
        ("%squeue --sta", ["--start", "--states"]),
        ("%sinfo -N --part", ["--partition"]),
    ],
)
def test_options_and_words_are_offered(offered: Callable[[str], list[str]], line: str, expected: list[str]) -> None:
    assert sorted(offered(line)) == sorted(expected)


@pytest.mark.parametrize("line", ["%%sbatch -n1 -- --par", "%%sbatch --no-such=", "%%sbatch -J wai"])
def test_nothing_of_ours_where_others_know_better(offered: Callable[[str], list[str]], line: str) -> None:
    assert not {"--partition", "wait", "arandu"} & set(offered(line))


def test_partitions_are_offered_and_asked_for_once(
    kernel: Any, offered: Callable[[str], list[str]], wait_for: Callable[..., Any]
) -> None:
    kernel.ok("%sinfo -h")  # nobody is asked to log in for the sake of the Tab key
    wait_for(lambda: offered("%%sbatch -p ") == ["arandu", "devwork"], "the partitions")
    kernel.ok(
        "from jupyter_slurm.handles.cluster import Cluster\n"
        "from jupyter_slurm.agent.client import AgentClient\n"
        "kept = AgentClient.post, AgentClient.get\n"
        "def never(*a, **k): raise SystemExit('the agent was asked')\n"
        "AgentClient.post = AgentClient.get = never"
    )
    try:
        for line, names in [
            ("%%sbatch -p ", ["arandu", "devwork"]),
            ("%%sbatch --partition=ar", ["arandu"]),
            ("%%sbatch --hold --partition devwork,a", ["arandu"]),
            ("%squeue -hp d", ["devwork"]),
        ]:
            assert offered(line) == names, line
    finally:
        kernel.ok("AgentClient.post, AgentClient.get = kept")


def test_unloading_takes_it_away(bare_kernel: Any) -> None:
    def offered() -> list[str]:
        return list(bare_kernel.client.complete("%%sbatch --par", reply=True, timeout=60)["content"]["matches"])

    bare_kernel.ok("%load_ext jupyter_slurm\n%reload_ext jupyter_slurm")
    assert sorted(offered()) == ["--parsable", "--partition"]
    bare_kernel.ok("%unload_ext jupyter_slurm")
    assert "--partition" not in offered()
