"""Hosts for ssh whose connection starts a job: their files, and their entries for ``~/.ssh/jupyter_slurm.conf``.

Each host has a private folder in the state directory: ``host.json`` with the line of the job, the key of this computer
for this host alone, ``known_hosts`` with the host key of the present job, and ``job`` with its key (and with its
cluster, until the submission is answered). Another computer of the user may have a host of the same name, with a job of
its own.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.cli.editors.ssh_files import change_entries, replace
from jupyter_slurm.client.settings import settings
from jupyter_slurm.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.services.tunnels.ssh_config import SshConfigEntry

__all__ = [
    "EditorHost",
    "host_names",
    "hosts_by_job",
    "load_host",
    "remove_host",
    "remove_hosts",
    "write_host",
    "write_host_key",
]

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,62}")  # of a session, too


@dataclass(frozen=True)
class EditorHost:
    """Host that starts a job.

    Attributes
    ----------
    name : str
        Name for ssh, and of the session.
    cluster : str
        Name of a site profile, or ``local``.
    line : str
        Keywords and options of sbatch, as typed.
    user : str
        Login name on the node.
    folder : str
        Folder to open; empty: none.
    """

    name: str
    cluster: str
    line: str
    user: str
    folder: str = ""

    @property
    def place(self) -> str:
        """Return the private folder of the host."""
        return os.path.join(_root(), self.name)

    @property
    def public_key(self) -> str:
        """Return the public key of this computer, without its comment."""
        with open(os.path.join(self.place, "key.pub"), encoding="ascii") as file:
            return " ".join(file.read().split()[:2])

    @property
    def job(self) -> str:
        """Return the key of the job that this computer has started for the host; empty: none is known."""
        return next(iter(self._job_words()), "")

    def unanswered_job(self, cluster: str) -> str:
        """Return the key of the job whose submission to a cluster is not answered yet; empty: there is none."""
        key, *asked = self._job_words() or [""]
        return key if asked == [cluster] else ""

    def write_job(self, key: str, unanswered: str = "") -> None:
        """Store the key of the job; ``unanswered``: the cluster to which it is submitted now."""
        replace(os.path.join(self.place, "job"), f"{key} {unanswered}".strip(), 0o600)

    def _job_words(self) -> list[str]:
        try:
            with open(os.path.join(self.place, "job"), encoding="utf-8") as file:
                return file.read(1000).split()
        except (OSError, ValueError):
            return []


def _root() -> str:
    return os.path.join(os.path.abspath(settings().state_dir), "ssh-hosts")


def _make_private(folder: str) -> None:
    from jupyter_slurm.transport.local.files import make_private

    make_private(folder)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is not a private directory of yours.", hint=f"Remove {folder}, and try again.")


def host_names() -> list[str]:
    """Return the names of the hosts."""
    try:
        return sorted(name for name in os.listdir(_root()) if _NAME.fullmatch(name))
    except FileNotFoundError:
        return []


def load_host(name: str) -> EditorHost:
    """Return a host.

    Raises
    ------
    UsageError
        There is no such host.
    """
    if _NAME.fullmatch(name):
        try:
            with open(os.path.join(_root(), name, "host.json"), encoding="utf-8") as file:
                return EditorHost(**json.load(file))
        except (OSError, ValueError, TypeError):
            pass
    raise UsageError(f"There is no host {name!r}.", hint="List the hosts with `jupyter slurm code --list`.")


def hosts_by_job() -> dict[str, str]:
    """Return the names of the hosts of this computer by the key of their job; those without a job are left out."""
    found = dict[str, str]()
    for name in host_names():
        with contextlib.suppress(UsageError):
            found[load_host(name).job] = name
    found.pop("", None)
    return found


def write_host(host: EditorHost) -> None:
    """Write the files of a host and its entry for ssh, in place of earlier ones of that name."""
    if not _NAME.fullmatch(host.name):
        raise UsageError(
            f"{host.name!r} is not a valid name of a host.",
            hint="Use a letter, then letters, digits, dots, dashes and underscores, for example name=training.",
        )
    try:
        _make_private(_root())
        _make_private(host.place)
        if not os.path.exists(os.path.join(host.place, "key.pub")):
            _make_key(os.path.join(host.place, "key"))
        replace(os.path.join(host.place, "host.json"), json.dumps(asdict(host)), 0o600)
    except OSError as error:
        raise ConfigError(
            f"{host.place} cannot be written: {error}.", hint="Check its owner and permissions."
        ) from error
    entry = _entry(host)
    change_entries(lambda known: [entry, *_without(known, host.name)])


def write_host_key(host: EditorHost, key: str) -> None:
    """Write the host key of the present job."""
    replace(os.path.join(host.place, "known_hosts"), f"{host.name} {key}\n", 0o600)


def remove_host(host: EditorHost) -> None:
    """Remove the files of a host and its entry."""
    change_entries(lambda known: list(_without(known, host.name)))
    shutil.rmtree(host.place, ignore_errors=True)


def remove_hosts() -> None:
    """Remove the files of all hosts."""
    shutil.rmtree(_root(), ignore_errors=True)


def _without(entries: list[SshConfigEntry], name: str) -> Iterator[SshConfigEntry]:
    return (entry for entry in entries if entry.job or entry.node != name)


def _make_key(path: str) -> None:
    argv = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "jupyter_slurm", "-f", path]
    try:
        subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, check=True)
    except (FileNotFoundError, subprocess.SubprocessError) as error:
        raise ConfigError(
            f"A key for {os.path.dirname(path)} was not made: {error}.",
            hint="Install the client of OpenSSH on this computer.",
        ) from error


def _entry(host: EditorHost) -> SshConfigEntry:
    from jupyter_slurm.domain.scripts.script import quote_argv
    from jupyter_slurm.services.tunnels.ssh_config import SshConfigEntry, quote_value

    # -P: a module of the folder in which ssh was started is not to be run.
    argv = [sys.executable, "-P", "-m", "jupyter_slurm.cli.main", "code", "--connect", host.name]
    lines = [
        f"HostName {host.name}",
        quote_value("User", host.user),
        f"ProxyCommand {quote_argv(argv).replace('%', '%%')}",
        f"HostKeyAlias {host.name}",
        quote_value("UserKnownHostsFile", os.path.join(host.place, "known_hosts")),
        "GlobalKnownHostsFile none",
        "StrictHostKeyChecking yes",
        "UpdateHostKeys no",
        quote_value("IdentityFile", os.path.join(host.place, "key")),
        "IdentitiesOnly yes",
        "PreferredAuthentications publickey",
        "ForwardAgent no",
    ]
    text = f"Host {host.name}\n" + "".join(f"    {line}\n" for line in lines)
    return SshConfigEntry(host.cluster, "", 0, host.name, text)
