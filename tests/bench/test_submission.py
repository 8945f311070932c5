"""Benchmark of a script's submission from a cell, compared with bare sbatch and with other packages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 15
AT_MOST = 1.5

SHOWN = """
def shown():
    from IPython.display import HTML, display
    done = subprocess.run(["sbatch", "bench.sh"], check=True, capture_output=True, text=True)
    display(HTML("<pre>" + done.stdout + "</pre>"))
"""

OURS = """
%load_ext jupyter_slurm

def ours():
    job = get_ipython().run_cell_magic("sbatch", "", SCRIPT)
    assert int(job.id)
"""

# Each as in its README.
THEIRS = """
%load_ext slurm_magic
import simple_slurm, submitit

def slurm_magic():
    assert "Submitted batch job" in get_ipython().run_cell_magic("sbatch", "", SCRIPT)

def simple():
    simple_slurm.Slurm(hold=True, job_name="bench").sbatch("exec true")

executor = submitit.AutoExecutor(folder="submitit")
executor.update_parameters(timeout_min=1, slurm_additional_parameters={"hold": True})

def with_submitit():
    executor.submit(print, "nothing")
"""


def _cell(kernel: Any, code: str) -> float:
    """Return how long a front end waits for a cell, its display included."""
    began = time.perf_counter()
    kernel.run(code)
    return (time.perf_counter() - began) * 1000


def test_a_cell_costs_little_more_than_sbatch(
    start_kernel: Callable[..., Any], peers_python: str, new_table: Callable[[str], Any]
) -> None:
    """The magic itself, as it blocks the kernel: at most half as much again as sbatch alone."""
    our, their = start_kernel(), start_kernel(peers_python)
    our.prepare(OURS)
    their.prepare(THEIRS)
    rows = [
        ("bare sbatch", our, "bare"),
        ("%%sbatch of jupyter_slurm", our, "ours"),
        ("bare sbatch, other kernel", their, "bare"),
        ("%%sbatch of slurm-magic", their, "slurm_magic"),
        ("simple_slurm", their, "simple"),
        ("submitit", their, "with_submitit"),
    ]
    for _, kernel, work in rows:  # the first call finds or starts an agent, and imports modules
        kernel.milliseconds(work)
    table = new_table("Submission of a script")
    for _ in range(RUNS):
        for row, kernel, work in rows:
            table.add(row, kernel.milliseconds(work))
    assert table.ratio("%%sbatch of jupyter_slurm", "bare sbatch") <= AT_MOST, table.lines()


def test_a_cell_with_its_display_keeps_the_kernel_no_longer(
    start_kernel: Callable[..., Any], new_table: Callable[[str], Any], script: str
) -> None:
    """The front end's wait: the job is submitted, drawn, and the kernel is idle again.

    The comparison is a cell that displays sbatch's output, because IPython needs time for any display.
    """
    kernel = start_kernel()
    kernel.prepare(SHOWN + OURS)
    rows = [
        ("bare sbatch, displayed", "shown()"),
        ("bare sbatch, silent", "bare()"),
        ("a %%sbatch cell", f"%%sbatch\n{script}"),
    ]
    for _, code in rows:
        _cell(kernel, code)
    table = new_table("A cell from Enter to the end")
    for _ in range(RUNS):
        for row, code in rows:
            table.add(row, _cell(kernel, code))
    assert table.ratio("a %%sbatch cell", "bare sbatch, displayed") <= AT_MOST, table.lines()
