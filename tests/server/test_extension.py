"""Tests of the log messages of the extension when it is loaded."""

from __future__ import annotations

from pathlib import Path

from jupyter_core.paths import jupyter_path

from jupyter_slurm.server.extension import has_panel


def test_a_panel_that_was_not_built_is_missed(tmp_path: Path) -> None:
    assert has_panel(jupyter_path("labextensions"))
    assert not has_panel([str(tmp_path)])
    (tmp_path / "jupyter-slurm").mkdir()
    assert not has_panel([str(tmp_path)])
