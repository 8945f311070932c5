"""Tests of kernel info before the start of a kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from jupyter_slurm.kernels import kernel_info_cache


def test_the_language_is_known_before_there_is_a_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))

    def name(*words: str) -> str:
        return str(kernel_info_cache.cached_kernel_info(words)["language_info"]["name"])

    assert [name("-p", "a"), name("kernel=python3"), name("kernel=ir"), name("kernel=julia-1.10")] == [
        "python",
        "python",
        "R",
        "julia",
    ]
    assert name("kernel=deno") == "deno"
    kernel_info_cache.remember(["kernel=deno"], {"language_info": {"name": "typescript"}})
    assert name("kernel=deno") == "typescript"
