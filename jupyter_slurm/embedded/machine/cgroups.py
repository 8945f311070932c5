"""Control groups of a cluster run by root: CPU masks, memory limits and the clean-up of processes.

Slurm puts a node's groups below ``<CgroupMountpoint>/<controller>/slurm_<node>`` (cgroup.conf(5)). Two clusters with
nodes of the same name would share that path. So each cluster has its own group in every hierarchy, and its
CgroupMountpoint is a directory of links to those groups. All processes in these groups belong to the cluster: a process
cannot leave them without root's rights.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jupyter_slurm.errors import EmbeddedError

__all__ = ["CgroupTree", "detect"]

MOUNTPOINT = Path("/sys/fs/cgroup")
CONTROLLERS = ("freezer", "cpuset", "memory", "cpuacct")


def detect() -> tuple[str, str]:
    """Return the cgroup plugin to use; if empty, also the reason in plain words."""
    if os.geteuid() != 0:
        return "", "an ordinary user may not make control groups"
    if all(os.access(MOUNTPOINT / name / "tasks", os.W_OK) for name in CONTROLLERS):
        return "cgroup/v1", ""
    if (MOUNTPOINT / "cgroup.controllers").exists():
        return "", "this computer has only control groups of version 2"
    return "", f"no writable control groups for {', '.join(CONTROLLERS)} below {MOUNTPOINT}"


@dataclass(frozen=True)
class CgroupTree:
    """The groups of one cluster, found by its mark."""

    mark: str

    @property
    def groups(self) -> list[Path]:
        """Return the cluster's group in each hierarchy."""
        return [MOUNTPOINT / name / f"jupyter_slurm-{self.mark}" for name in CONTROLLERS]

    def create(self, mountpoint: Path) -> None:
        """Create the groups, and ``mountpoint``, which Slurm uses.

        Raises EmbeddedError if the kernel does not allow it.
        """
        mountpoint.mkdir(mode=0o711, exist_ok=True)
        try:
            for group in self.groups:
                group.mkdir(mode=0o755)
                if group.parent.name == "cpuset":
                    # A new group may not use any CPU or memory until they are assigned.
                    for name in ("cpuset.cpus", "cpuset.mems"):
                        (group / name).write_text((group.parent / name).read_text(encoding="ascii"), encoding="ascii")
                (mountpoint / group.parent.name).symlink_to(group)
        except OSError as error:
            raise EmbeddedError(
                f"Control groups could not be created: {error}.",
                hint="Run the command as root, or without control groups.",
            ) from error

    def pids(self, node: str = "") -> set[int]:
        """Return the processes in the groups (of one node, if given), and in all groups below them."""
        found: set[int] = set()
        for directory in self._directories(f"slurm_{node}" if node else ""):
            with contextlib.suppress(OSError):
                found.update(int(line) for line in (directory / "cgroup.procs").read_text(encoding="ascii").split())
        return found

    def remove(self, timeout: float = 60.0) -> None:
        """Remove the groups, deepest first. The kernel frees a group a moment after its last process has ended."""
        deadline = time.monotonic() + timeout
        while directories := list(self._directories()):
            for directory in directories:
                with contextlib.suppress(OSError):
                    directory.rmdir()
            if time.monotonic() > deadline:
                raise EmbeddedError(
                    f"The control group {directories[-1]} cannot be removed.",
                    hint="End the processes in it, and try again.",
                )
            time.sleep(0.01)

    def _directories(self, below: str = "") -> Iterator[Path]:
        for group in self.groups:
            for path, _, _ in os.walk(group / below, topdown=False):
                yield Path(path)
