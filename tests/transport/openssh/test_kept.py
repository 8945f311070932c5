"""Logins that outlive the process, and masters of the user: the OpenSSH carrier."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from ssh_hosts.openssh import Person, gone, masters

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route
from jupyter_slurm.transport.ssh.via_openssh import openssh_link as openssh
from jupyter_slurm.transport.ssh.via_openssh.login import OpenSshLogin
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import LoginTarget, OpenSshLink, end_own_masters

pytestmark = pytest.mark.root


_KILLED = """
import asyncio, sys
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import OpenSshLink, LoginTarget
from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route
from jupyter_slurm.transport.ssh.shell.login_shell_check import count_sessions, has_sftp
from jupyter_slurm.transport.ssh.transport import SshTransport

class Person:
    async def ask(self, prompt):
        print("asked", prompt.host, flush=True)
        return [sys.stdin.readline().strip()]

async def main(config, folder):
    way = await resolve_route("login", config_file=config)
    transport = SshTransport(OpenSshLink(LoginTarget("login", (), config), way, Person(), folder))
    print((await transport.run(["hostname"])).stdout.decode().strip(), flush=True)
    await transport.run(["sleep", "1000"], timeout=None)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slurm
async def test_a_log_in_with_a_code_survives_that_its_process_is_killed(ssh_site, folder, log_in):
    used = ssh_site.codes.used
    argv = [sys.executable, "-c", _KILLED, str(ssh_site.ssh_config), folder]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            asked = await asyncio.to_thread(process.stdout.readline)
            assert asked.startswith("asked gateway (")
            process.stdin.write(ssh_site.codes.next() + "\n")
            process.stdin.flush()
            assert (await asyncio.to_thread(process.stdout.readline)).strip() == "login1"
        finally:
            process.send_signal(signal.SIGKILL)
    assert len(masters(folder)) == 1
    transport = await log_in(ssh_site.ssh_config, "login", Person())
    assert (await transport.run(["hostname"])).stdout == b"login1\n"
    assert ssh_site.codes.used == used + 1
    transport.close()
    await gone(folder)
    assert sorted(name.rpartition(".")[2] for name in os.listdir(folder)) == ["askpass", "conf", "lock", "log"]


async def test_what_is_let_go_is_found_again_and_ends_when_that_is_said(login_node, folder, log_in):
    one = await log_in(login_node.ssh_config, login_node.name, Person())
    await one.run(["true"])
    (master,) = masters(folder)
    one.close(keep=True)
    again = await log_in(login_node.ssh_config, login_node.name, Person(), ping=0.1)
    await again.run(["true"])
    assert masters(folder) == [master]
    # A site that ends idle programs on login nodes, as many do, ends the echo session but not the login.
    before = _echoes(login_node)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(60):
        while not _echoes(login_node) - before:
            await asyncio.sleep(0.05)
    assert masters(folder) == [master]
    again.close()
    await gone(folder)


def _echoes(host):
    return {pid for pid, name in host.processes().items() if name == "cat"}


@pytest.mark.parametrize("ends", [False, True])
async def test_who_leaves_while_it_logs_in_leaves_nothing_open(login_node, folder, monkeypatch, ends):
    way = await resolve_route(login_node.name, config_file=str(login_node.ssh_config))
    target = LoginTarget(login_node.name, (), str(login_node.ssh_config))
    link = OpenSshLink(target, way, Person(), folder)
    master = link.new_connection()
    log_in = OpenSshLogin.run

    def run(login):
        log_in(login)
        (master.close if ends else master.leave)()  # from another thread, at this moment

    monkeypatch.setattr(OpenSshLogin, "run", run)
    await asyncio.to_thread(master.open)
    assert not master.is_alive
    assert _open_ones(folder) == []
    if ends:
        await gone(folder)
    await asyncio.to_thread(end_own_masters, target, way, folder)
    link.close()


def test_a_loop_that_ends_while_its_link_connects_leaves_nothing_open(login_node, folder, monkeypatch):
    """Check a connection that is open before its link is closed, for a task that no longer is."""
    target = LoginTarget(login_node.name, (), str(login_node.ssh_config))
    begun, go_on, opened = threading.Event(), threading.Event(), threading.Event()
    open_master = openssh.ControlMaster.open

    def open_later(master):
        begun.set()
        go_on.wait(60)
        open_master(master)
        opened.set()

    async def leave():
        way = await resolve_route(login_node.name, config_file=str(login_node.ssh_config))
        link = OpenSshLink(target, way, Person(), folder)
        connecting = asyncio.ensure_future(link.connect())
        await asyncio.to_thread(begun.wait, 60)
        assert not connecting.done()
        return link

    monkeypatch.setattr(openssh.ControlMaster, "open", open_later)
    link = asyncio.run(leave())
    go_on.set()
    assert opened.wait(60)
    assert _open_ones(folder)
    link.close()
    asyncio.run(gone(folder))
    deadline = time.monotonic() + 60
    while _open_ones(folder):
        assert time.monotonic() < deadline
        time.sleep(0.05)


