"""Secrecy of an OpenSSH login against other users, and errors of its streams."""

import asyncio
import contextlib
import os
import threading
from pathlib import Path

import paramiko
import pytest
from ssh_hosts.openssh import Person, by_password

from jupyter_slurm.transport.ssh.shell.login_shell_check import count_sessions, has_sftp

pytestmark = pytest.mark.root


@pytest.mark.slurm
async def test_a_secret_is_in_no_command_line_environment_or_log(new_ssh_site, folder, log_in, caplog):
    caplog.set_level("DEBUG")
    site = new_ssh_site(way_in="password+code", nodes=1)
    over, seen = threading.Event(), set()

    def watch():
        while not over.is_set():
            for entry in os.listdir("/proc"):
                if entry.isdigit():
                    for name in ("cmdline", "environ"):
                        with contextlib.suppress(OSError):
                            seen.add(Path(f"/proc/{entry}/{name}").read_bytes())

    watching = threading.Thread(target=watch)
    watching.start()
    secrets = []

    def code():
        secrets.append(site.codes.next())
        return secrets[-1]

    person = Person(site.password, code)
    try:
        transport = await log_in(site.ssh_config, "login", person)
        assert (await transport.run(["hostname"])).stdout == b"login1\n"
    finally:
        over.set()
        watching.join()
    assert [prompt.host.partition(" ")[0] for prompt in person.asked] == ["gateway", "gateway"]
    assert any(b"SSH_ASKPASS=" in text for text in seen), "OpenSSH was seen"
    written = [caplog.text.encode(), *(path.read_bytes() for path in Path(folder).iterdir() if path.is_file())]
    for secret in (site.password, *secrets):
        assert not [text for text in (*seen, *written) if secret.encode() in text]


async def test_nobody_else_is_answered(login_node, config, folder, asking, log_in):
    """Check that the socket for questions is private, and that every question on it reaches the user."""
    host, _ = asking
    modes = []

    class Looking(Person):
        async def ask(self, prompt):
            for path in Path(folder).iterdir():
                modes.append((path.name, path.stat().st_mode & 0o077))
            return await super().ask(prompt)

    transport = await log_in(by_password(config, host), host.name, Looking("right horse"))
    await transport.run(["true"])
    assert modes
    assert {mode for _, mode in modes} == {0}


async def test_the_far_side_gets_no_agent_and_no_display(login_node, log_in, monkeypatch, config):
    monkeypatch.setenv("DISPLAY", ":7")
    file = config(
        login_node, "ForwardAgent yes", "ForwardX11 yes", "LocalForward 8765 127.0.0.1:22", "RequestTTY force"
    )
    transport = await log_in(file, login_node.name, Person())
    done = await transport.run(["sh", "-c", "echo ${SSH_AUTH_SOCK-none} ${DISPLAY-none} ${SSH_TTY-none}"])
    assert done.stdout == b"none none none\n"
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", 8765)


async def test_a_stream_says_why_it_cannot_be(ssh_host, log_in):
    for name, options, code in (("open", {}, 2), ("shut", {"AllowTcpForwarding": "no"}, 1)):
        host = ssh_host(name=name, options=options)
        transport = await log_in(host.ssh_config, host.name, Person())
        await transport.run(["true"])
        with pytest.raises(paramiko.ChannelException) as caught:
            await asyncio.to_thread(transport._link.dial, "127.0.0.1", 1, 10)
        assert caught.value.code == code
        assert (await transport.run(["echo", "x"])).stdout == b"x\n"


@pytest.mark.parametrize("sessions", [1, 3])
async def test_how_many_sessions_there_can_be_is_found_out(ssh_host, log_in, sessions):
    host = ssh_host(name=f"counted{sessions}", options={"MaxSessions": sessions})
    transport = await log_in(host.ssh_config, host.name, Person())
    await transport._link.connect()
    assert await count_sessions(transport._link) == sessions
    assert await has_sftp(transport._link)
    assert (await transport.run(["echo", "x"])).stdout == b"x\n"
