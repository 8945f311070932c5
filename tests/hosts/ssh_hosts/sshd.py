"""Host with a real sshd."""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ssh_hosts.machine import Machine, run
from ssh_hosts.network import Link, Wire, drop_port, restore_port

__all__ = ["SshHost", "new_key"]

Options = Mapping[str, str | int | Sequence[str | int]]

_DEFAULTS: dict[str, str | int] = {
    "PidFile": "/run/sshd.pid",
    "AuthorizedKeysFile": "/etc/ssh/authorized_keys.d/%u .ssh/authorized_keys",
    "PasswordAuthentication": "no",
    "KbdInteractiveAuthentication": "no",
    "PermitRootLogin": "no",
    "UsePAM": "no",
    "UseDNS": "no",
    "PrintMotd": "no",
    "PrintLastLog": "no",
    "AcceptEnv": "LANG LC_*",
    "LogLevel": "VERBOSE",
    "MaxStartups": "200",
}


def new_key(path: Path, kind: str = "ed25519", *, passphrase: str = "", comment: str = "test") -> Path:
    """Create a key pair at ``path`` and ``path``.pub; return ``path``."""
    run("ssh-keygen", "-q", "-t", kind, "-N", passphrase, "-C", comment, "-f", str(path))
    return path


class SshHost(Machine):
    """A host with sshd; the fixture ``ssh_host`` describes its creation.

    Attributes
    ----------
    name, address, port : str, str, int
        Address at which sshd listens.
    link : Link or None
        The cable to the host; None on this machine's own network.
    user : str
        The default user.
    key : Path
        Private key authorized for ``users``; the public key is beside it.
    known_hosts : Path
        Has the host's original keys (:meth:`new_host_key` does not change the file).
    ssh_config : Path
        A client's configuration with ``Host <name>``, for ``ssh -F`` and for other readers of such files.
    etc : Path
        Its /etc/ssh: sshd_config, the host's keys, authorized_keys.d/<user>.
    """

    def __init__(
        self,
        name: str,
        directory: Path,
        *,
        users: Sequence[str],
        key: Path,
        options: Options | None = None,
        attach: Callable[[Machine], Link] | None = Wire,
        port: int | None = None,
        sftp: bool = True,
        host_keys: Sequence[str] = ("ed25519", "ecdsa"),
        host_ca: Path | None = None,
        files: Mapping[str, str] | None = None,
        mounts: Mapping[str, Path] | None = None,
        shared: Sequence[Path] = (),
        own: Sequence[str] = (),
    ) -> None:
        self.etc = directory / "ssh"
        self.etc.mkdir(parents=True)
        super().__init__(
            name,
            directory / "machine",
            mounts={"/etc/ssh": self.etc, **(mounts or {})},
            shared=shared,
            own=own,
            own_network=attach is not None,
        )
        self.link: Link | None = None
        self.user, self.key = users[0], key
        self._kinds, self._host_ca = tuple(host_keys), host_ca
        self.known_hosts, self.ssh_config = directory / "known_hosts", directory / "config"
        try:
            self.link = attach(self) if attach else None
            self.address = self.link.address if self.link else "127.0.0.1"
            self.port = port or (22 if self.link else _free_port())
            listen: dict[str, str | int] = {
                "Port": self.port,
                "ListenAddress": "0.0.0.0" if self.link else self.address,
            }
            subsystem = {"Subsystem": "sftp /usr/lib/openssh/sftp-server"} if sftp else {}
            self.options: dict[str, str | int | Sequence[str | int]] = {**listen, **subsystem, **(options or {})}
            for file, text in (files or {}).items():
                (self.etc / file).write_text(text)
            for user in users:
                self.authorize(user, key.with_suffix(".pub").read_text())
            self._make_host_keys()
            self.known_hosts.write_text(self.known_hosts_lines())
            self.ssh_config.write_text(self.client_entry())
            self.start()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End the host; only its files remain."""
        if self.link is not None:
            self.link.close()
        super().close()

    # For clients ------------------------------------------------------------------------------------------------

    def known_hosts_lines(self, *names: str) -> str:
        """Return the known_hosts lines of its present keys, under its address or other names."""
        marked = [name if self.port == 22 else f"[{name}]:{self.port}" for name in names or (self.address,)]
        keys = [(self.etc / f"ssh_host_{kind}_key.pub").read_text().split()[:2] for kind in self._kinds]
        return "".join(f"{','.join(marked)} {' '.join(key)}\n" for key in keys)

    def client_entry(self, *lines: str, name: str | None = None) -> str:
        """Return the section of a client's configuration, with additional lines."""
        entry = {
            "HostName": self.address,
            "Port": self.port,
            "User": self.user,
            "IdentityFile": self.key,
            "IdentitiesOnly": "yes",
            "UserKnownHostsFile": self.known_hosts,
            "GlobalKnownHostsFile": "/dev/null",
            "StrictHostKeyChecking": "yes",
        }
        settings = [*lines, *(f"{word} {value}" for word, value in entry.items())]
        return f"Host {name or self.name}\n" + "".join(f"    {setting}\n" for setting in settings)

    def ssh(self, *words: str, user: str | None = None, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run ``words`` on the host with OpenSSH; no error if it fails. Options are those of subprocess.run."""
        argv = ["ssh", "-F", str(self.ssh_config), "-o", "BatchMode=yes", "-l", user or self.user, self.name, "--"]
        return run(*argv, *words, **{"check": False, **options})

    def authorize(self, user: str, public_key: str) -> None:
        """Allow the holder of this key to log in as ``user``."""
        folder = self.etc / "authorized_keys.d"
        folder.mkdir(exist_ok=True)
        with (folder / user).open("a") as file:
            file.write(public_key)

    @property
    def log(self) -> str:
        """Return the log of sshd so far."""
        path = self.directory / "log" / "sshd.log"
        return path.read_text(errors="replace") if path.exists() else ""

    # Disturbances ------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start sshd, after :meth:`stop` or with changed ``options``; it accepts connections on return."""
        # The first value of a setting counts, but the last one of MaxStartups.
        usual = {word: value for word, value in _defaults().items() if word not in self.options}
        self.etc.joinpath("sshd_config").write_text(_config(self.options) + _config(usual) + self._key_lines())
        if self.run("/usr/sbin/sshd", "-E", "/var/log/sshd.log", check=False).returncode != 0:
            raise AssertionError(f"{self.name}: sshd did not start\n{self.log}")
        self._wait(lambda: self.listener is not None, "sshd did not start")

    def stop(self, *, hard: bool = False) -> None:
        """End the listening sshd, with SIGKILL if ``hard``: new connections are refused, existing ones stay."""
        listener = self.listener
        if listener is not None:
            os.kill(listener, signal.SIGKILL if hard else signal.SIGTERM)
            self._wait(lambda: listener not in self.processes(), "sshd did not end")
        self.run("rm", "-f", "/run/sshd.pid")

    def sessions(self) -> list[int]:
        """Return the process IDs, on this machine, of the sshd of each connection (one or two each)."""
        listener = self.listener
        return [pid for pid, name in self.processes().items() if name.startswith("sshd") and pid != listener]

    def kill_sessions(self) -> int:
        """Kill the sshd of every connection (SIGKILL), as a crash would; programs that they started stay."""
        doomed = self.sessions()
        for pid in doomed:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self._wait(lambda: not set(doomed) & set(self.processes()), "sessions did not end")
        return len(doomed)

    def reboot(self) -> None:
        """Kill every process of the host and start sshd again. Files stay, also those in /tmp."""
        self.run("bash", "-c", "kill -KILL -1", check=False)
        self._wait(lambda: not self.processes(), "processes did not end")
        self.run("rm", "-f", "/run/sshd.pid")
        self.start()

    def drop(self) -> None:
        """Drop all packets to and from the host (on this machine's network: its sshd) until :meth:`restore`."""
        if self.link is None:
            drop_port(self.port)
        else:
            self.link.drop()

    def restore(self) -> None:
        """Let packets through again."""
        if self.link is None:
            restore_port(self.port)
        else:
            self.link.restore()

    def new_host_key(self) -> None:
        """Give the host other keys, as after a new installation: clients that know the old keys must refuse it."""
        self._make_host_keys()
        self.stop()
        self.start()

    # ------------------------------------------------------------------------------------------------------------

    @property
    def listener(self) -> int | None:
        """Return the process ID, on this machine, of the listening sshd."""
        try:
            inner = int(self.run("cat", "/run/sshd.pid", check=False).stdout)
        except ValueError:
            return None
        return self.pid_here(inner)

    def _make_host_keys(self) -> None:
        for kind in self._kinds:
            path = self.etc / f"ssh_host_{kind}_key"
            for old in (path, path.with_suffix(".pub")):
                old.unlink(missing_ok=True)
            new_key(path, kind, comment=self.name)
            if self._host_ca is not None:
                names = f"{self.name},{self.address}"
                run("ssh-keygen", "-q", "-s", str(self._host_ca), "-I", self.name, "-h", "-n", names, f"{path}.pub")

    def _key_lines(self) -> str:
        lines = [f"HostKey /etc/ssh/ssh_host_{kind}_key" for kind in self._kinds]
        if self._host_ca is not None:
            lines += [f"HostCertificate /etc/ssh/ssh_host_{kind}_key-cert.pub" for kind in self._kinds]
        return "\n".join(lines) + "\n"

    def _wait(self, condition: Any, failure: str) -> None:
        deadline = time.monotonic() + 20
        while not condition():
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.name}: {failure}\n{self.log}")
            time.sleep(0.01)


@functools.cache
def _defaults() -> dict[str, str | int]:
    said = run("ssh", "-V").stderr
    match = re.match(r"OpenSSH_(\d+)\.(\d+)", said)
    assert match, said
    # Newer versions block an address for a while after failed logins, which some tests need.
    new = (int(match[1]), int(match[2])) >= (9, 8)
    return {**_DEFAULTS, "PerSourcePenalties": "no"} if new else _DEFAULTS


def _free_port() -> int:
    """Return a port outside the range of outgoing connections: it must be free again when a killed sshd restarts."""
    first = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    while True:
        port = random.randrange(10_000, first)
        with contextlib.suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port


def _config(options: Options) -> str:
    lines = []
    for word, value in options.items():
        values = [value] if isinstance(value, str | int) else value
        lines += [f"{word} {one}" for one in values]
    return "\n".join(lines) + "\n"
