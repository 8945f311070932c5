"""Tests of hosts that refuse a connection for a while, or every command until the password is changed."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.ssh.protocols import ClosedEarly

pytestmark = pytest.mark.root

CARRIERS = ("paramiko", "openssh")
PAM = "auth required pam_unix.so\naccount required pam_unix.so\nsession required pam_permit.so\n"


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_an_expired_password_is_named_with_the_way_to_change_it(
    ssh_host: Callable[..., SshHost],
    new_user: Callable[..., str],
    connect_by: Callable[..., Any],
    carrier: str,
    tmp_path: Path,
) -> None:
    """The key is accepted, and sshd runs no command before the password is changed."""
    user, pam = new_user(password="Old.Secret.1"), tmp_path / "pam"
    pam.write_text(PAM)
    subprocess.run(["passwd", "--expire", user], check=True, capture_output=True)
    host = ssh_host(name="aged", users=[user], options={"UsePAM": "yes"}, mounts={"/etc/pam.d/sshd": pam})
    try:
        with pytest.raises(TransportError, match=r"(?s)login shell ended.*password has expired") as caught:
            await connect_by(carrier, host).transport.run(["true"])
        assert "until you have changed your password. Run `ssh HOST` in a terminal" in caught.value.hint
    finally:
        host.close()


@contextlib.contextmanager
def crowd(host: SshHost) -> Iterator[None]:
    """Open connections without a login until the host closes the next one at once."""
    with contextlib.ExitStack() as stack:
        while stack.enter_context(socket.create_connection((host.address, host.port))).recv(4) == b"SSH-":
            pass
        yield


@pytest.fixture
def busy(ssh_host: Callable[..., SshHost]) -> Iterator[SshHost]:
    """Provide a host with room for two logins at a time."""
    host = ssh_host(name="busy", options={"MaxStartups": 2})
    yield host
    host.close()


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_host_with_too_many_logins_at_a_time_is_tried_again(
    busy: SshHost, connect_by: Callable[..., Any], carrier: str
) -> None:
    one = connect_by(carrier, busy)
    with crowd(busy):
        before = busy.log.count("past MaxStartups")
        running = asyncio.create_task(one.transport.run(["echo", "x"]))
        async with asyncio.timeout(30):
            while busy.log.count("past MaxStartups") == before:
                assert not running.done()
                await asyncio.sleep(0.02)
    assert (await running).stdout == b"x\n"


@pytest.mark.parametrize("carrier", CARRIERS)
async def test_a_host_that_stays_full_is_told_with_the_reason(
    busy: SshHost, connect_by: Callable[..., Any], carrier: str
) -> None:
    one = connect_by(carrier, busy)
    with crowd(busy):
        before = busy.log.count("past MaxStartups")
        with pytest.raises(ClosedEarly, match=r"busy .* closed the connection before the login") as caught:
            await one.link.connect()
        assert "MaxStartups" in caught.value.hint
        assert busy.log.count("past MaxStartups") == before + 5
