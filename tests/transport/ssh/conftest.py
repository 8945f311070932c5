"""A real sshd without a port or a network, one for each connection, and its users."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import os
import shlex
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import paramiko
import pytest

from jupyter_slurm.errors import LoginFailed, from_problem
from jupyter_slurm.transport.ssh.auth.login import log_in
from jupyter_slurm.transport.ssh.config.ssh_config import HostConfig
from jupyter_slurm.transport.ssh.prompts import Asker

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


@functools.cache
def _made(name: str, kind: str, options: tuple[str, ...]) -> tuple[bytes, bytes]:
    """Create a key pair once for all tests: an RSA key takes as long as the test itself."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, name)
        subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, *options, "-f", path], check=True)
        return path.read_bytes(), Path(f"{path}.pub").read_bytes()


class PipedSshd:
    """``sshd -i`` with its own keys and settings; the host's name and port are arbitrary."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc = folder / "etc"  # mounted as its /etc/ssh
        self.etc.mkdir()
        self._pam: Path | None = None
        self._config = folder / "sshd_config"
        self._running: list[subprocess.Popen[bytes]] = []
        self.configure()

    def key(self, name: str, kind: str = "ed25519", *options: str) -> Path:
        """Create a key, once."""
        path = self.folder / name
        if not path.exists():
            private, public = _made(name, kind, options)
            path.touch(0o600)
            path.write_bytes(private)
            Path(f"{path}.pub").write_bytes(public)
        return path

    def public(self, name: str, kind: str = "ed25519") -> str:
        """Return ``type base64`` of a key."""
        self.key(name, kind)
        return " ".join((self.folder / f"{name}.pub").read_text().split()[:2])

    def certify(self, name: str, authority: str, *options: str, suffix: str = "") -> Path:
        """Certify a key, and return the certificate."""
        public = self.folder / f"{name}{suffix}.pub"
        if suffix:
            shutil.copy(self.folder / f"{name}.pub", public)
        subprocess.run(
            ["ssh-keygen", "-q", "-s", self.folder / authority, "-I", "a test", *options, public], check=True
        )
        return self.folder / f"{name}{suffix}-cert.pub"

    def configure(
        self,
        *lines: str,
        host_keys: tuple[str, ...] = ("host",),
        certificate: Path | None = None,
        pam: str | None = None,
    ) -> None:
        """Write the configuration; ``pam``: the text of its PAM service, which replaces the machine's."""
        self._pam = None
        if pam is not None:
            self._pam = self.folder / "pam"
            self._pam.write_text(pam)
        text = [f"HostKey {self.key(name)}" for name in host_keys]
        text += [f"HostCertificate {certificate}"] if certificate else []
        text += ["StrictModes no", "LogLevel VERBOSE", *lines]
        text += [] if any(line.startswith("UsePAM") for line in lines) else ["UsePAM no"]
        self._config.write_text("\n".join(text) + "\n")

    @property
    def command(self) -> str:
        """Return the value of ProxyCommand for OpenSSH."""
        sshd = shlex.join([str(SSHD), "-i", "-f", str(self._config), "-E", str(self.folder / "sshd.log")])
        if self._pam is None:
            return sshd
        mounts = f"mount --bind {self._pam} /etc/pam.d/sshd && mount --bind {self.etc} /etc/ssh && exec {sshd}"
        return shlex.join(["unshare", "--mount", "sh", "-c", mounts])

    def connect(self) -> socket.socket:
        """Start a sshd, and return the local end of its connection."""
        ours, theirs = socket.socketpair()
        with theirs:
            # The leader of its process group, as with a listening sshd: so it ends its children with itself.
            argv = shlex.split(self.command)
            self._running.append(subprocess.Popen(argv, stdin=theirs, stdout=theirs, start_new_session=True))
        return ours

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()

    def close(self) -> None:
        """End the remaining processes."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


@pytest.fixture
def piped_sshd(short_tmp: Path, unavailable) -> Iterator[PipedSshd]:
    if SSHD is None or shutil.which("ssh") is None:
        unavailable("needs OpenSSH's client and server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sshd", dir=short_tmp))
    folder.chmod(0o755)  # the user's authorized_keys are read as the user
    sshd = PipedSshd(folder)
    yield sshd
    sshd.close()


class Person:
    """User who answers prompts in turn; each answer is a list, None (decline), or a function that returns it."""

    def __init__(self, *answers):
        self.answers, self.asked, self.taken_back = list(answers), [], []

    async def ask(self, prompt):
        self.asked.append(prompt)
        if not prompt.questions:
            try:
                await asyncio.Event().wait()
            finally:
                self.taken_back.append(prompt)
        answer = self.answers.pop(0)
        if callable(answer):
            answer = answer()
        return await answer if asyncio.iscoroutine(answer) else answer

    @property
    def kinds(self):
        return [prompt.kind for prompt in self.asked]


class Door:
    """One host, one of its users, and the prompter."""

    person = Person
    password = "correct horse 7 Ω"

    def __init__(self, sshd, user):
        self.sshd, self.user = sshd, user
        self.host = HostConfig("login", "login.example", user=user, through=("gate",))
        self.authorized = sshd.folder / "authorized_keys"
        self.authorized.write_text("")
        self.configure()
        self.transport = None

    def configure(self, *lines, pam=None, certificate=None):
        """Set options of sshd_config; by default only keys are accepted."""
        keys_only = ("PasswordAuthentication no", "KbdInteractiveAuthentication no")  # the first value wins
        self.sshd.configure(
            f"AuthorizedKeysFile {self.authorized}", *lines, *keys_only, pam=pam, certificate=certificate
        )

    def allow(self, *names, kind="ed25519"):
        with self.authorized.open("a") as file:
            file.writelines(f"{self.sshd.public(name, kind)} {name}\n" for name in names)

    def key(self, name, kind="ed25519", *options, allow=True):
        path = str(self.sshd.key(name, kind, *options))
        if allow:
            self.allow(name, kind=kind)
        return path

    async def open(self, person, **changes):
        host = replace(self.host, **changes)
        self.transport = paramiko.Transport(self.sshd.connect())
        asker = Asker(person, asyncio.get_running_loop())

        def work():
            self.transport.start_client(timeout=30)
            log_in(self.transport, host, asker)

        await asyncio.to_thread(work)
        assert self.transport.is_authenticated()
        channel = await asyncio.to_thread(self.transport.open_session)
        channel.exec_command("id -un")
        assert (await asyncio.to_thread(channel.makefile().read)).decode().split() == [self.user]

    async def refused(self, person, kind=LoginFailed, **changes):
        with pytest.raises(kind) as caught:
            await self.open(person, **changes)
        error = caught.value
        assert "login" in error.message
        assert error.hint
        assert error.details["host"] == "login"
        assert type(from_problem(error.to_problem())) is kind
        assert not self.transport.is_authenticated()
        return error


@functools.cache
def _user(new_user) -> str:
    """Create one account for all tests of this module."""
    return new_user(password=Door.password)


@pytest.fixture
def door(piped_sshd, new_user, unavailable):
    door = Door(piped_sshd, _user(new_user))
    door.unavailable = unavailable
    yield door
    if door.transport is not None:
        door.transport.close()


def _is_listening(path):
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(str(path)) == 0


@pytest.fixture
def agent(tmp_path):
    """Return a factory: ``agent(*keys)`` adds keys to a real ssh-agent and returns its socket."""
    path = tmp_path / "agent.sock"
    with subprocess.Popen(["ssh-agent", "-D", "-a", path], stdout=subprocess.DEVNULL) as process:
        while not _is_listening(path):
            assert process.poll() is None

        def add(*keys, options=()):
            env = {**os.environ, "SSH_AUTH_SOCK": str(path)}
            if keys:
                subprocess.run(["ssh-add", "-q", *options, *keys], env=env, check=True, capture_output=True)
            return str(path)

        yield add
        process.terminate()
