"""The folder of a kernel's sockets, on a disk of its node; who follows there removes those of keepers that were killed.

In each lies which process it belongs to. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import runpy
import shutil
import stat
import tempfile
from typing import TYPE_CHECKING, Iterator

# The files of the runner are no package: each is read by its path.
load = runpy.run_path(__file__[: -len("kernel/folder.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.container import lock
else:
    lock = load("container.lock")

_PREFIX, _HOLDER = "kernel-", "holder"
_NEEDED_BYTES = 16_384  # bytes that are needed there for a connection file, and what else kernels leave
_MAX_PATH_BYTES = 60  # bytes of the path of a place: that of a socket in it may have 107 (unix(7))
_MAX_LABEL_BYTES = 4096


def places() -> Iterator[str]:
    """Return the folders in which one can be made."""
    there = (os.environ.get("TMPDIR"), tempfile.gettempdir(), "/tmp", "/dev/shm")  # noqa: S108 - mkdtemp is safe
    yield from dict.fromkeys(place for place in there if place and len(os.fsencode(place)) < _MAX_PATH_BYTES)


def make() -> str | None:
    """Make one of this process, of this user alone; None: there is no room for it anywhere."""
    sweep()
    for place in places():
        with contextlib.suppress(OSError):
            folder = tempfile.mkdtemp(prefix=_PREFIX, dir=place)
            try:
                _write_holder(folder)
                return folder
            except OSError:  # of a full disk; another one may have room
                shutil.rmtree(folder, ignore_errors=True)
    return None


def _write_holder(folder: str) -> None:
    path = os.path.join(folder, _HOLDER)
    with open(path, "w", encoding="ascii") as file:
        file.write(lock.holder().ljust(_NEEDED_BYTES))
    with open(path, "w", encoding="ascii") as file:
        file.write(lock.holder())


def sweep() -> None:
    """Remove those of this user whose keeper is gone; with it went its kernel, which dies with it."""
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
                return bool(lock.is_gone(label.read(_MAX_LABEL_BYTES).strip()))
    return False
