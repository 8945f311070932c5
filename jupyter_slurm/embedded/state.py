"""Recorded state of a running cluster, and the lock for start and stop."""

from __future__ import annotations

import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from jupyter_slurm.embedded.layout import Layout
from jupyter_slurm.errors import EmbeddedError

__all__ = ["State", "boot_id", "locked"]

FORMAT = 1


def boot_id() -> str:
    """Return the ID of the machine's current boot (proc(5), random/boot_id)."""
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


@dataclass(frozen=True)
class State:
    """Facts needed to find every process of a cluster and to restart its daemons.

    ``parents`` are the directories above the cluster's that were created for it, the innermost first. ``hidden`` are
    the paths of this machine that each node does not see.
    """

    name: str
    mark: str
    nodes: list[str]
    accounting: bool
    controller_port: int
    database_port: int
    parents: list[str] = field(default_factory=list)
    hidden: dict[str, list[str]] = field(default_factory=dict)
    cgroup_plugin: str = ""
    slurm_root: str = ""
    uid: int = field(default_factory=os.geteuid)
    boot: str = field(default_factory=boot_id)
    format: int = FORMAT

    @classmethod
    def load(cls, layout: Layout) -> State | None:
        """Return the state of the cluster in that directory, or None if there is none.

        Raises EmbeddedError if it belongs to another user or was written by another version.
        """
        try:
            data = json.loads(layout.state_file.read_text(encoding="utf-8"))
            if data.get("format") != FORMAT:
                raise EmbeddedError(
                    f"{layout.state_file} was written by another version of jupyter_slurm.",
                    hint="Stop the cluster with the version of jupyter_slurm that started it, or choose another "
                    "directory with --dir DIR.",
                )
            return cls(**data)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except PermissionError as error:
            raise EmbeddedError(
                f"The cluster in {layout.root} belongs to another user, or you have no permission to open "
                "that directory.",
                hint="Run the command as the user who started it, or choose another directory with --dir DIR.",
            ) from error
        except OSError as error:
            raise EmbeddedError(
                f"{layout.state_file} cannot be read: {error.strerror}.",
                hint="Choose another directory with --dir DIR.",
            ) from error
        except (ValueError, TypeError, AttributeError) as error:
            raise EmbeddedError(
                f"{layout.state_file} is damaged: {error}.",
                hint=f"End the processes that use {layout.root}, and remove that directory.",
            ) from error

    def save(self, layout: Layout) -> None:
        """Write the state atomically, readable by its owner only."""
        temporary = layout.new_state_file
        with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
            json.dump(asdict(self), file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(layout.state_file)

    @property
    def roles(self) -> list[str]:
        """Return the daemons that should be running."""
        database = ["mariadbd", "slurmdbd"] if self.accounting else []
        return ["munged", *database, "slurmctld", *(f"slurmd/{name}" for name in self.nodes)]

    @property
    def stale(self) -> bool:
        """Return whether the machine was rebooted since: then no process of the cluster can be running."""
        return self.boot != boot_id()


@contextmanager
def locked(layout: Layout, timeout: float = 60.0) -> Iterator[None]:
    """Hold the lock of a cluster's directory, which is created if missing.

    The directory itself is locked, so that a directory of another user never gets a file of this cluster.

    Raises EmbeddedError if another process holds the lock for longer than ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    while True:
        layout.root.mkdir(mode=0o711, parents=True, exist_ok=True)
        _check_owner(layout.root)
        try:
            descriptor = os.open(layout.root, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except FileNotFoundError:
            continue
        try:
            if _acquire_lock(descriptor, layout.root):
                yield
                return
        finally:
            os.close(descriptor)
        if time.monotonic() > deadline:
            raise EmbeddedError(
                f"The cluster in {layout.root} is being started or stopped by another process.",
                hint="Try again when that process has ended.",
            )
        time.sleep(0.05)


def _check_owner(path: Path) -> None:
    """Refuse a directory created by another user, or a link."""
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode):
        raise EmbeddedError(f"{path} is not a directory.", hint="Choose another directory with --dir DIR.")
    if status.st_uid != os.geteuid():
        raise EmbeddedError(f"{path} belongs to another user.", hint="Choose another directory with --dir DIR.")


def _acquire_lock(descriptor: int, path: Path) -> bool:
    """Try to take the lock; return whether it is held and the directory, which a stop removes, still exists."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    try:
        return os.path.samestat(os.fstat(descriptor), path.stat())
    except FileNotFoundError:
        return False
