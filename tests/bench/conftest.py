"""Fixtures of the benchmarks: real kernels, the other packages, and the printed tables."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from browser import *  # noqa: F403 - fixtures: Chromium, and an open JupyterLab
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.kernelspec import KernelSpec, KernelSpecManager
from jupyter_client.manager import KernelManager
from ssh_hosts import SshHost
from ssh_hosts.ways import CARRIERS, Way

from jupyter_slurm.embedded import EmbeddedCluster

# Pinned, so that two runs can be compared. Kernel and shell are those of this environment: only the packages differ.
PEERS = ("slurm-magic==0.1.0", "simple_slurm==0.3.6", "submitit==1.5.4")
SHELL = ("ipykernel", "ipython")

# Held: the submission is measured, without a job that starts meanwhile.
SCRIPT = "#!/bin/sh\n#SBATCH --hold --job-name=bench\nexec true\n"

BARE = f"""
import subprocess, time
SCRIPT = {SCRIPT!r}
with open("bench.sh", "w") as file:
    file.write(SCRIPT)

def timed(work):
    began = time.perf_counter()
    work()
    print("\\nmilliseconds", (time.perf_counter() - began) * 1000)

def bare():
    subprocess.run(["sbatch", "bench.sh"], check=True, capture_output=True)
"""


class _OneSpec(KernelSpecManager):
    """The kernelspec of one interpreter, independent of Jupyter's kernelspecs on this machine."""

    def __init__(self, python: str) -> None:
        super().__init__()
        self._argv = [python, "-m", "ipykernel_launcher", "-f", "{connection_file}"]

    def get_kernel_spec(self, kernel_name: str) -> KernelSpec:
        return KernelSpec(argv=self._argv, display_name=kernel_name, language="python")


class Kernel:
    """A real kernel, whose output is the measurement."""

    def __init__(self, python: str, env: dict[str, str], folder: Path) -> None:
        self.manager = KernelManager(kernel_name="bench", kernel_spec_manager=_OneSpec(python))
        self.manager.start_kernel(env=env, cwd=str(folder), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client: BlockingKernelClient = self.manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str, timeout: float = 120.0) -> str:
        """Run a cell that must succeed; return its output."""
        messages: list[dict[str, Any]] = []
        reply = self.client.execute_interactive(code, timeout=timeout, output_hook=messages.append)
        assert reply["content"]["status"] == "ok", "\n".join(reply["content"].get("traceback", []))
        return "".join(m["content"]["text"] for m in messages if m["msg_type"] == "stream")

    def prepare(self, code: str) -> None:
        """Define the script to submit, its bare sbatch, and other functions to measure."""
        self.run(BARE + code)

    def milliseconds(self, work: str) -> float:
        """Return how long a function defined in the kernel blocks it, in milliseconds."""
        return float(self.run(f"timed({work})").rsplit("milliseconds", 1)[1].split()[0])

    def stop(self) -> None:
        if not self.manager.has_kernel:
            return
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)
        self.manager.cleanup_resources()