async def test_a_master_that_ends_when_it_is_found_costs_a_log_in_and_no_more(login_node, folder, log_in, monkeypatch):
    one = await log_in(login_node.ssh_config, login_node.name, Person())
    await one.run(["true"])
    (master,) = masters(folder)
    one.close(keep=True)
    find, found = openssh.ControlMaster._find, []

    def find_and_end(self, path):
        is_found = find(self, path)
        if is_found and not found:
            found.append(path)
            os.kill(master, signal.SIGTERM)
            self.join(60)
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        return is_found

    monkeypatch.setattr(openssh.ControlMaster, "_find", find_and_end)
    again = await log_in(login_node.ssh_config, login_node.name, Person())
    assert (await again.run(["echo", "x"])).stdout == b"x\n"
    assert found
    assert masters(folder) not in ([master], [])


async def test_who_finds_a_link_closed_does_not_end_the_log_in_that_is_kept(login_node, folder, log_in, monkeypatch):
    one = await log_in(login_node.ssh_config, login_node.name, Person())
    await one.run(["true"])
    (master,) = masters(folder)
    connection = one._link._connection
    stop_pulse, done = connection._stop_pulse, []

    def stop_and_find():
        stop_pulse()
        if not done:
            done.append(True)
            connection.close()  # as another thread does that finds this one no longer alive
            done.append(True)

    monkeypatch.setattr(connection, "_stop_pulse", stop_and_find)
    one.close(keep=True)
    async with asyncio.timeout(60):
        while len(done) < 2 or _open_ones(folder):
            await asyncio.sleep(0.05)
    assert masters(folder) == [master]


async def test_a_session_that_nobody_waits_for_any_more_is_closed(login_node, folder, log_in, monkeypatch):
    one = await log_in(login_node.ssh_config, login_node.name, Person())
    await one.run(["true"])
    connection, open_session = one._link._connection, openssh.ControlMaster.open_session
    begun, go_on = threading.Event(), threading.Event()

    def open_later(master, timeout):
        begun.set()
        go_on.wait(60)
        return open_session(master, timeout)

    monkeypatch.setattr(openssh.ControlMaster, "open_session", open_later)
    before = set(connection._channels)
    asked = asyncio.ensure_future(one._link.open_session(None))
    await asyncio.to_thread(begun.wait, 60)
    asked.cancel()
    await asyncio.sleep(0)
    add, added = connection._add_channel, []
    monkeypatch.setattr(connection, "_add_channel", lambda channel: (add(channel), added.append(channel)))
    go_on.set()
    async with asyncio.timeout(60):
        while not added or connection._channels - before:
            await asyncio.sleep(0.05)


def _open_ones(folder):
    return [one for one in os.listdir("/proc/self/fd") if _leads_to(one, folder)]


def _leads_to(number, folder):
    """Return whether a file of this process is a socket with its other end in a folder."""
    try:
        copy = os.dup(int(number))
    except OSError:
        return False
    try:
        end = socket.socket(fileno=copy)
    except OSError:  # not a socket
        os.close(copy)
        return False
    with end, contextlib.suppress(OSError):  # no peer
        return str(end.getpeername()).startswith(folder)
    return False


async def test_the_age_of_a_log_in_counts_over_restarts(login_node, folder, log_in):
    one = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await one.run(["true"])
    (master,), began = masters(folder), one._link.since
    one.close(keep=True)
    again = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await again.run(["true"])
    assert masters(folder) == [master]
    assert abs(again._link.since - began) < 2
    again.close(keep=True)
    (path,) = (entry for entry in Path(folder).iterdir() if entry.is_socket())
    os.utime(path, (time.time() - 3700,) * 2)
    third = await log_in(login_node.ssh_config, login_node.name, Person(), max_age=3600)
    await third.run(["true"])
    assert masters(folder) != [master]
    assert len(masters(folder)) == 1
    assert time.time() - third._link.since < 60


async def test_two_at_once_share_one_log_in(login_node, folder, log_in):
    pair = [await log_in(login_node.ssh_config, login_node.name, Person()) for _ in range(2)]
    await asyncio.gather(*(one.run(["true"]) for one in pair))
    assert len(masters(folder)) == 1


async def test_a_folder_that_others_can_write_to_is_refused(login_node, folder, log_in):
    os.chmod(folder, 0o777)
    transport = await log_in(login_node.ssh_config, login_node.name, Person())
    with pytest.raises(TransportError, match="is not a directory of yours"):
        await transport.run(["true"])
    os.chmod(folder, 0o700)


@pytest.fixture
def own_master(config, short_tmp):
    """Return a factory: ``own_master(host)`` is a configuration, and a function that queries the user's open master."""
    ended = contextlib.ExitStack()

    def make(host):
        path = tempfile.mktemp(prefix="c", dir=short_tmp)
        file = config(host, f"ControlPath {path}")

        def ask(command):
            argv = ["ssh", "-F", str(file), "-O", command, host.name]
            return subprocess.run(argv, capture_output=True, check=False).returncode == 0

        subprocess.run(["ssh", "-F", str(file), "-M", "-N", "-f", host.name], check=True, stderr=subprocess.DEVNULL)
        ended.callback(ask, "exit")
        return file, ask

    yield make
    ended.close()


