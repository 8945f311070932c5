"""What it costs to load the extension into a fresh kernel."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 7
# Milliseconds differ from machine to machine; that pandas is imported, or half of our own package, does not.
AT_MOST = 0.1

LOAD = """
import time
began = time.perf_counter()
get_ipython().run_line_magic("load_ext", {name!r})
print("milliseconds", (time.perf_counter() - began) * 1000)
"""


def test_loading_is_light(start_kernel: Callable[..., Any], peers_python: str, new_table: Callable[[str], Any]) -> None:
    """The issue's goal is 50 ms where slurm-magic takes 481 ms; here it is at most a tenth of that, whatever the machine."""
    rows = [
        ("%load_ext slurm_magic", peers_python, "slurm_magic"),
        ("%load_ext jupyter_slurm", sys.executable, "jupyter_slurm"),
    ]
    table = new_table("Loading the extension into a fresh kernel")
    for _ in range(RUNS):
        for row, python, name in rows:
            kernel = start_kernel(python)
            table.add(row, float(kernel.run(LOAD.format(name=name)).rsplit("milliseconds", 1)[1]))
            kernel.stop()
    assert table.ratio("%load_ext jupyter_slurm", "%load_ext slurm_magic") <= AT_MOST, table.lines()
