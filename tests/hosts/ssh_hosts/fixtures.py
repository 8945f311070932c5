"""Fixtures: hosts with a real sshd (tests/conftest.py registers them for every test)."""

from __future__ import annotations

import itertools
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ssh_hosts.network import LongWire, Wire
from ssh_hosts.people import People
from ssh_hosts.site import Site
from ssh_hosts.sshd import SshHost, new_key

__all__ = ["needs_hosts", "new_ssh_site", "new_user", "ssh_host", "ssh_key", "ssh_site"]

_PROGRAMS = {
    "ssh": "openssh-client",
    "/usr/sbin/sshd": "openssh-server",
    "ip": "iproute2",
    "nft": "nftables",
    "unshare": "util-linux",
}


@pytest.fixture(scope="session")
def needs_hosts(unavailable: Callable[[str], None]) -> None:
    """Skip (in CI: fail) if this machine cannot create such hosts."""
    if os.geteuid() != 0:
        pytest.skip("needs root, to make hosts with a network of their own")
    missing = [package for program, package in _PROGRAMS.items() if shutil.which(program) is None]
    if missing:
        unavailable(f"not installed: {', '.join(missing)}")


@pytest.fixture(scope="session")
def new_user() -> Iterator[Callable[..., str]]:
    """Return a factory of users: ``new_user(shell="zsh", files={".zshenv": "echo noise"}, password=None)`` gives the
    name.

    A user added after a host needs a key on it, ``host.authorize(name, public_key)``, or must be listed in ``users=``.
    """
    if os.geteuid() != 0:
        pytest.skip("needs root, to make accounts")
    people = People()
    yield people.add
    people.remove()


@pytest.fixture(scope="session")
def ssh_key(short_tmp: Path, needs_hosts: None) -> Path:
    """Provide a private key (ed25519, no passphrase) that the hosts of ``ssh_host`` accept; ``.pub`` is beside it."""
    (short_tmp / "keys").mkdir()
    return new_key(short_tmp / "keys" / "id_ed25519")


@pytest.fixture(scope="session")
def ssh_host(
    short_tmp: Path, new_user: Callable[..., str], alice: str, ssh_key: Path, unavailable: Callable[[str], None]
) -> Iterator[Callable[..., SshHost]]:
    """Return a factory: ``ssh_host(...)`` starts a host with a real sshd, as root, and returns it as an ``SshHost``.

    All arguments are keywords and optional:

    - ``name="host"``: host name, and the name in ``host.ssh_config``.
    - ``users=(alice,)``: users who can log in with the key ``host.key``; the first is ``host.user``.
      Other login shells: ``users=[new_user(shell="fish", files={".config/fish/config.fish": "sleep 1"})]``.
    - ``options={"MaxSessions": 2, "AllowTcpForwarding": "no", "PasswordAuthentication": "yes"}``: settings of
      sshd_config(5), before the usual ones, so that they take precedence.
    - ``round_trip=0.05``: a cable with a round trip of 50 ms.
    - ``own_network=False``: the host is on 127.0.0.1 of this machine, at a free port, and reaches its listeners: the
      clusters of ``cluster`` and ``new_cluster``, with ``shared=[short_tmp]`` for their slurm.conf.
    - ``sftp=False``: no SFTP subsystem. ``port=2222``. ``host_keys=("ed25519", "ecdsa")``.
    - ``files={"user_ca.pub": text}``: files in the host's /etc/ssh, with ``options={"TrustedUserCAKeys":
      "/etc/ssh/user_ca.pub"}`` for example. ``host_ca=path``: the host's keys get certificates of this private key.

    Its members are described at :class:`ssh_hosts.SshHost`: ``address``, ``port``, ``user``, ``key``, ``known_hosts``,
    ``ssh_config``; ``stop()``, ``start()``, ``kill_sessions()``, ``reboot()``, ``drop()``, ``restore()``,
    ``new_host_key()``, ``ssh(...)``, ``run(...)``, ``log``, ``close()``. The host ends with the session.
    """
    made: list[SshHost] = []
    numbers = itertools.count()

    def make(
        *, name: str = "host", users: Any = (), round_trip: float = 0, own_network: bool = True, **options: Any
    ) -> SshHost:
        attach = (partial(LongWire, round_trip=round_trip) if round_trip else Wire) if own_network else None
        directory = short_tmp / f"h{next(numbers)}"
        directory.mkdir(mode=0o711)
        try:
            host = SshHost(name, directory, users=tuple(users) or (alice,), key=ssh_key, attach=attach, **options)
        except OSError as error:
            unavailable(str(error))
            raise
        made.append(host)
        return host

    yield make
    for host in made:
        host.close()


@pytest.fixture(scope="session")
def new_ssh_site(
    short_tmp: Path, new_user: Callable[..., str], ssh_key: Path, unavailable: Callable[[str], None]
) -> Iterator[Callable[..., Site]]:
    """Return a factory: ``new_ssh_site(...)`` starts laptop -> gateway -> login1, login2 -> node1, node2, with Slurm.

    The start takes some seconds; use ``ssh_site`` if no option is needed. All arguments are optional:

    - ``way_in="key+code"``: authentication at the gateway; or ``"code"``, ``"password+code"``, ``"key+push"``.
    - ``round_trip=0.05``: between laptop and gateway. ``nodes=2``: compute nodes.
    - ``gateway_options=``, ``login_options=``, ``node_options=``: settings of sshd_config(5).
    - ``shell="bash"``, ``files={}``: login shell, and files in the user's home.
    - ``shared=[path]``: directories below /tmp that login and compute nodes share.

    Its members are described at :class:`ssh_hosts.Site`: ``user``, ``password``, ``key``, ``ssh_config``,
    ``known_hosts``, ``codes.next()``; ``gateway``, ``logins``, ``nodes`` (each an ``SshHost``: ``drop()``, ``stop()``
    …); ``slurm.freeze_controller()`` …; ``point_login_at("login2")``; ``ssh("login", "hostname")``, ``asked``.
    """
    if shutil.which("slurmctld") is None:
        unavailable("Slurm is not installed")
    if not any(Path("/usr/lib").glob("**/security/pam_google_authenticator.so")):
        unavailable("not installed: libpam-google-authenticator")
    made: list[Site] = []
    numbers = itertools.count()

    def make(*, shell: str = "bash", files: Mapping[str, str] | None = None, **options: Any) -> Site:
        directory = short_tmp / f"s{next(numbers)}"
        directory.mkdir(mode=0o711)
        password = secrets.token_hex(8)
        person = new_user(shell=shell, files=files, password=password)
        try:
            made.append(Site(directory, user=person, password=password, key=ssh_key, **options))
        except OSError as error:
            unavailable(str(error))
        return made[-1]

    yield make
    for site in made:
        site.close()


@pytest.fixture(scope="session")
def ssh_site(new_ssh_site: Callable[..., Site]) -> Site:
    """Provide the site that tests share: key and code at the gateway. A test reverts its changes.

    Its hosts also have the packages of this Python.
    """
    own = Path(sys.prefix)
    return new_ssh_site(shared=[own] if own.is_relative_to("/tmp") else [])
