"""Answers of a hostile cluster about waiting jobs: small ones that would take hours to read, or gigabytes."""

from __future__ import annotations

import pytest

from jupyter_slurm.domain.advice.waiting import Shortage, next_to_end
from jupyter_slurm.domain.advice.waiting_limits import parse_licences
from jupyter_slurm.domain.queries.all_jobs import RunningJob
from jupyter_slurm.domain.queries.cluster import Node
from jupyter_slurm.domain.queries.job_detail import WaitingRequest
from jupyter_slurm.domain.queries.output_paths import first_node

pytestmark = pytest.mark.timeout(60)  # reading in quadratic time would take hours


def test_licences_are_read_in_the_time_of_their_length() -> None:
    assert parse_licences("a" * 2_000_000) == {}
    line = "LicenseName=matlab Total=10 Used=4 Free=6 Reserved=0 Remote=no"
    assert parse_licences(f"{'=' * 100_000}\n{line}") == {"matlab": (10, 6)}


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ("dgx[01-02],login", "dgx01"),
        ("n[1,3-5]-ib,x", "n1-ib"),
        ("a,b[1-2]", "a"),
        ("gpu1", "gpu1"),
        ("", ""),
        ("n[" + "1" * 2_000_000, "n"),
        ("n" + "[" * 500_000, "n"),
    ],
)
def test_the_first_node_of_a_list_is_found_in_the_time_of_its_length(nodes: str, expected: str) -> None:
    assert first_node(nodes) == expected


def test_lists_of_nodes_are_expanded_up_to_a_number_of_names() -> None:
    nodes = [Node("n7", state="ALLOCATED", partitions=("gpu",), cpus=4, memory=1 << 30)]
    request = WaitingRequest(("gpu",))
    short = [Shortage("cpu", "")]

    def job(number: int, names: str, end: int) -> RunningJob:
        return RunningJob(str(number), "eve", names, end)

    honest = [job(1, "n[1-3]", 300), job(2, "n[5-9]", 200), job(3, "n7", 250), job(4, "n[7", 150)]
    found = next_to_end(request, nodes, short, honest, now=100.0)
    assert found is not None
    assert found.id == "2"
    bomb = [job(number, "m[1-60000]", 110) for number in range(2_000)]
    assert next_to_end(request, nodes, short, [*bomb, *honest], now=100.0) is None
