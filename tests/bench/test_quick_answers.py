"""Benchmark of short waits: the end of a script of a second, and the first submission without an agent."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(600)]

RUNS = 7
# A second and a half after the end of a script of a second.
AT_MOST = 2.5
# Starts of a Python with asyncio: the agent, the cell's modules, a registration and sbatch.
AT_MOST_STARTS = 7

SECOND = """
%load_ext jupyter_slurm

def second():
    job = get_ipython().run_cell_magic("sbatch", "", "#!/bin/sh\\ndate +%s.%N > began\\nsleep 1\\ndate +%s.%N > ended\\n")
    job.wait()
    known = time.time()
    began, ended = (float(open(name).read()) for name in ("began", "ended"))
    print("\\nseconds", ended - began, known - began)
"""

FIRST = """
%load_ext jupyter_slurm

def first():
    get_ipython().run_cell_magic("sbatch", "", SCRIPT)

def start_python():
    subprocess.run([__import__("sys").executable, "-c", "import asyncio"], check=True)
"""


def test_the_end_of_a_short_script_is_known_soon(
    start_kernel: Callable[..., Any], new_table: Callable[[str], Any]
) -> None:
    kernel = start_kernel()
    kernel.prepare(SECOND)
    table = new_table("A script of a second")
    for _ in range(RUNS):
        own, known = kernel.run("second()").rsplit("seconds", 1)[1].split()[:2]
        table.add("its own run", float(own) * 1000)
        table.add("until its end is known", float(known) * 1000)
    assert table.ratio("until its end is known", "its own run") <= AT_MOST, table.lines()


def test_a_first_submission_starts_the_agent(
    start_kernel: Callable[..., Any], new_table: Callable[[str], Any], kernel_env: dict[str, str], home: Path
) -> None:
    table = new_table("First submission of a kernel, without an agent")
    for _ in range(RUNS):
        stop = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "agent", "stop"]
        subprocess.run(stop, env=kernel_env, cwd=home, check=True, capture_output=True)
        kernel = start_kernel()
        kernel.prepare(FIRST)
        table.add("Python with asyncio", kernel.milliseconds("start_python"))
        table.add("bare sbatch", kernel.milliseconds("bare"))
        table.add("first %%sbatch", kernel.milliseconds("first"))
        table.add("second %%sbatch", kernel.milliseconds("first"))
        kernel.stop()
    assert table.ratio("first %%sbatch", "Python with asyncio") <= AT_MOST_STARTS, table.lines()
