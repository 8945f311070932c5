"""Tests of clients without the Slurm provisioner, such as VS Code, and other programs that run notebooks."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient

from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.kernels.state_file import read

pytestmark = [pytest.mark.slurm, pytest.mark.here_only("what is different over SSH is in test_life.py")]

_JOB = "__import__('os').environ['SLURM_JOB_ID']"
_CHANNELS = ("hb", "control", "shell", "stdin", "iopub")


class Code:
    """VS Code's Jupyter extension: it runs the command of a kernelspec itself, and ends the process by a signal.

    Source: src/kernels/raw/launcher/kernelProcess.node.ts and kernelLauncher.node.ts of
    https://github.com/microsoft/vscode-jupyter
    """

    def __init__(self, study: Any, kind: Any, argv: list[str]) -> None:
        self._study, self._kind, self._argv = study, kind, argv
        host = "import json, subprocess, sys\nfor line in sys.stdin: print(subprocess.Popen(json.loads(line)).pid, flush=True)"
        command = [sys.executable, "-c", host]
        pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.host = subprocess.Popen(command, cwd=study.folder, env=study.env, **pipes)
        self.kernel: Any = None
        self._kernels: list[Any] = []

    def start(self) -> Any:
        """Start a kernel, with new ports and a new connection file."""
        self.file = self._study.folder / "runtime" / f"kernel-v3{secrets.token_hex(20)}.json"
        self.file.parent.mkdir(exist_ok=True)
        with contextlib.ExitStack() as held:
            free = [held.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in _CHANNELS]
            ports = {f"{name}_port": one.getsockname()[1] for name, one in zip(_CHANNELS, free, strict=True)}
        told = {"key": secrets.token_hex(16), "signature_scheme": "hmac-sha256", "transport": "tcp", "ip": "127.0.0.1"}
        self.file.write_text(json.dumps({**told, **ports, "kernel_name": "far"}))
        argv = [word.replace("{connection_file}", str(self.file)) for word in self._argv]
        self.host.stdin.write(json.dumps(argv) + "\n")
        self.host.stdin.flush()
        self.front = int(self.host.stdout.readline())
        client = BlockingKernelClient(connection_file=str(self.file))
        client.load_connection_file()
        self.kernel = self._kind(None, client)
        self._kernels.append(self.kernel)
        return self.kernel

    def interrupt(self) -> None:
        os.kill(self.front, signal.SIGINT)

    def end(self) -> None:
        """Close the notebook, or start a restart of its kernel: no message distinguishes the two."""
        self.kernel.stop()
        os.kill(self.front, signal.SIGTERM)
        self.file.unlink(missing_ok=True)

    def close(self) -> None:
        """End the extension, and its kernel."""
        for one in self._kernels:
            one.stop()
        self.host.kill()
        self.host.communicate()


@pytest.fixture
def code(study: Any, node_kernel: Any) -> Iterator[Code]:
    kind = sys.modules[node_kernel.__module__].NodeKernel
    spec = json.loads((study.add_kernel("-p", "arandu") / "far" / "kernel.json").read_text())
    made = Code(study, kind, spec["argv"])
    yield made
    made.close()


def jobs(cluster: EmbeddedCluster) -> set[str]:
    """Return the unfinished jobs."""
    states = "--states=PENDING,RUNNING,CONFIGURING"
    return set(cluster.run("squeue", "--noheader", "--format=%A", states).stdout.split())


def test_vs_code_starts_interrupts_restarts_and_ends_kernels(
    code: Code, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = code.start()
    job = kernel.value(_JOB)
    kernel.run("x = 1")
    cell = kernel.begin("import time\nprint('on', flush=True)\nwhile True: time.sleep(0.1)")
    wait_for(lambda: "on" in kernel.said(cell), "the cell runs")
    code.interrupt()
    assert kernel.end(cell).kind == "KeyboardInterrupt"
    assert kernel.value("x") == "1"

    for way in ("signal", "message"):
        if way == "message":  # Positron and Zed announce it before
            kernel.client.shutdown(restart=True)
        code.end()
        wait_for(lambda: read(str(code.file)).get("state") != "running", "its front has heard it")
        kernel = code.start()  # does not wait for the previous kernel
        assert kernel.run("x").kind == "NameError"
        assert kernel.value(_JOB) == job, f"a restart by {way} keeps the allocation"
        kernel.run("x = 1")

    code.end()
    wait_for(lambda: job not in jobs(cluster), "an end gives it back")
    wait_for(lambda: not list(code.file.parent.glob("*.slurm")), "nothing is left of it")
    kernel = code.start()
    job = kernel.value(_JOB)
    code.host.kill()
    wait_for(lambda: job not in jobs(cluster), "so does the end of VS Code: nobody could find it again")


def test_jupyter_run_runs_a_script(study: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]) -> None:
    before = jobs(cluster)
    study.add_kernel("-p", "arandu")
    script = study.folder / "script.py"
    script.write_text("import os\nprint('job', os.environ['SLURM_JOB_ID'])\n")
    command = [sys.executable, "-P", "-m", "jupyter", "run", "--kernel=far", str(script)]
    run = {"capture_output": True, "text": True, "timeout": 300, "check": False}
    ran = subprocess.run(command, cwd=study.folder, env=study.env, stdin=subprocess.DEVNULL, **run)
    assert "job " in ran.stdout, ran.stdout + ran.stderr
    wait_for(lambda: jobs(cluster) <= before, "it is given back")

    script.write_text("import time\nprint('on', flush=True)\ntime.sleep(1000)\n")
    killed = subprocess.Popen(command, cwd=study.folder, env=study.env, stdout=subprocess.PIPE, text=True)
    assert any("on" in line for line in iter(killed.stdout.readline, ""))  # the cell is running
    killed.kill()
    killed.communicate()
    wait_for(lambda: jobs(cluster) <= before, "so it is when it was killed: no notebook could find it again")


def test_a_kernel_of_r_with_ports_lives_as_any_other(
    node_kernel: Any, cluster: EmbeddedCluster, wait_for: Callable[..., Any]
) -> None:
    kernel = node_kernel("-p", "arandu", "kernel=ir", "transport=tcp")
    job = kernel.run("cat(Sys.getenv('SLURM_JOB_ID'))").stdout
    assert job in jobs(cluster)
    assert json.loads(kernel.run("cat(readLines(tail(commandArgs(), 1)))").stdout)["transport"] == "tcp"
    kernel.run("x <- 1")
    cell = kernel.begin("cat('on'); flush.console(); Sys.sleep(1000)")
    wait_for(lambda: "on" in kernel.said(cell), "the cell runs")
    kernel.manager.interrupt_kernel()
    assert kernel.end(cell).status != "ok"
    assert kernel.run("cat(x)").stdout == "1"
    kernel.manager.restart_kernel()
    kernel.listen()
    assert kernel.run("cat(x)").status == "error"
    assert kernel.run("cat(Sys.getenv('SLURM_JOB_ID'))").stdout == job
    kernel.stop()
    wait_for(lambda: job not in jobs(cluster), "the allocation is given back")
