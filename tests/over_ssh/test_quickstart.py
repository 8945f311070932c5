"""Tests of the quickstart notebook on a laptop: the same cells, after `%slurm use`."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient
from ssh_hosts import SshHost
from ssh_hosts.ways import Way

from jupyter_slurm.embedded import EmbeddedCluster

pytestmark = [pytest.mark.slurm, pytest.mark.root]

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def notebook(
    cluster: EmbeddedCluster,
    login_host: SshHost,
    remote_carrier: str,
    short_tmp: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Any]:
    """Provide the notebook of a user without a local Slurm, but with a profile."""
    home = short_tmp / f"q-{remote_carrier}"
    home.mkdir()
    settings = Way(remote_carrier, login_host).settings(cluster, home, str(home / "jobs"))
    settings |= {name: str(home / name) for name in ("state_dir", "runtime_dir")}
    (home / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
    monkeypatch.setenv("JUPYTER_CONFIG_PATH", str(home))
    monkeypatch.delenv("SLURM_CONF", raising=False)
    read = nbformat.read(EXAMPLES / "quickstart.ipynb", as_version=4)
    first = next(at for at, cell in enumerate(read.cells) if cell.source == "%load_ext jupyter_slurm")
    read.cells.insert(first + 1, nbformat.v4.new_code_cell("%slurm use far"))
    yield read
    stop = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main"]
    for words in (["disconnect", "far"], ["agent", "stop"]):
        subprocess.run([*stop, *words], capture_output=True, check=True)


def text_of(cell: Any) -> str:
    """Return the visible text under a cell."""
    parts = {
        "stream": lambda output: output.text,
        "error": lambda output: "\n".join(output.traceback),
        "execute_result": lambda output: output.data.get("text/plain", ""),
        "display_data": lambda output: output.data.get("text/plain", ""),
    }
    return "\n".join(parts[output.output_type](output) for output in cell.outputs)


def test_the_quickstart_runs_behind_ssh(notebook: Any) -> None:
    NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(EXAMPLES)}}).execute()
    told = {cell.source: text_of(cell) for cell in notebook.cells if cell.cell_type == "code"}

    def under(part: str) -> str:
        return next(text for source, text in told.items() if part in source)

    assert "far" in under("%slurm use far")
    assert re.search(r"node: dgx01\nGPUs: \d", under("wait as=hello"))
    assert "Python cells on far: python3 of the node" in under("as=fit")
    assert "sin(x) is about" in under("fit.wait")
    assert "CANCELLED" in under("long.wait")
    assert "No such file or directory" in under("cat /data/that")
    assert sum(under("jupyter_slurm.jobs()").count(state) for state in ("COMPLETED", "CANCELLED", "FAILED")) >= 4
