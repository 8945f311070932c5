"""Files in a private directory: written atomically, by one process at a time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Callable, Iterator

from jupyter_slurm.errors import TransportError

__all__ = ["lock_file", "make_private", "write_private"]


def make_private(folder: str) -> None:
    """Create a directory, and check that only its owner can write to it."""
    os.makedirs(folder, 0o700, exist_ok=True)
    info = os.lstat(folder)
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.geteuid() or info.st_mode & 0o077:
        raise TransportError(
            f"{folder} is not a directory of yours that other users cannot open.",
            hint=f"Remove {folder}, or set c.JupyterSlurm.runtime_dir to another directory.",
        )


@contextlib.contextmanager
def lock_file(path: str, is_over: Callable[[], bool]) -> Iterator[None]:
    """Hold a lock file. Wait for it until ``is_over``, perhaps for minutes; then yield without the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        while not is_over():
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            time.sleep(0.05)
        yield
    finally:
        os.close(descriptor)


def write_private(path: str, data: bytes, mode: int) -> None:
    """Write a file in a private directory atomically."""
    draft = f"{path}.{secrets.token_hex(4)}"
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
    os.replace(draft, path)
