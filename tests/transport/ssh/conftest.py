"""A real sshd without a port or a network: one for each connection, on its standard input and output."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

SSHD = shutil.which("sshd", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


class PipedSshd:
    """``sshd -i`` with keys and settings of its own; a name and a port of the host can be anything."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.etc = folder / "etc"  # what it has as /etc/ssh
        self.etc.mkdir()
        self._pam: Path | None = None
        self._config = folder / "sshd_config"
        self._running: list[subprocess.Popen[bytes]] = []
        self.configure()

    def key(self, name: str, kind: str = "ed25519", *options: str) -> Path:
        """Make a key, once."""
        path = self.folder / name
        if not path.exists():
            subprocess.run(["ssh-keygen", "-q", "-t", kind, "-N", "", "-C", name, *options, "-f", path], check=True)
        return path

    def public(self, name: str, kind: str = "ed25519") -> str:
        """Return ``type base64`` of a key."""
        self.key(name, kind)
        return " ".join((self.folder / f"{name}.pub").read_text().split()[:2])

    def certify(self, name: str, authority: str, *options: str, suffix: str = "") -> Path:
        """Have a key certified, and return the certificate."""
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
        """Write its configuration; ``pam``: the text of its PAM service, which it sees instead of the machine's."""
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
        """What OpenSSH takes as ProxyCommand."""
        sshd = shlex.join([str(SSHD), "-i", "-f", str(self._config), "-E", str(self.folder / "sshd.log")])
        if self._pam is None:
            return sshd
        mounts = f"mount --bind {self._pam} /etc/pam.d/sshd && mount --bind {self.etc} /etc/ssh && exec {sshd}"
        return shlex.join(["unshare", "--mount", "sh", "-c", mounts])

    def connect(self) -> socket.socket:
        """Start one, and return our end of it."""
        ours, theirs = socket.socketpair()
        with theirs:
            # A leader of its group, as a listening sshd makes it: so it ends its children with itself.
            argv = shlex.split(self.command)
            self._running.append(subprocess.Popen(argv, stdin=theirs, stdout=theirs, start_new_session=True))
        return ours

    def log(self) -> str:
        return (self.folder / "sshd.log").read_text()

    def close(self) -> None:
        """End those that are left."""
        for process in self._running:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        self._running.clear()


@pytest.fixture
def piped_sshd(tmp_path: Path, unavailable) -> Iterator[PipedSshd]:
    if SSHD is None or shutil.which("ssh") is None:
        unavailable("needs OpenSSH's client and server")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    (folder := tmp_path / "sshd").mkdir()
    sshd = PipedSshd(folder)
    yield sshd
    sshd.close()
