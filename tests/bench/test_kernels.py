"""Benchmark of a kernel on a node behind two hosts, compared with the same kernel with ports forwarded by `ssh -L`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.blocking.client import BlockingKernelClient
from jupyter_client.connect import write_connection_file
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import KernelManager
from replicas import Replica

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(900)]

SITE = "aau-aicloud"  # the site with a gateway
CELLS = 200
ROUNDS = 5
SIZE = 100_000_000  # bytes that a cell prints
# Relative to `ssh -L` in the same run.
CELL_AT_MOST = 1.3
OUTPUT_AT_LEAST = 0.8

OUTPUT = f"line = 'x' * 99_999 + '\\n'\nimport sys\nfor _ in range({SIZE} // 100_000): sys.stdout.write(line)"


class Measured:
    """A started kernel, and the duration of its cells."""

    def __init__(self, client: BlockingKernelClient) -> None:
        self.client = client
        client.start_channels(hb=False)
        client.wait_for_ready(timeout=120)
        self.run("pass")

    def run(self, code: str) -> tuple[float, int]:
        """Run a cell to its last message; return the milliseconds, and the size of its output."""
        began, printed = time.perf_counter(), 0
        cell = self.client.execute(code)
        while True:
            told = self.client.get_iopub_msg(timeout=120)
            if told["parent_header"].get("msg_id") != cell:
                continue
            if told["msg_type"] == "stream":
                printed += len(told["content"]["text"])
            if told["content"].get("execution_state") == "idle":
                break
        while self.client.get_shell_msg(timeout=120)["parent_header"].get("msg_id") != cell:
            pass
        return (time.perf_counter() - began) * 1000, printed


@pytest.fixture
def node_python(user_python: tuple[list[str], dict[str, str]]) -> tuple[str, str]:
    """Provide a Python that the user on the site can run, and the packages that a kernel needs."""
    return user_python[0][0], ":".join(entry for entry in sys.path if entry.endswith("-packages"))


@pytest.fixture
def ours(replicas: Callable[[str], Replica], node_python: tuple[str, str]) -> Iterator[Measured]:
    """Provide the kernel as its laptop has it."""
    laptop = replicas(SITE).laptop
    python, packages = node_python
    asked = ["-p", "batch", "-c", "2", "--mem=2G", f"--export=ALL,PYTHONPATH={packages}", f"python={python}"]
    argv = [sys.executable, "-m", "jupyter_slurm.kernels", "-f", "{connection_file}", SITE, *asked]
    metadata = {"kernel_provisioner": {"provisioner_name": "jupyter-slurm"}}
    place = laptop.home / "kernels" / "far"
    place.mkdir(parents=True)
    spec = {"argv": argv, "display_name": "far", "language": "python", "metadata": metadata}
    (place / "kernel.json").write_text(json.dumps(spec))
    specs = KernelSpecManager(kernel_dirs=[str(place.parent)], ensure_native_kernel=False)
    manager = KernelManager(kernel_name="far", kernel_spec_manager=specs)
    path = os.pathsep.join(entry for entry in sys.path if entry)
    manager.start_kernel(env={**laptop.env, "PYTHONPATH": path}, cwd=str(laptop.home))
    measured = Measured(manager.blocking_client())
    yield measured
    measured.client.stop_channels()
    manager.shutdown_kernel()


@pytest.fixture
def by_hand(replicas: Callable[[str], Replica], node_python: tuple[str, str]) -> Iterator[Measured]:
    """Provide the same kernel on a node, with ports forwarded by OpenSSH over the same two hosts."""
    replica = replicas(SITE)
    node = next(iter(replica.nodes.values()))
    folder = Path(tempfile.mkdtemp(prefix="jsb-", dir="/tmp"))
    file, about = write_connection_file(str(folder / "connection.json"), key=os.urandom(16).hex().encode())
    ports = [about[name] for name in about if name.endswith("_port")]
    inside = replica.home / "by-hand.json"
    shutil.copy(file, inside)
    inside.chmod(0o644)
    python, packages = node_python
    there = f"{replica.site.storage.home}/by-hand.json"
    words = ["env", f"PYTHONPATH={packages}", "HOME=/tmp", python, "-m", "ipykernel_launcher", "-f", there]
    kernel = node.command(*words, user=replica.user)
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, folder)
        for argv, env in (
            (kernel, None),
            (_forwarding(replica, node.name, ports, folder), _answers(replica, folder)),
        ):
            process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, start_new_session=True)
            stack.callback(process.wait)
            stack.callback(process.terminate)
        for port in ports:
            _wait_for(port)
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        stack.callback(client.stop_channels)
        yield Measured(client)
        client.shutdown()


def _forwarding(replica: Replica, node: str, ports: list[int], folder: Path) -> list[str]:
    """Return the command line of an OpenSSH that forwards each port of the node's loopback to the same local port."""
    forwards = [word for port in ports for word in ("-L", f"{port}:127.0.0.1:{port}")]
    return [
        "ssh",
        "-F",
        str(replica.laptop.ssh_config),
        "-N",
        "-o",
        "ExitOnForwardFailure=yes",
        "-i",
        str(replica.key),
        *forwards,
        node,
    ]


def _answers(replica: Replica, folder: Path) -> dict[str, str]:
    """Return an environment in which OpenSSH gets the password, and the present one-time code."""
    asked = folder / "askpass"
    (folder / "password").write_text(replica.password + "\n")
    (folder / "code").write_text(replica.codes.next() + "\n")
    asked.write_text(f"#!/bin/sh\ncase $1 in *erification*) cat {folder}/code ;; *) cat {folder}/password ;; esac\n")
    asked.chmod(0o755)
    return {**os.environ, "SSH_ASKPASS": str(asked), "SSH_ASKPASS_REQUIRE": "force"}


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + 60
    while True:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        assert time.monotonic() < deadline, "no forwarding"
        time.sleep(0.05)


def test_cells_and_output_cost_little_more_than_over_forwarded_ports(
    ours: Measured, by_hand: Measured, new_table: Callable[[str], Any]
) -> None:
    cells, output = new_table("An empty cell, over two hops"), new_table(f"{SIZE // 10**6} MB of output, over two hops")
    rows = {"ssh -L": by_hand, "jupyter_slurm": ours}
    for number in range(CELLS + 5):
        for row, kernel in rows.items():
            took, _ = kernel.run("pass")
            if number >= 5:
                cells.add(row, took)
    for number in range(ROUNDS + 1):
        for row, kernel in rows.items():
            took, printed = kernel.run(OUTPUT)
            assert printed == SIZE, "nothing is lost"
            if number:
                output.add(row, took)
    assert cells.ratio("jupyter_slurm", "ssh -L") <= CELL_AT_MOST, cells.lines()
    assert 1 / output.ratio("jupyter_slurm", "ssh -L") >= OUTPUT_AT_LEAST, output.lines()
