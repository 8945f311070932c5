"""State file beside a connection file: the data of its kernel, for the successor of a killed proxy."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import secrets
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack, cast

from jupyter_slurm.kernels.release import schedule_release

__all__ = ["STATE_FILE_SUFFIX", "KernelState", "KernelStateFile", "read"]

STATE_FILE_SUFFIX = ".slurm"
"""Suffix of its name after that of the connection file."""

_MAX_STATE_BYTES = 1 << 22
_EXIT_TIMEOUT_S, _CHECK_INTERVAL_S = 10.0, 0.05  # seconds


class KernelState(TypedDict, total=False):
    """The content of a state file."""

    begun: float
    owner: str
    words: Sequence[str]
    cluster: str
    shared: bool
    state: str
    label: str | None
    allocation: str | None
    step: str | None
    secret: str
    received: int


class KernelStateFile:
    """State file of a connection file, locked by one proxy at a time; only its owner can read it.

    It contains the cluster, the keys of allocation and step, the secret of the link, and the state: ``starting``,
    ``running``, ``restarting`` (another step will start in the allocation), ``died``, ``over`` (the allocation has
    ended, too).

    Parameters
    ----------
    connection_file : path
        Path of the connection file.
    notebook, kernel : str
        Owner of the kernel; without a notebook, the kernel cannot be found by another connection file.

    Raises
    ------
    BlockingIOError
        Another proxy has the file.
    """

    def __init__(self, connection_file: str, notebook: str | None = None, kernel: str = "") -> None:
        self.path = connection_file + STATE_FILE_SUFFIX
        self._file = _open_when_free(self.path)
        self.data: KernelState = _content(self._file)
        self.owner = str(self.data.get("owner") or _kernel_owner(notebook, kernel))
        if not self.data and notebook:
            self._adopt()

    def write(self, **told: Unpack[KernelState]) -> None:
        """Write changed or additional data."""
        self.data = {"begun": time.time(), **self.data, "owner": self.owner, **told}
        text = json.dumps(self.data).encode() + b"\n"
        os.pwrite(self._file, text, 0)  # in place: the file is locked, and a line is read as a whole or not at all
        os.ftruncate(self._file, len(text))

    def remove(self) -> None:
        """Remove the file: its kernel has ended."""
        self.data = {}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        """Close the file for the next proxy."""
        os.close(self._file)

    def _adopt(self) -> None:
        """Take over the kernel of the same notebook whose proxy has ended, and whose connection file may be removed."""
        for path in sorted(Path(self.path).parent.glob(f"*{STATE_FILE_SUFFIX}"), key=_rank):
            if str(path) == self.path:
                continue
            if self.data:
                self._leave(path)
                continue
            with contextlib.suppress(OSError):
                other = _open_when_free(str(path), 0) if self._is_restarting(path) else _open(str(path), 0)
                try:
                    told = _content(other)
                    if told.get("owner") == self.owner:
                        self.write(**told)
                        path.unlink()
                finally:
                    os.close(other)

    def _leave(self, path: Path) -> None:
        """Release the request of another proxy of the same notebook that was killed before its kernel started."""
        told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
        if (told.get("owner"), told.get("state")) != (self.owner, "starting"):
            return
        with contextlib.suppress(OSError):
            os.close(_open(str(path), 0))  # otherwise that proxy is alive
            schedule_release(str(path).removesuffix(STATE_FILE_SUFFIX))

    def _is_restarting(self, path: Path) -> bool:
        """Return whether a proxy of the same notebook will soon leave its allocation to this proxy."""
        told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
        return (told.get("owner"), told.get("state")) == (self.owner, "restarting")


def _rank(path: Path) -> tuple[bool, float]:
    """Return the sort key of a state file: kernels with variables first, then older ones."""
    told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
    begun = told.get("begun")
    return told.get("state") not in ("running", "restarting"), begun if isinstance(begun, float) else 0.0


def read(connection_file: str) -> KernelState:
    """Return the content of the state file of a connection file; empty if there is none."""
    try:
        file = os.open(connection_file + STATE_FILE_SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _content(file)
    finally:
        os.close(file)


def _kernel_owner(notebook: str | None, kernel: str) -> str:
    """Return the owner of a kernel: a notebook on this machine, else a unique value."""
    said = "\n".join((socket.gethostname(), os.path.abspath(notebook) if notebook else secrets.token_hex(16), kernel))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _open_when_free(path: str, flags: int = os.O_CREAT) -> int:
    """Open a state file; the previous proxy may still live for a moment."""
    deadline = time.monotonic() + _EXIT_TIMEOUT_S
    while True:
        try:
            return _open(path, flags)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_CHECK_INTERVAL_S)


def _open(path: str, flags: int) -> int:
    """Open a state file, and lock it; the lock ends with the process in any case."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to another user")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not _is_at(path, file):
            raise BlockingIOError(f"{path} was removed by the front before this one")
    except BaseException:
        os.close(file)
        raise
    return file


def _is_at(path: str, file: int) -> bool:
    with contextlib.suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(file), os.lstat(path))
    return False


def _content(file: int) -> KernelState:
    try:
        told = json.loads(os.pread(file, _MAX_STATE_BYTES, 0).partition(b"\n")[0])
    except (OSError, ValueError):
        return {}
    return cast("KernelState", told) if isinstance(told, dict) else {}
