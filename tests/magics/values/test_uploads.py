"""Tests of uploads with a cell over a slow line: progress is shown, and an interrupt cancels the upload."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import Way

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko", "openssh")]

WaitFor = Callable[..., Any]
SIZE = 30_000_000
RATE = 5_000_000
TOLD = re.compile(r"\rvalues to far: (\d+) of 30 MB")


class SlowLine:
    """A local port that leads to a host; data to the host is slow while ``rate`` (bytes/s) is set."""

    def __init__(self, host: SshHost) -> None:
        self.host, self.rate = host, 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._begin(self._accept)

    def _begin(self, work: Callable[..., None], *args: Any) -> None:
        self._threads.append(threading.Thread(target=work, args=args, daemon=True))
        self._threads[-1].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the socket is closed
            while True:
                near = self._listener.accept()[0]
                far = socket.create_connection((self.host.address, self.host.port))
                self._ends += [near, far]
                self._begin(self._carry, near, far, True)
                self._begin(self._carry, far, near, False)

    def _carry(self, source: socket.socket, target: socket.socket, is_slow: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                target.sendall(data)
                if is_slow and self.rate:
                    time.sleep(len(data) / self.rate)
        self._end(source, target)

    def _end(self, *ends: socket.socket) -> None:
        for end in ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def cut(self) -> None:
        """Break all connections."""
        self._end(*self._ends)

    def close(self) -> None:
        """Close the port."""
        self._end(self._listener)
        self.cut()
        for thread in self._threads:
            thread.join()
        for end in (self._listener, *self._ends):
            end.close()


@pytest.fixture(scope="module")
def line(way: Way) -> Iterator[SlowLine | None]:
    line = SlowLine(way.host) if way.host else None
    yield line
    if line:
        line.close()


@pytest.fixture(scope="module")
def environment(line: SlowLine | None, home: Path, environment: dict[str, str]) -> Iterator[dict[str, str]]:
    """Provide the environment of a kernel whose cluster is behind the slow line."""
    if line is not None:
        alias = f"[{line.host.address}]:{line.host.port}"
        (home / "ssh").write_text(line.host.client_entry(f"Port {line.port}", f"HostKeyAlias {alias}"))
        profile = home / "sites" / "far.toml"
        profile.write_text(profile.read_text().replace(str(line.host.ssh_config), str(home / "ssh")))
    yield environment
    if line is not None:
        line.rate = 0


def _told(kernel: Any, request: str) -> list[int]:
    """Return the MB shown under a cell."""
    kernel.pump()
    texts = [m["content"]["text"] for m in kernel.under(request) if m["msg_type"] == "stream"]
    return [int(number) for number in TOLD.findall("".join(texts))]


def _interrupted(kernel: Any, line: SlowLine, cell: str, wait_for: WaitFor) -> Any:
    """Interrupt a cell during its upload; return its result."""
    line.rate = RATE
    request = kernel.begin(cell)
    wait_for(lambda: _told(kernel, request), "it is told how far it is")
    kernel.manager.signal_kernel(signal.SIGINT)
    ran = kernel.end(request)
    line.rate = 0
    assert ran.error == "WaitInterrupted"
    assert re.search(
        "Interrupted while data was sent to far, after [0-9]+ of 30 MB: nothing was submitted", ran.traceback
    )
    return ran


def _folders(home: Path) -> list[str]:
    return sorted(os.listdir(next((home / "jobs").iterdir())))


@pytest.mark.slow
def test_an_upload_is_told_outlasts_a_break_and_ends_with_an_interrupt(
    kernel: Any, line: SlowLine | None, home: Path, wait_for: WaitFor
) -> None:
    kernel.ok("%%sbatch wait\n1")
    kernel.ok(f"import os, hashlib\nmany = os.urandom({SIZE})")
    if line is None:  # on the cluster itself there is no upload
        assert "MB" not in kernel.ok("%%sbatch in=many wait\nlen(many)").stderr
        return
    line.rate = RATE
    request = kernel.begin("%%sbatch in=many out=seen as=job\nimport hashlib\nseen = hashlib.sha256(many).hexdigest()")
    wait_for(lambda: _told(kernel, request), "it is told how far it is")
    line.cut()
    line.rate = 0
    ran = kernel.end(request)
    assert ran.status == "ok", ran.traceback
    told = _told(kernel, request)
    assert told == sorted(told)
    assert ran.stderr.endswith("30 of 30 MB\n")
    assert kernel.value("job.wait().outputs['seen'] == hashlib.sha256(many).hexdigest()") == "True"

    known = kernel.value("len(__import__('jupyter_slurm').jobs())"), _folders(home)
    _interrupted(kernel, line, "%%sbatch in=many\n1", wait_for)
    assert (kernel.value("len(__import__('jupyter_slurm').jobs())"), _folders(home)) == known

    # An interrupt before the agent has started to send.
    kernel.ok(
        "from jupyter_slurm.client.jobs import upload as sending\nfollowed = sending._follow_upload\n"
        "def early(*_): sending._follow_upload = followed; raise KeyboardInterrupt\nsending._follow_upload = early"
    )
    line.rate = RATE
    assert "nothing was submitted" in kernel.run("%%sbatch in=many\n1").traceback
    line.rate = 0
    assert (kernel.value("len(__import__('jupyter_slurm').jobs())"), _folders(home)) == known

    kernel.ok("%salloc as=gpu wait")
    kernel.ok("%%remote\nlate = 1")
    before = _folders(home)
    _interrupted(kernel, line, "%%remote in=many\nlate = len(many)", wait_for)
    assert _folders(home) == before
    assert kernel.ok("%%remote\nlate").stdout == "1\n"
    assert kernel.ok("%%remote in=many\nlen(many)").stdout == f"{SIZE}\n"
    kernel.ok("gpu.release()")
