"""Logins with the OpenSSH carrier."""

import asyncio
import os
import tempfile

import pytest

from jupyter_slurm.transport.ssh.config.ssh_config import resolve_route
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import LoginTarget, OpenSshLink, end_own_masters


@pytest.fixture
def folder(short_tmp):
    return tempfile.mkdtemp(prefix="o", dir=short_tmp)


@pytest.fixture
async def log_in(folder):
    """Return a factory: ``log_in(config, name, person, **options)`` is a transport; the login ends after the test."""
    made = []

    async def make(config, name, person, *, options=(), **more):
        way = await resolve_route(name, config_file=str(config))
        target = LoginTarget(name, tuple(options), str(config))
        link = OpenSshLink(target, way, person, folder, **{"notify": lambda line: None, "pause": 0.1, **more})
        made.append((SshTransport(link), target, way))
        return made[-1][0]

    yield make
    for transport, target, way in made:
        transport.close()
        await asyncio.to_thread(end_own_masters, target, way, folder)


@pytest.fixture
def config(tmp_path):
    """Return a factory: ``config(host, *lines)`` is another configuration of a host."""

    def make(host, *lines):
        path = tmp_path / f"config{len(os.listdir(tmp_path))}"
        path.write_text(host.client_entry(*lines))
        return path

    return make


@pytest.fixture(scope="module")
def asking(ssh_host, new_user):
    """Provide a host that accepts a password."""
    user = new_user(password="right horse")
    options = {"PasswordAuthentication": "yes", "UsePAM": "no", "MaxAuthTries": 6}
    return ssh_host(name="asking", users=[user], options=options), user
