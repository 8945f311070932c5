"""Folder of a kernel's sockets, on a disk of its node. Later keepers remove the folders of killed keepers.

Each folder records its owning process. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, Iterator

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("kernel/folder.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import lock
else:
    lock = load("container.lock")

_PREFIX, _HOLDER = "kernel-", "holder"
_NEEDED_BYTES = 16_384  # free bytes for a connection file, and for other files of kernels
_MAX_PATH_BYTES = 60  # bytes of the path of a folder: that of a socket in it may have 107 (unix(7))
_MAX_LABEL_BYTES = 4096


def places() -> Iterator[str]:
    """Return the possible parent folders."""
    there = (os.environ.get("TMPDIR"), tempfile.gettempdir(), "/tmp", "/dev/shm")  # noqa: S108 - mkdtemp is safe
    yield from dict.fromkeys(place for place in there if place and len(os.fsencode(place)) < _MAX_PATH_BYTES)


def make() -> str | None:
    """Create a private folder of this process; None: there is no space for it."""
    sweep()
    for place in places():
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
            try:
                _write_holder(folder)
                return folder
            except OSError:  # for example a full disk; another folder may have space
                shutil.rmtree(folder, ignore_errors=True)
    return None


def _write_holder(folder: str) -> None:
    path = os.path.join(folder, _HOLDER)
    with open(path, "w", encoding="ascii") as file:
        file.write(lock.holder().ljust(_NEEDED_BYTES))
    with open(path, "w", encoding="ascii") as file:
        file.write(lock.holder())


def sweep() -> None:
    """Remove this user's folders whose keeper has ended. The kernel of such a keeper has ended with it."""
    for place in places():
        with contextlib.suppress(OSError):
            for name in os.listdir(place):
                if name.startswith(_PREFIX) and _is_abandoned(os.path.join(place, name)):
                    shutil.rmtree(os.path.join(place, name), ignore_errors=True)


def _is_abandoned(folder: str) -> bool:
    with contextlib.suppress(OSError, ValueError):
        about = os.lstat(folder)
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.getuid():
            file = os.open(os.path.join(folder, _HOLDER), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(file, encoding="ascii") as label:
                return bool(lock.has_ended(label.read(_MAX_LABEL_BYTES).strip()))
    return False
