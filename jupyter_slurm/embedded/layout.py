"""Paths inside the private directory of a cluster, and their permissions."""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from jupyter_slurm.errors import EmbeddedError

__all__ = ["Layout", "check_reachable", "default_directory", "missing_parents"]

MAX_SOCKET_PATH_BYTES = 100
"""``sun_path`` has 108 bytes (unix(7)); munge appends to the name of its lock file."""


@dataclass(frozen=True)
class Layout:
    """The paths of one cluster. Other users can pass through the directory (0711), but read almost nothing in it."""

    root: Path

    @property
    def slurm_conf(self) -> Path:
        """Return the path of slurm.conf(5), the only file that every user has to read."""
        return self.root / "etc" / "slurm.conf"

    @property
    def slurmdbd_conf(self) -> Path:
        """Return the path of slurmdbd.conf(5), with mode 0600."""
        return self.slurm_conf.with_name("slurmdbd.conf")

    @property
    def state_file(self) -> Path:
        """Return the path of the running cluster's state (JSON, 0600)."""
        return self.root / "embedded.json"

    @property
    def new_state_file(self) -> Path:
        """Return the path of the state while it is written: the only file that can exist without the state file."""
        return self.state_file.with_suffix(".new")

    @property
    def munge_socket(self) -> Path:
        """Return the path of munged's socket, which other users have to reach."""
        return self.root / "munge" / "socket"

    @property
    def munge_key(self) -> Path:
        """Return the path of munged's key, with mode 0400."""
        return self.root / "key" / "munge.key"

    @property
    def controller_state(self) -> Path:
        """Return the StateSaveLocation of slurmctld."""
        return self.root / "state"

    @property
    def spool(self) -> Path:
        """Return the parent of the SlurmdSpoolDir of each node."""
        return self.root / "spool"

    @property
    def log(self) -> Path:
        """Return the directory of the logs and of the daemons' standard output."""
        return self.root / "log"

    @property
    def run(self) -> Path:
        """Return the directory of the pid files."""
        return self.root / "run"

    @property
    def cgroup(self) -> Path:
        """Return the CgroupMountpoint: links to the cluster's own groups."""
        return self.root / "cgroup"

    @property
    def devices(self) -> Path:
        """Return the parent of the directories with the stand-ins for GPUs, one for each node."""
        return self.root / "dev"

    @property
    def database(self) -> Path:
        """Return the directory of MariaDB's data and socket."""
        return self.root / "db"

    @property
    def database_socket(self) -> Path:
        """Return the path of MariaDB's socket, its only listener."""
        return self.database / "socket"

    def create(self) -> None:
        """Create all directories, with mode 0700 unless other users need them."""
        if not _is_writable_in_slurm_conf(self.root):
            raise EmbeddedError(
                f"A cluster cannot be created in {self.root}, because slurm.conf allows no space, # or % in a path.",
                hint="Choose another directory with --dir DIR.",
            )
        self.root.mkdir(parents=True, exist_ok=True)
        self.root.chmod(0o711)
        for path in (self.slurm_conf.parent, self.munge_socket.parent, self.spool, self.devices):
            path.mkdir(exist_ok=True)
            path.chmod(0o711)
        for path in (self.munge_key.parent, self.controller_state, self.log, self.run, self.database):
            path.mkdir(mode=0o700, exist_ok=True)
        self.slurm_conf.parent.chmod(0o755)
        self.devices.chmod(0o755)
        for path in (self.munge_socket, self.database_socket):
            if len(os.fsencode(path)) > MAX_SOCKET_PATH_BYTES:
                raise EmbeddedError(
                    f"The path {path} is too long for a Unix socket (at most {MAX_SOCKET_PATH_BYTES} bytes).",
                    hint="Choose a shorter directory with --dir DIR.",
                )


def default_directory() -> Path:
    """Return the default directory of the cluster.

    For root, every user can reach the directory. For other users, it is in their state directory. If that path is too
    long for a Unix socket, or slurm.conf cannot have it, it is in their own directory in the temporary directory.
    """
    if os.geteuid() == 0:
        return Path("/var/lib/jupyter_slurm/embedded")
    path = platformdirs.user_state_path("jupyter_slurm") / "embedded"
    if _is_writable_in_slurm_conf(path) and len(os.fsencode(Layout(path).database_socket)) <= MAX_SOCKET_PATH_BYTES:
        return path
    return Path(tempfile.gettempdir()) / f"jupyter_slurm-embedded-{os.getuid()}"


def _is_writable_in_slurm_conf(path: Path) -> bool:
    """Return whether slurm.conf can have this path: it has neither quotes nor escapes for blanks, # and %."""
    return not any(char.isspace() or char in "#%" for char in str(path))


def missing_parents(path: Path) -> list[Path]:
    """Return the missing directories above ``path``, the innermost first."""
    return [parent for parent in path.parents if not os.path.exists(parent)]  # false also for inaccessible ones


def check_reachable(path: Path) -> str:
    """Return why other users cannot reach ``path``; empty if they can."""
    for parent in path.resolve().parents:
        if not parent.stat().st_mode & stat.S_IXOTH:
            return f"other users cannot use this cluster, since {parent} is closed to them"
    return ""
