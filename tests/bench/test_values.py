"""Benchmark of a value of more than 2 GiB, both ways: beyond 32-bit sizes, and without superfluous copies."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.slurm, pytest.mark.timeout(600)]

SIZE = 2_200_000_000


def test_two_gigabytes_go_there_and_back(start_kernel: Callable[..., Any], capsys: pytest.CaptureFixture[str]) -> None:
    kernel = start_kernel()
    kernel.run(
        "%load_ext jupyter_slurm\nimport numpy as np\nfrom jupyter_slurm.client.settings import settings\n"
        f"settings().values_limit = {2 * SIZE}\nlarge = np.arange({SIZE} // 8)"
    )
    began = time.monotonic()
    kernel.run(
        f"%%sbatch -p arandu --mem=16G in=large out=larger,last as=job\nlarger = large + 1\nlast = {SIZE}", timeout=300
    )
    sent = time.monotonic() - began
    kernel.run("got = job.wait().outputs", timeout=500)
    lasted = time.monotonic() - began
    said = kernel.run("print((larger - large).max(), (larger - large).min(), got['last'], got.errors)")
    assert said == f"1 1 {SIZE} {{}}\n"
    with capsys.disabled():
        print(f"\n{SIZE / 1e9:.1f} GB: submitted after {sent:.1f} s, there and back after {lasted:.1f} s")
