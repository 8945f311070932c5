"""What leads from a connection file to its kernel: the file beside it, for who comes after a front that was killed."""

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

from jupyter_slurm.kernels.release import give_back_later

__all__ = ["ENDING", "KernelState", "KernelStateFile", "read"]

ENDING = ".slurm"
"""What its name has behind that of the connection file."""

_LARGEST = 1 << 22
_LEAVES_WITHIN, _LOOK = 10.0, 0.05  # seconds


class KernelState(TypedDict, total=False):
    """The content of the file."""

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
    """The signpost of a connection file, which one front at a time has; its owner alone can read it.

    It says the cluster, the keys of allocation and step, the secret of the link, and the state: ``starting``,
    ``running``, ``restarting`` (another step is to begin in the allocation), ``died``, ``over`` (so is the allocation).

    Parameters
    ----------
    connection_file : path
        Beside which it stands.
    notebook, kernel : str
        Whose kernel it is; without a notebook nobody finds it by another connection file.

    Raises
    ------
    BlockingIOError
        Another front has it.
    """

    def __init__(self, connection_file: str, notebook: str | None = None, kernel: str = "") -> None:
        self.path = connection_file + ENDING
        self._file = _open_when_free(self.path)
        self.data: KernelState = _content(self._file)
        self.owner = str(self.data.get("owner") or _owner_of(notebook, kernel))
        if not self.data and notebook:
            self._adopt()

    def write(self, **told: Unpack[KernelState]) -> None:
        """Say something else, or more."""
        self.data = {"begun": time.time(), **self.data, "owner": self.owner, **told}
        text = json.dumps(self.data).encode() + b"\n"
        os.pwrite(self._file, text, 0)  # in its place: it is locked, and a line is read as a whole or not at all
        os.ftruncate(self._file, len(text))

    def remove(self) -> None:
        """Take it away: its kernel is over."""
        self.data = {}
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)

    def close(self) -> None:
        """Leave it to whoever comes next."""
        os.close(self._file)

    def _adopt(self) -> None:
        """Take over the kernel of the same notebook whose front has ended, and whose connection file may be gone."""
        for path in sorted(Path(self.path).parent.glob(f"*{ENDING}"), key=_rank):
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
        """Have given back what another front of the same notebook has asked for, and was killed before it came."""
        told = read(str(path).removesuffix(ENDING))
        if (told.get("owner"), told.get("state")) != (self.owner, "starting"):
            return
        with contextlib.suppress(OSError):
            os.close(_open(str(path), 0))  # else it lives
            give_back_later(str(path).removesuffix(ENDING))

    def _is_restarting(self, path: Path) -> bool:
        """Tell whether a front of the same notebook is about to leave what it had to us."""
        told = read(str(path).removesuffix(ENDING))
        return (told.get("owner"), told.get("state")) == (self.owner, "restarting")


def _rank(path: Path) -> tuple[bool, float]:
    """Return what stands lower for a kernel that has variables than for one that is to come, and for an older one."""
    told = read(str(path).removesuffix(ENDING))
    begun = told.get("begun")
    return told.get("state") not in ("running", "restarting"), begun if isinstance(begun, float) else 0.0


def read(connection_file: str) -> KernelState:
    """Return what the signpost of a connection file says; nothing where there is none."""
    try:
        file = os.open(connection_file + ENDING, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _content(file)
    finally:
        os.close(file)


def _owner_of(notebook: str | None, kernel: str) -> str:
    """Return to whom a kernel belongs: a notebook on this machine, else nobody who comes again."""
    said = "\n".join((socket.gethostname(), os.path.abspath(notebook) if notebook else secrets.token_hex(16), kernel))
    return hashlib.sha256(said.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _open_when_free(path: str, flags: int = os.O_CREAT) -> int:
    """Open a signpost of ours; the front before us may have a moment to live."""
    deadline = time.monotonic() + _LEAVES_WITHIN
    while True:
        try:
            return _open(path, flags)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_LOOK)


def _open(path: str, flags: int) -> int:
    """Open a signpost, and lock it; it is unlocked when its process ends, however that does."""
    file = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        if os.fstat(file).st_uid != os.geteuid():
            raise PermissionError(f"{path} belongs to somebody else")
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
        told = json.loads(os.pread(file, _LARGEST, 0).partition(b"\n")[0])
    except (OSError, ValueError):
        return {}
    return cast("KernelState", told) if isinstance(told, dict) else {}
