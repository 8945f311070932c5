"""Benchmark of a cell's submission from a laptop, compared with bare sbatch on the login node itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 15
AT_MOST = 2.0

OURS = """
%load_ext jupyter_slurm

def ours():
    job = get_ipython().run_cell_magic("sbatch", "", SCRIPT)
    assert int(job.id) and job.cluster == "far"
"""


@pytest.mark.usefixtures("far")
def test_a_cell_over_ssh_costs_at_most_twice_what_sbatch_costs(
    start_kernel: Callable[..., Any], new_table: Callable[[str], Any], request: pytest.FixtureRequest
) -> None:
    """The magic itself, as it blocks the kernel, against sbatch as that kernel starts it on the login node."""
    kernel = start_kernel()
    kernel.prepare(OURS)
    rows = [("bare sbatch, no SSH", "bare"), ("%%sbatch over SSH", "ours")]
    for _, work in rows * 3:  # the first call logs in, the second starts the helper on the login node
        kernel.milliseconds(work)
    table = new_table(f"Submission of a script over SSH ({request.node.callspec.params['far']})")
    for _ in range(RUNS):
        for row, work in rows:
            table.add(row, kernel.milliseconds(work))
    assert table.ratio("%%sbatch over SSH", "bare sbatch, no SSH") <= AT_MOST, table.lines()
