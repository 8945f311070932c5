"""Tests of the CUDA that packages are built for."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_slurm.runner.environment import cuda

_OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)\n"
_CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  470.82.01  Wed Oct 27 21:21:55 UTC 2021\n"


@pytest.mark.parametrize(
    ("text", "major"),
    [
        ("numpy==2.1\n", 0),
        ("torch\n", 12),
        ("torch==2.5.1\n", 12),
        ("torch==2.0.1  # old\n", 11),
        ("torch==2.5.1+cu118\n", 11),
        ("torch==2.5.1+cpu\n", 0),
        ("--index-url https://download.pytorch.org/whl/cu118\ntorch\n", 11),
        ("--extra-index-url https://download.pytorch.org/whl/cpu\ntorch\n", 0),
        ("--index-url https://download.pytorch.org/whl/cu118\ntorch\njax[cuda12]\n", 12),
        ("tensorflow==2.10.0\n", 11),
        ("cupy-cuda12x\n", 12),
        ("cupy-cuda110==9.6\n", 11),
        ("nvidia-cuda-runtime-cu12==12.1.105\n", 12),
        ("nvidia-cuda-runtime==13.0.48\n", 13),
    ],
)
def test_versions_names_extras_and_indexes_name_cuda(text: str, major: int) -> None:
    needs = cuda.needed_by({"requirements.txt": text})
    assert (needs.major if needs else 0) == major


def test_lock_files_and_conda_name_cuda() -> None:
    lock = '[[package]]\nname = "torch"\nversion = "2.5.1+cu118"\n'
    project = '[project]\ndependencies = [\n  "jax[cuda12]>=0.4",\n  "torch==2.5.1",\n]\n'
    files = {"uv.lock": lock, "pyproject.toml": project}
    assert cuda.needed_by(files) == (11, "torch 2.5.1+cu118")
    assert [one.name for one in cuda.requested(files)] == ["jax", "torch"]
    text = "channels: [pytorch]\ndependencies:\n  - python=3.12\n  - pytorch-cuda=12.1\n  - pip:\n    - numpy==2\n"
    assert cuda.needed_by({"environment.yml": text}) == (12, "pytorch-cuda 12.1")


def test_installed_packages_name_cuda(tmp_path: Path) -> None:
    (tmp_path / "lib/python3.12/site-packages/torch-2.5.1+cu121.dist-info").mkdir(parents=True)
    (tmp_path / "conda-meta").mkdir()
    (tmp_path / "conda-meta/cuda-version-11.8-h70ddcb2_3.json").touch()
    assert cuda.newest(cuda.installed(str(tmp_path))) == (12, "torch 2.5.1+cu121")


def test_a_driver_runs_its_cuda_and_older_ones(tmp_path: Path) -> None:
    file = tmp_path / "version"
    assert cuda.node_driver(str(file)) == ""
    for text, driver, limit in ((_OPEN, "580.95.05", 13), (_CLOSED, "470.82.01", 11)):
        file.write_text(text)
        assert cuda.node_driver(str(file)) == driver
        assert cuda.limit_of(driver) == limit
