"""Run quickstart.ipynb and remote-jupyter.ipynb cell by cell on an embedded Slurm; print what a person would see.

``python examples/run_demo.py`` is what `make demo` does; with ``--lab`` it opens JupyterLab on the notebook instead,
until JupyterLab ends or Ctrl-C. All that runs for it and all that it writes belongs to the cluster, and goes with it
however this program ends.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import contextlib
import ctypes
import json
import os
import runpy
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import SlurmError

NOTEBOOK = Path(__file__).with_name("quickstart.ipynb")
SESSION = NOTEBOOK.with_name("remote-jupyter.ipynb")
run_cell = runpy.run_path(str(NOTEBOOK.with_name("in_a_session.py")))["run_cell"]
# What is run in the session's own Jupyter once the notebook has named its page.
IN_THE_SESSION = """\
import os
print(os.environ["SLURMD_NODENAME"], "GPUs:", os.environ["CUDA_VISIBLE_DEVICES"])
"""


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
            if cell.source == "training.page()" and cell.outputs and cell.outputs[0].output_type == "execute_result":
                await self._open(cell.outputs[0].data["text/plain"])

    async def _open(self, page: str) -> None:
        """Do what a browser does with the page of a session, and run a cell there."""
        print("\nThe page is opened, as by a browser, and a cell runs in the Jupyter on the node:\n")
        print("\n".join(f"  In │ {line}" for line in IN_THE_SESSION.splitlines()), flush=True)
        printed = await run_cell(await asyncio.to_thread(Path(ast.literal_eval(page)).read_text), IN_THE_SESSION)
        show(nbformat.v4.new_output("stream", text=printed))
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


def run_notebook(path: Path) -> int:
    """Execute a notebook; return 1 when a cell fails that should not."""
    notebook = nbformat.read(path, as_version=4)
    client = Printing(
        notebook,
        timeout=300,
        kernel_name="python3",
        resources={"metadata": {"path": str(path.parent)}},
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
    command = [sys.executable, "-m", "jupyterlab", "--ServerApp.ip=127.0.0.1"]
    # Not the notebook as an argument: the address that is printed, for a browser elsewhere, would not name it.
    command += [f"--ServerApp.root_dir={NOTEBOOK.parent}", f"--LabApp.default_url=/lab/tree/{NOTEBOOK.name}"]
    if os.geteuid() == 0:
        command.append("--allow-root")
    # In a session of its own Ctrl-C does not reach it: it would ask whether it is meant, while we take all away.
    server = subprocess.Popen([*command, *arguments], stdin=subprocess.DEVNULL, start_new_session=True)
    try:
        return server.wait()
    except KeyboardInterrupt:
        print("\nJupyterLab and Slurm are stopped …", flush=True)
        return 0
    finally:
        server.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.wait(10)


def private_environment(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return variables for an agent and a JupyterLab of the demo's own: those of the person are not touched."""
    folder = cluster.directory / "demo"
    names = ("job_root", "state_dir", "runtime_dir", "config", "jupyter", "workspaces", "ipython", "matplotlib")
    paths = {name: folder / name for name in names}
    for path in (folder, *paths.values()):
        path.mkdir(mode=0o700)
    settings = {"Settings": {name: str(paths[name]) for name in names[:3]}}
    (paths["config"] / "jupyter_slurm_config.json").write_text(json.dumps(settings))
    config_path = [str(paths["config"]), *filter(None, [os.environ.get("JUPYTER_CONFIG_PATH")])]
    return {
        "SLURM_CONF": str(cluster.slurm_conf),
        "JUPYTER_CONFIG_PATH": os.pathsep.join(config_path),
        "JUPYTER_RUNTIME_DIR": str(paths["jupyter"]),
        "JUPYTERLAB_WORKSPACES_DIR": str(paths["workspaces"]),
        "IPYTHONDIR": str(paths["ipython"]),
        "MPLCONFIGDIR": str(paths["matplotlib"]),
    }


def nothing_at_home(cluster: EmbeddedCluster) -> dict[str, str]:
    """Return variables by which the JupyterLab of the session leaves nothing in the person's home either."""
    names = ("JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "npm_config_cache")
    return {name: str(cluster.directory / "demo" / name.lower()) for name in names}


def end_in_order() -> None:
    """Take a closed terminal, kill(1), and the end of `make` for Ctrl-C."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    set_parent_death_signal = 1  # prctl(2)
    ctypes.CDLL(None).prctl(set_parent_death_signal, signal.SIGTERM)


def main() -> int:
    """Start the cluster, run the notebook or JupyterLab, and take everything away again."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lab", action="store_true", help="open JupyterLab instead of running the notebook")
    options, rest = parser.parse_known_args()
    end_in_order()
    cluster = EmbeddedCluster(directory=Path(tempfile.mkdtemp(prefix="jupyter-slurm-demo-")))
    what = "then JupyterLab opens" if options.lab else "then the jobs of the notebooks run: about a minute"
    print(f"Slurm starts on this machine; {what} …", flush=True)
    try:
        cluster.start(until=os.getpid())
        os.environ |= private_environment(cluster) | cluster.owned()
        print(f"Slurm runs: export SLURM_CONF={cluster.slurm_conf}", flush=True)
        if not options.lab:
            os.environ |= nothing_at_home(cluster)
        code = open_lab(rest) if options.lab else run_notebook(NOTEBOOK) or run_notebook(SESSION)
    except SlurmError as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    finally:
        cluster.stop()
        with contextlib.suppress(FileNotFoundError):
            cluster.directory.rmdir()  # it was made, and the cluster was not
    if code == 0 and not options.lab:
        print("The cluster and all that it wrote are gone again. Next, the same notebooks in JupyterLab: make lab")
    return code


if __name__ == "__main__":
    sys.exit(main())
