"""Log-ins that OpenSSH carries."""

import asyncio
import os
import tempfile

import pytest

from jupyter_slurm.transport.ssh.config.ssh_config import way_to
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_openssh.link import LoginTarget, OpenSshLink, end_kept


@pytest.fixture
def folder(short_tmp):
    return tempfile.mkdtemp(prefix="o", dir=short_tmp)


@pytest.fixture
async def log_in(folder):
    """``log_in(config, name, person, **options)``: a transport; at the end the log-in is ended, too."""
    made = []

    async def make(config, name, person, *, options=(), **more):
        way = await way_to(name, config_file=str(config))
        target = LoginTarget(name, tuple(options), str(config))
        link = OpenSshLink(target, way, person, folder, **{"told": lambda line: None, "pause": 0.1, **more})
        made.append((SshTransport(link), target, way))
        return made[-1][0]

    yield make
    for transport, target, way in made:
        transport.close()
        await asyncio.to_thread(end_kept, target, way, folder)


@pytest.fixture
def config(tmp_path):
    """``config(host, *lines)``: another configuration of a host than its own."""

    def make(host, *lines):
        path = tmp_path / f"config{len(os.listdir(tmp_path))}"
        path.write_text(host.client_entry(*lines))
        return path

    return make


@pytest.fixture(scope="module")
def asking(ssh_host, new_user):
    """A host that takes a password."""
    user = new_user(password="right horse")
    options = {"PasswordAuthentication": "yes", "UsePAM": "no", "MaxAuthTries": 6}
    return ssh_host(name="asking", users=[user], options=options), user
