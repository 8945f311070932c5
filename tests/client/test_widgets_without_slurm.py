"""Widgets on a computer without Slurm: an error that says what to do, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

_CALL = """
import gc, sys
import jupyter_slurm
from jupyter_slurm.errors import SlurmError
try:
    getattr(jupyter_slurm, sys.argv[1])()
except SlurmError as error:
    assert error.hint
    print("Slurm error")
gc.collect()
"""


@pytest.mark.parametrize("name", ["cluster_view", "monitor", "launcher", "submit_form"])
def test_a_widget_without_slurm_leaves_no_other_error(name: str, tmp_path: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="jsw-", dir="/tmp") as runtime:  # short, for the path of a socket
        settings = {"runtime_dir": runtime, "state_dir": str(tmp_path / "state"), "job_root": str(tmp_path / "jobs")}
        (tmp_path / "jupyter_slurm_config.json").write_text(json.dumps({"JupyterSlurm": settings}))
        env = {**os.environ, "HOME": str(tmp_path), "JUPYTER_CONFIG_DIR": str(tmp_path), "PATH": str(tmp_path)}
        for variable in ("SLURM_CONF", "XDG_RUNTIME_DIR"):
            env.pop(variable, None)
        stop = [sys.executable, "-m", "jupyter_slurm.cli.main", "agent", "stop"]
        try:
            called = [sys.executable, "-c", _CALL, name]
            done = subprocess.run(called, env=env, capture_output=True, text=True, timeout=120, check=False)
        finally:
            subprocess.run(stop, env=env, capture_output=True, timeout=120, check=False)
    assert done.stderr == ""
    assert done.returncode == 0
    assert name != "cluster_view" or done.stdout == "Slurm error\n"