async def test_a_master_of_the_person_is_used_and_left_alone(login_node, folder, log_in, own_master):
    file, ask = own_master(login_node)
    transport = await log_in(file, login_node.name, Person())
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert masters(folder) == []
    transport.close()
    await asyncio.sleep(0.5)
    assert ask("check")


@pytest.mark.parametrize("sessions", [1, 2])
async def test_a_master_of_the_person_with_few_sessions(ssh_host, log_in, own_master, sessions):
    host = ssh_host(name=f"meagre{sessions}", options={"MaxSessions": sessions})
    file, ask = own_master(host)
    transport = await log_in(file, host.name, Person())
    await transport._link.connect()
    done = await asyncio.gather(*(transport.run(["echo", "x"]) for _ in range(6)))
    assert done == [Completed(0, b"x\n", b"")] * 6
    await transport._link.probe()
    transport.close()
    await asyncio.sleep(0.2)
    assert ask("check")


async def test_a_master_of_the_person_whose_host_is_gone_is_found_out(ssh_host, log_in, own_master):
    host = ssh_host(name="dark")
    file, ask = own_master(host)
    told = []
    transport = await log_in(file, host.name, Person(), notify=told.append, ping=1.0, deadline=3.0)
    await transport.run(["true"])
    host.drop()
    begin = time.monotonic()
    while not told:
        await asyncio.sleep(0.05)
        assert time.monotonic() - begin < 60
    host.restore()
    assert (await transport.run(["echo", "back"])).stdout == b"back\n"
    assert ask("check")


async def test_a_person_who_ends_the_master_loses_nothing(login_node, folder, log_in, own_master):
    file, ask = own_master(login_node)
    transport = await log_in(file, login_node.name, Person())
    await transport.run(["true"])
    assert ask("exit")

    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(TransportError):
                await transport.run(["true"])
                break
    assert len(masters(folder)) == 1


async def test_a_socket_of_another_user_is_no_master(login_node, config, log_in, folder, short_tmp, bob):
    shared = short_tmp / "shared"  # another user cannot change what lies beside it
    shared.mkdir()
    shared.chmod(0o777)
    path = shared / "theirs.sock"
    script = (
        "import socket, sys, time; s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); s.listen(); time.sleep(100)"
    )
    short_tmp.chmod(0o711)
    with subprocess.Popen(["/usr/bin/python3", "-c", script, str(path)], user=bob) as process:
        try:
            while not path.exists():
                await asyncio.sleep(0.05)
            path.chmod(0o777)
            transport = await log_in(config(login_node, f"ControlPath {path}"), login_node.name, Person())
            assert (await transport.run(["echo", "x"])).stdout == b"x\n"
            assert len(masters(folder)) == 1
        finally:
            process.kill()


HELLO = b"\0\0\0\x08\0\0\0\1\0\0\0\4"


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"\0\0\0\1x",
        b"\xff" * 64,
        b"\0\0\0\x08\0\0\0\1\0\0\0\3",
        b"HTTP/1.1 400 \r\n\r\n",
        HELLO + b"\0\0\0\0",
        HELLO + b"\0\0\0\x08\x80\0\0\5\0\0\0\1",
    ],
)
async def test_what_is_no_master_is_left_alone(login_node, config, log_in, folder, short_tmp, said):
    path = short_tmp / "odd.sock"
    with contextlib.suppress(FileNotFoundError):
        path.unlink()

    async def serve(reader, writer):
        writer.write(said)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            await writer.drain()
            if said.startswith(HELLO):
                await reader.readexactly(24)  # two messages
        writer.close()

    async with await asyncio.start_unix_server(serve, path):
        transport = await log_in(config(login_node, f"ControlPath {path}"), login_node.name, Person())
        assert (await transport.run(["echo", "x"])).stdout == b"x\n"
    assert len(masters(folder)) == 1


async def test_a_master_that_hangs_is_replaced(login_node, log_in, folder, monkeypatch):
    monkeypatch.setattr(openssh, "_ANSWER_TIMEOUT_S", 1.0)
    one = await log_in(login_node.ssh_config, login_node.name, Person(), ping=0.5, deadline=3.0)
    await one.run(["true"])
    (master,) = masters(folder)
    os.kill(master, signal.SIGSTOP)
    async with asyncio.timeout(60):
        while masters(folder) in ([master], []):
            await asyncio.sleep(0.05)
    assert (await one.run(["echo", "x"])).stdout == b"x\n"


async def test_a_control_socket_that_is_removed_costs_a_log_in_and_no_more(login_node, log_in, folder):
    one = await log_in(login_node.ssh_config, login_node.name, Person(), ping=0.5)
    await one.run(["true"])
    (path,) = (entry for entry in Path(folder).iterdir() if entry.is_socket())
    path.unlink()
    async with asyncio.timeout(60):
        while not any(entry.is_socket() for entry in Path(folder).iterdir()):
            await asyncio.sleep(0.05)
    assert (await one.run(["echo", "x"])).stdout == b"x\n"
