"""Transports for tests: the local transport, and the SSH transport to a host with a real sshd."""

from __future__ import annotations

import os
import pwd
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import paramiko
import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.local.transport import LocalTransport
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.link.persistent import PersistentLink
from jupyter_slurm.transport.ssh.prompts import Prompt
from jupyter_slurm.transport.ssh.transport import SshTransport
from jupyter_slurm.transport.ssh.via_openssh.openssh_link import LoginTarget, OpenSshLink
from jupyter_slurm.transport.ssh.via_paramiko.connection import HostVerifier
from jupyter_slurm.transport.ssh.via_paramiko.paramiko_link import ParamikoLink


def _gate(host: SshHost) -> HostVerifier:
    """Return the checks by known_hosts and a key file; the package's own login has its own tests."""

    def verify(hop: HostConfig, key: paramiko.PKey) -> None:
        if f"{key.get_name()} {key.get_base64()}" not in host.known_hosts.read_text():
            raise TransportError("not that host")

    def login(hop: HostConfig, transport: paramiko.Transport) -> None:
        transport.auth_publickey(hop.user, paramiko.Ed25519Key.from_private_key_file(str(host.key)))

    return HostVerifier(verify, login)


class Nobody:
    """Prompter without answers: these hosts accept a key, and ask nothing."""

    async def ask(self, prompt: Prompt) -> None:
        raise AssertionError(f"asked for {prompt}")


@dataclass
class Connected:
    """An SSH transport, its parts, and the messages about its connection."""

    host: SshHost
    link: PersistentLink
    transport: SshTransport
    told: list[str] = field(default_factory=list)


@pytest.fixture
def ssh_carrier() -> str:
    """Return the carrier for ``connect``; a module that tests both carriers overrides this fixture."""
    return "paramiko"


@pytest.fixture
def connect_by(short_tmp: Path) -> Iterator[Callable[..., Connected]]:
    """Return a factory: ``connect_by(carrier, host, …)``, like ``connect``."""
    made: list[Connected] = []

    def make(
        carrier: str, host: SshHost, *, user: str | None = None, link: dict[str, Any] | None = None, **options: Any
    ) -> Connected:
        told: list[str] = []
        way = [HostConfig(host.name, host.address, host.port, user or host.user, strict="yes")]
        rest = {"notify": told.append, "pause": 0.1, **(link or {})}
        connection: PersistentLink
        if carrier == "paramiko":
            connection = ParamikoLink(way, _gate(host), **rest)
        else:
            target = LoginTarget(host.name, ("-l", user or host.user), str(host.ssh_config))
            folder = tempfile.mkdtemp(prefix="m", dir=short_tmp)
            connection = OpenSshLink(target, way, Nobody(), folder, **rest)
        made.append(Connected(host, connection, SshTransport(connection, **options), told))
        return made[-1]

    yield make
    for one in made:
        one.transport.close()


@pytest.fixture
def connect(connect_by: Callable[..., Connected], ssh_carrier: str) -> Callable[..., Connected]:
    """Return a factory: ``connect(host, user=None, link={…}, **options)`` is an SSH transport; closed at the end."""
    return partial(connect_by, ssh_carrier)


@dataclass(frozen=True)
class Place:
    """Host of a transport's commands, and a directory of its user that both sides see."""

    path: Path
    new_transport: Callable[[], Transport]
    pid_here: Callable[[int], int | None]


@pytest.fixture(scope="session")
def common(short_tmp: Path) -> Path:
    """Provide a directory that the hosts of these tests and this machine have at the same path."""
    path = short_tmp / "common"
    path.mkdir(mode=0o711)
    return path


@pytest.fixture(scope="session")
def login_node(ssh_host: Callable[..., SshHost], common: Path) -> SshHost:
    """Provide a host that tests do not change."""
    return ssh_host(name="login", shared=[common])


@pytest.fixture
def new_folder(common: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Return a factory: ``new_folder(user)`` is an empty directory of that user, below ``common``."""

    def make(user: str) -> Path:
        path = common / f"{len(os.listdir(common))}"
        path.mkdir(mode=0o700)
        account = pwd.getpwnam(user)
        os.chown(path, account.pw_uid, account.pw_gid)
        return path

    return make


@pytest.fixture(scope="session")
def bash_node(ssh_host: Callable[..., SshHost], common: Path) -> SshHost:
    """Provide a host whose /bin/sh is bash, as on most clusters; Debian's is dash."""
    return ssh_host(name="bashful", shared=[common], mounts={"/bin/sh": Path("/bin/bash")})


@pytest.fixture(
    params=["local", *(pytest.param(kind, marks=pytest.mark.root) for kind in ("ssh", "ssh-bash", "openssh"))]
)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    """Provide each kind of transport on its host."""
    if request.param == "local":
        yield Place(tmp_path, LocalTransport, lambda pid: pid)
        return
    host: SshHost = request.getfixturevalue("bash_node" if request.param == "ssh-bash" else "login_node")
    connect = request.getfixturevalue("connect_by")
    carrier = "openssh" if request.param == "openssh" else "paramiko"
    path = request.getfixturevalue("new_folder")(host.user)
    yield Place(path, lambda: connect(carrier, host).transport, host.pid_here)


@pytest.fixture
def transport(place: Place) -> Iterator[Transport]:
    """Provide the transport of the place; after closing it, ``place.new_transport()`` is a new one."""
    made = place.new_transport()
    yield made
    made.close()