@pytest.fixture(scope="session")
def peers_python(pytestconfig: pytest.Config) -> str:
    """Provide the interpreter of an environment with only the other packages, made once and kept between runs."""
    wanted = [*PEERS, *(f"{name}=={version(name)}" for name in SHELL)]
    folder = Path(pytestconfig.cache.mkdir("bench-peers"))  # type: ignore[union-attr]
    python, stamp = folder / "venv" / "bin" / "python", folder / "installed.json"
    wanted_text = json.dumps([sys.version, *wanted])
    if not stamp.exists() or stamp.read_text() != wanted_text:
        shutil.rmtree(folder / "venv", ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True, timeout=120)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, *wanted], check=True, capture_output=True, timeout=280)
        # pip has compiled the modules; a first import as well, so that no run depends on a cold disk cache.
        subprocess.run([str(python), "-c", "import slurm_magic, simple_slurm, submitit"], check=True, timeout=120)
        stamp.write_text(wanted_text)
        os.sync()  # or on a disk that is still writing
    return str(python)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """Provide a short folder, for the path of a Unix socket."""
    folder = Path(tempfile.mkdtemp(prefix="jsb-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module")
def kernel_env(cluster: EmbeddedCluster, home: Path) -> Iterator[dict[str, str]]:
    """Provide the environment of kernels with access to the cluster and a common agent, which ends with the module."""
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings
    from jupyter_slurm.errors import AgentError

    chosen = {name: str(home / folder) for name, folder in _FOLDERS.items()}
    (home / "config").mkdir()
    (home / "config" / "jupyter_slurm_config.json").write_text(
        json.dumps({"Settings": {**chosen, "agent_host": "daemon"}})
    )
    own = {
        "JUPYTER_CONFIG_DIR": str(home / "config"),
        "IPYTHONDIR": str(home / "ipython"),
        "JUPYTER_RUNTIME_DIR": str(home / "runtime"),
    }
    yield {**os.environ, **cluster.env(), **own}
    with contextlib.suppress(AgentError):
        AgentClient.connect(Settings(**chosen), start=False).stop_agent()


_FOLDERS = {"job_root": "jobs", "runtime_dir": "run", "state_dir": "state"}


@pytest.fixture(params=CARRIERS)
def far(
    request: pytest.FixtureRequest,
    kernel_env: dict[str, str],
    cluster: EmbeddedCluster,
    home: Path,
    login_host: SshHost,
) -> Iterator[None]:
    """Use the cluster behind SSH for kernels; its connection ends with the test."""
    from jupyter_slurm.agent.client.agent_client import AgentClient
    from jupyter_slurm.config import Settings

    path = home / "config" / "jupyter_slurm_config.json"
    before = json.loads(path.read_text())["Settings"]
    settings = Way(request.param, login_host).settings(cluster, home, str(home / "far"))
    path.write_text(json.dumps({"Settings": {**before, "sites": settings["sites"], "cluster": "far"}}))
    yield
    folders = {name: before[name] for name in ("job_root", "runtime_dir", "state_dir")}
    client = AgentClient.connect(Settings(**folders), start=False)
    client.post("/v1/clusters/far/disconnect")
    client.stop_agent()
    path.write_text(json.dumps({"Settings": before}))


@pytest.fixture
def script() -> str:
    """Provide the script of every submission, with ``#!`` and held."""
    return SCRIPT


@pytest.fixture
def start_kernel(kernel_env: dict[str, str], home: Path) -> Iterator[Callable[..., Kernel]]:
    """Return ``start_kernel(python=sys.executable)``, which starts a new kernel, ended with the test."""
    running: list[Kernel] = []

    def start(python: str = sys.executable) -> Kernel:
        env = dict(kernel_env)
        if python != sys.executable:
            env.pop("PYTHONPATH", None)  # it may name this environment
        running.append(Kernel(python, env, home))
        return running[-1]

    yield start
    for kernel in running:
        kernel.stop()  # a second stop does nothing


class Table:
    """Samples in milliseconds, by row, and the ratio of their medians to the first row's."""

    def __init__(self, title: str) -> None:
        self.title, self.samples = title, dict[str, list[float]]()

    def add(self, row: str, milliseconds: float) -> None:
        self.samples.setdefault(row, []).append(milliseconds)

    def median(self, row: str) -> float:
        return statistics.median(self.samples[row])

    def ratio(self, row: str, to: str) -> float:
        return self.median(row) / self.median(to)

    def lines(self) -> Sequence[str]:
        width, first = max(map(len, self.samples)), next(iter(self.samples))
        head = f"{'':{width}}  {'median':>9}  {'fastest':>9}  {'slowest':>9}  {'ratio':>6}"
        rows = [
            f"{row:{width}}  {self.median(row):6.1f} ms  {min(values):6.1f} ms  {max(values):6.1f} ms  "
            f"{self.ratio(row, first):5.2f}x"
            for row, values in self.samples.items()
        ]
        return [f"{self.title} ({len(self.samples[first])} runs each, one after the other in turn)", head, *rows]


@pytest.fixture
def new_table(capsys: pytest.CaptureFixture[str]) -> Iterator[Callable[[str], Table]]:
    """Return ``new_table(title)``: a table that is printed at the end of the test, even after a failure."""
    tables: list[Table] = []

    def make(title: str) -> Table:
        tables.append(Table(title))
        return tables[-1]

    yield make
    with capsys.disabled():
        for table in tables:
            if table.samples:
                print("\n" + "\n".join(table.lines()))
