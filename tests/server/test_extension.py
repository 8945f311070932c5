"""Tests of the log messages of the extension when it is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from jupyter_core.paths import jupyter_path

from jupyter_slurm.server.extension import has_panel


def test_a_panel_that_was_not_built_is_missed(tmp_path: Path) -> None:
    assert has_panel(jupyter_path("labextensions"))
    assert not has_panel([str(tmp_path)])
    (tmp_path / "jupyter-slurm").mkdir()
    assert not has_panel([str(tmp_path)])


def test_the_server_starts_without_the_library_of_the_kernels() -> None:
    """The user waits for the start of a session, and this import was a tenth of it."""
    code = "import sys, jupyter_slurm.server.extension as _; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = ("jobs", "kernels", "submission", "output", "sessions", "clusters", "allocations", "widgets")
    folders = tuple(f"jupyter_slurm.client.{folder}" for folder in heavy)
    assert [name for name in loaded if name.startswith(folders)] == []
