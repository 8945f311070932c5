"""Benchmark of tunnels and `ssh -L`, in turn, over the same hosts."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ssh_hosts import Site, SshHost

from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink
from jupyter_slurm.transport.tunnel.forwarder import Forwarder
from jupyter_slurm.transport.tunnel.local_listeners import listen_on_port

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.timeout(600)]

ROUNDS = 7
SIZE = 150_000_000  # bytes of one download
RESETS = 20_000
# Relative to `ssh -L` in the same run.
BULK_AT_LEAST = 0.85
BULK_OVER_A_JUMP_AT_LEAST = 1.0
BULK_FAR_AWAY_AT_LEAST = 1.5
SSHD_AT_MOST = 1.1
CONNECTION_AT_MOST = 3.5
ECHO_AT_MOST = 1.8

# The first byte selects a number of bytes, or an echo.
_SERVER = """
import socket, struct, threading
BLOCK = bytes(1 << 20)
def serve(connection):
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with connection:
        try:
            kind = connection.recv(1)
            if kind == b"d":
                left = struct.unpack(">Q", connection.recv(8, socket.MSG_WAITALL))[0]
                while left:
                    left -= connection.send(BLOCK[:left])
            while data := connection.recv(65536):
                connection.sendall(data)
        except OSError:
            pass
server = socket.create_server(("127.0.0.1", 0), backlog=512)
print(server.getsockname()[1], flush=True)
while True:
    threading.Thread(target=serve, args=(server.accept()[0],), daemon=True).start()
"""

# A client is a separate process, as a browser is: it prints the milliseconds, once or several times.
_CLIENT = f"""
import socket, struct, sys, time
port, kind, times = int(sys.argv[1]), sys.argv[2], int(sys.argv[3])
def connection():
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock
def download():
    with connection() as sock:
        sock.sendall(b"d" + struct.pack(">Q", {SIZE}))
        left, buffer = {SIZE}, bytearray(1 << 20)
        while left:
            got = sock.recv_into(buffer)
            assert got
            left -= got
def one_byte():
    with connection() as sock:
        sock.sendall(b"ex")
        assert sock.recv(1) == b"x"
def echo():
    with connection() as sock:
        sock.sendall(b"e")
        for _ in range(200):
            sock.sendall(b"x" * 64)
            sock.recv(64, socket.MSG_WAITALL)
for _ in range(times):
    began = time.perf_counter()
    globals()[kind]()
    print((time.perf_counter() - began) * 1000)
"""


@pytest.fixture
def served() -> Iterator[Callable[[SshHost, str], int]]:
    running: list[subprocess.Popen[str]] = []

    def start(host: SshHost, user: str) -> int:
        argv = host.command("/usr/bin/python3", "-c", _SERVER, user=user)
        running.append(subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, start_new_session=True))
        assert running[-1].stdout is not None
        return int(running[-1].stdout.readline())

    yield start
    for process in running:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def gate(key: Path, code: Callable[[], str] | None = None) -> HostVerifier:
    """Answer the prompts; the package's login has separate tests."""
    private = paramiko.Ed25519Key.from_private_key_file(str(key))

    def login(host: HostConfig, transport: paramiko.Transport) -> None:
        more = transport.auth_publickey(host.user, private)
        if more and code is not None:
            transport.auth_interactive(host.user, lambda title, text, asked: [code() for _ in asked])

    return HostVerifier(lambda host, shown: None, login)


@contextlib.asynccontextmanager
async def ours(way: list[HostConfig], who: HostVerifier, port: int) -> AsyncIterator[int]:
    """Provide the local port of a tunnel of jupyter_slurm."""
    link = ParamikoLink(way, who)
    transport = SshTransport(link)
    await link.connect()
    listener = listen_on_port(range(18000, 19000), among="those of the bench")
    forwarder = Forwarder(listener, lambda: transport.dial("127.0.0.1", port, 20))
    assert isinstance(forwarder.address, int)
    yield forwarder.address
    forwarder.close()
    transport.close()


