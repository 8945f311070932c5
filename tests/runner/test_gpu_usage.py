"""Tests of the usage of GPUs, as the programs of NVIDIA, AMD and Intel print it. The programs are stand-ins."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

NVIDIA = "40, 1024\n20, 2048\n"
# As in the documentation of ROCm SMI; a warning stands before the document on an idle node.
ROCM = """WARNING: AMD GPU device(s) is/are in a low-power state. Check power control/runtime_status

{"card0": {"GPU use (%)": "99", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "10960896"},
 "card2": {"GPU use (%)": "50", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "1073741824"},
 "card3": {"GPU use (%)": "10", "VRAM Total Memory (B)": "68702699520", "VRAM Total Used Memory (B)": "1073741824"},
 "system": {"Driver version": "6.7.0"}}
"""
# As in the guide of XPU Manager.
XPU = """Timestamp, DeviceId, GPU Utilization (%), GPU Memory Used (MiB)
06:14:46.000,    0, 0.00, 28.02
06:14:46.000,    1, 25.00, 512.00
"""


@pytest.fixture
def usage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Provide the module in a job without GPUs, on a node without the programs."""
    for name in [name for name in os.environ if "GPU" in name or "VISIBLE_DEVICES" in name or name.startswith("ZE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PATH", str(tmp_path))
    path = resources.files("jupyter_slurm.runner.lifecycle") / "usage.py"
    module: dict[str, Any] = {"__name__": "usage"}
    exec(compile(path.read_text(), str(path), "exec"), module)  # as the runner is loaded in a job
    return SimpleNamespace(**module)


@pytest.mark.parametrize(
    ("program", "text", "env", "expected"),
    [
        ("nvidia-smi", NVIDIA, {"CUDA_VISIBLE_DEVICES": "0,1"}, (0.3, 3072 << 20)),
        # A job that sees only its own GPUs counts them from 0; rocm-smi counts all of the node.
        ("rocm-smi", ROCM, {"ROCR_VISIBLE_DEVICES": "0,1", "SLURM_JOB_GPUS": "2,3"}, (0.3, 2 << 30)),
        ("rocm-smi", ROCM, {"CUDA_VISIBLE_DEVICES": "2", "ROCR_VISIBLE_DEVICES": "2"}, (0.5, 1 << 30)),
        ("xpu-smi", XPU, {"ZE_AFFINITY_MASK": "1.0,1.1"}, (0.25, 512 << 20)),
        ("xpu-smi", XPU.replace("25.00", "N/A"), {"ZE_AFFINITY_MASK": "1"}, (None, None)),
        ("rocm-smi", "ERROR: no AMD GPUs found\n", {"ROCR_VISIBLE_DEVICES": "0"}, (None, None)),
        ("rocm-smi", ROCM, {"ROCR_VISIBLE_DEVICES": "7"}, (None, None)),
        ("nvidia-smi", NVIDIA, {}, (None, None)),
    ],
)
def test_the_program_of_the_maker_is_asked(
    usage: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, text: str, env: Any, expected: Any
) -> None:
    (tmp_path / "output").write_text(text)
    (tmp_path / program).write_text(f'#!/bin/sh\nwhile read -r line; do echo "$line"; done <{tmp_path}/output\n')
    (tmp_path / program).chmod(0o755)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    busy, memory = usage._gpus()
    assert (busy and round(busy, 3), memory) == expected


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0,1", "ROCR_VISIBLE_DEVICES": "5"}, ["0", "1"]),
        ({"ROCR_VISIBLE_DEVICES": "0,1", "SLURM_SHARDS_ON_NODE": "3"}, ["0", "1"]),  # shards of Slurm 22.05
        ({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, []),
        ({}, []),
    ],
)
def test_gpus_of_a_job(usage: Any, env: dict[str, str], expected: list[str]) -> None:
    assert usage.visible(env) == expected
