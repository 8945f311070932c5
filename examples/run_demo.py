"""Run quickstart.ipynb cell by cell on an embedded Slurm and print what a person would see.

``python examples/run_demo.py`` is what `make demo` does; with ``--lab`` it opens JupyterLab on the notebook instead,
and stops the cluster when JupyterLab ends.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import io
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from jupyter_slurm.cli.main import main as jupyter_slurm
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import SlurmError

NOTEBOOK = Path(__file__).with_name("quickstart.ipynb")


class Printing(NotebookClient):
    """Executes a notebook and shows every cell with its output once the cell is through."""

    async def async_execute_cell(self, cell: Any, cell_index: int, **options: Any) -> Any:
        """Execute one cell between the lines that a reader needs."""
        if cell.cell_type == "markdown":
            print(f"\n{cell.source}\n")
            return cell
        print("\n".join(f"  In │ {line}" for line in cell.source.splitlines()), flush=True)
        try:
            return await super().async_execute_cell(cell, cell_index, **options)
        finally:
            for output in cell.outputs:
                show(output)
            print(flush=True)


def show(output: Any) -> None:
    """Print an output as plain text, as a terminal would have it."""
    if output.output_type == "stream":
        text = output.text
    elif output.output_type == "error":
        text = "\n".join(output.traceback)
    else:
        text = output.get("data", {}).get("text/plain", "")
    for line in text.rstrip("\n").split("\n"):
        print(f"     │ {line}")


def run_notebook() -> int:
    """Execute the notebook; return 1 when a cell fails that should not."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = Printing(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(NOTEBOOK.parent)}},
        extra_arguments=["--log-level=ERROR"],  # a warning about unencrypted loopback says nothing about Slurm
    )
    try:
        asyncio.run(client.async_execute())
    except CellExecutionError as error:
        print(f"a cell failed:\n{error}", file=sys.stderr)
        return 1
    return 0


def open_lab(arguments: list[str]) -> int:
    """Run JupyterLab in the foreground, on the loopback interface."""
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1", *arguments]
    if os.geteuid() == 0:
        command.append("--allow-root")
    try:
        return subprocess.run([*command, str(NOTEBOOK)], check=False).returncode
    except KeyboardInterrupt:
        return 0


def private_environment(folder: Path) -> None:
    """Have an agent of the demo's own, with all that it leaves in one folder; the person's own agent is not touched."""
    settings = {}
    for name in ("job_root", "state_dir", "runtime_dir"):
        path = folder / name.partition("_")[0]
        path.mkdir(mode=0o700)
        settings[name] = str(path)
    config = folder / "config"
    config.mkdir(mode=0o700)
    (config / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": settings}))
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(
        [str(config), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    )


def main() -> int:
    """Start the cluster, run the notebook or JupyterLab, and take everything away again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", action="store_true", help="open JupyterLab instead of running the notebook")
    options, rest = parser.parse_known_args()
    folder = Path(tempfile.mkdtemp(prefix="jupyter-slurm-demo-"))
    folder.chmod(0o711)  # munge wants its socket to be reachable; what is private below has a folder of its own
    try:
        private_environment(folder)
        with EmbeddedCluster(directory=folder / "cluster") as cluster:
            os.environ["SLURM_CONF"] = str(cluster.slurm_conf)
            print(f"Slurm runs: export SLURM_CONF={cluster.slurm_conf}", flush=True)
            try:
                return open_lab(rest) if options.lab else run_notebook()
            finally:
                with contextlib.redirect_stdout(io.StringIO()):
                    jupyter_slurm(["agent", "stop"])
    except SlurmError as error:
        print(error, file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