@contextlib.contextmanager
def theirs(ssh: list[str], port: int, **options: Any) -> Iterator[int]:
    """Provide the local port of a tunnel of OpenSSH."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        local = free.getsockname()[1]
    forward = f"127.0.0.1:{local}:127.0.0.1:{port}"
    with subprocess.Popen([*ssh, "-N", "-L", forward], stderr=subprocess.DEVNULL, **options) as process:
        deadline = time.monotonic() + 30
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", local)):
                break
            assert time.monotonic() < deadline
            time.sleep(0.02)
        yield local
        process.terminate()


def connection(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port), 60)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return sock


def sshd_seconds(host: SshHost) -> float:
    """Return the processor time of all sshd of a host."""
    ticks = 0
    for pid, name in host.processes().items():
        if name.startswith("sshd"):
            with contextlib.suppress(OSError):
                fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def timed(port: int, kind: str, times: int = 1) -> list[float]:
    argv = [sys.executable, "-c", _CLIENT, str(port), kind, str(times)]
    done = subprocess.run(argv, check=True, capture_output=True, text=True, timeout=120)
    return [float(line) for line in done.stdout.split()]


async def compare(table: Any, kind: str, mine: int, other: int, rounds: int = ROUNDS, times: int = 1) -> float:
    """Run a function in turn over both, and return the time ratio of jupyter_slurm's to OpenSSH's."""
    for number in range(rounds + 1):
        for row, port in (("ssh -L", other), ("jupyter_slurm", mine)):
            for took in await asyncio.to_thread(timed, port, kind, times):
                if number:
                    table.add(row, took)
    return float(table.ratio("jupyter_slurm", "ssh -L"))


async def test_one_hop(
    ssh_host: Callable[..., SshHost], served: Callable[..., int], new_table: Callable[[str], Any]
) -> None:
    host = ssh_host(name="near")
    port = served(host, host.user)
    ssh = ["ssh", "-F", str(host.ssh_config), "-o", "BatchMode=yes", host.name]
    way = [HostConfig(host.name, host.address, host.port, host.user)]
    with theirs(ssh, port) as other:
        async with ours(way, gate(host.key), port) as mine:
            bulk = await compare(new_table(f"Download of {SIZE // 10**6} MB"), "download", mine, other)
            fresh = await compare(new_table("New connection and one byte"), "one_byte", mine, other, times=30)
            back = await compare(new_table("200 echoes of 64 bytes"), "echo", mine, other, times=3)
    spent = {}
    for name in ("theirs", "ours"):
        async with contextlib.AsyncExitStack() as stack:
            if name == "ours":
                local = await stack.enter_async_context(ours(way, gate(host.key), port))
            else:
                local = stack.enter_context(theirs(ssh, port))
            before = sshd_seconds(host)
            for _ in range(4):
                await asyncio.to_thread(timed, local, "download")
            spent[name] = sshd_seconds(host) - before
    print(f"sshd: {spent}")
    assert 1 / bulk >= BULK_AT_LEAST
    assert fresh <= CONNECTION_AT_MOST
    assert back <= ECHO_AT_MOST
    assert spent["ours"] <= SSHD_AT_MOST * spent["theirs"]


async def test_over_a_jump_host(ssh_site: Site, served: Callable[..., int], new_table: Callable[[str], Any]) -> None:
    site = ssh_site
    port = served(site.logins["login1"], site.user)
    (site.directory / "code").write_text(site.codes.next() + "\n")
    ssh = site.client("login1")
    hosts = [("gateway", site.gateway.address), ("login1", site.logins["login1"].address)]
    way = [HostConfig(name, address, 22, site.user) for name, address in hosts]
    with theirs(ssh, port, env=site.askpass_environment()) as other:
        async with ours(way, gate(site.key, site.codes.next), port) as mine:
            bulk = await compare(new_table("Download over a jump host"), "download", mine, other)
            await compare(new_table("New connection over a jump host"), "one_byte", mine, other, times=10)
    assert 1 / bulk >= BULK_OVER_A_JUMP_AT_LEAST


async def test_far_away(
    ssh_host: Callable[..., SshHost], served: Callable[..., int], new_table: Callable[[str], Any]
) -> None:
    host = ssh_host(name="far", round_trip=0.05)
    port = served(host, host.user)
    ssh = ["ssh", "-F", str(host.ssh_config), "-o", "BatchMode=yes", host.name]
    way = [HostConfig(host.name, host.address, host.port, host.user)]
    with theirs(ssh, port) as other:
        async with ours(way, gate(host.key), port) as mine:
            bulk = await compare(new_table("Download at 50 ms of round trip"), "download", mine, other, 3)
    assert 1 / bulk >= BULK_FAR_AWAY_AT_LEAST


async def test_resets_lose_no_connection(ssh_host: Callable[..., SshHost], served: Callable[..., int]) -> None:
    """Clients that disconnect in the middle of a download, and while they send."""
    host = ssh_host(name="reset")
    port = served(host, host.user)
    link = ParamikoLink([HostConfig(host.name, host.address, host.port, host.user)], gate(host.key))
    transport = SshTransport(link)
    await link.connect()
    listener = listen_on_port(range(18000, 19000), among="those of the bench")
    forwarder = Forwarder(listener, lambda: transport.dial("127.0.0.1", port, 20))
    assert isinstance(forwarder.address, int)
    local = forwarder.address

    def break_off(times: int) -> None:
        for number in range(times):
            sock = connection(local)
            sock.sendall(b"d" + struct.pack(">Q", 300_000) if number % 2 else b"e" + b"x" * 5000)
            if number % 3:
                sock.recv(1000)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            sock.close()

    threads = [threading.Thread(target=break_off, args=(RESETS // 8,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        await asyncio.to_thread(thread.join)
    await asyncio.to_thread(timed, local, "one_byte")
    assert link.generation == 1
    forwarder.close()
    transport.close()
