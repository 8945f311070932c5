"""State file beside a connection file: the data of its kernel, for the successor of a killed proxy."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import json
import logging
import os
import re
import secrets
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TypedDict, Unpack, cast

from jupyter_slurm.kernels.release import schedule_release

__all__ = ["STATE_FILE_SUFFIX", "KernelState", "KernelStateFile", "read", "write_owner"]

log = logging.getLogger(__name__)

STATE_FILE_SUFFIX = ".slurm"
"""Suffix of its name after that of the connection file."""

_OWNER_SUFFIX = ".slurm-owner"  # of the file with the owner of a kernel whose notebook was renamed
_OWNER_PATTERN = re.compile(r"[0-9a-f]{16}")
_MACHINE_ID_FILES = ("/etc/machine-id", "/var/lib/dbus/machine-id")
_MAX_STATE_BYTES = 1 << 22
_EXIT_TIMEOUT_S, _CHECK_INTERVAL_S = 10.0, 0.05  # seconds


class KernelState(TypedDict, total=False):
    """The content of a state file."""

    begun: float
    owner: str
    owner_by_host: str
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
    ``running``, ``unknown`` (it was running, and could not be looked up), ``restarting`` (another step will start in
    the allocation), ``died``, ``over`` (the allocation has ended, too).

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
        self.data: KernelState = _content(self._file, self.path)
        self._written = os.pread(self._file, _MAX_STATE_BYTES, 0)
        self._is_trouble_reported = False
        self._owners = _kernel_owners(notebook, kernel)
        self.owner = self._owners[0] if notebook else str(self.data.get("owner") or self._owners[0])
        if not self.data and notebook:
            self._adopt()

    def write(self, **told: Unpack[KernelState]) -> bool:
        """Write changed or additional data; return whether they were written: a kernel needs no space for them."""
        owners: KernelState = {"owner": self.owner, "owner_by_host": self._owners[1]}
        self.data = {"begun": time.time(), **self.data, **owners, **told}
        text = json.dumps(self.data).encode() + b"\n"
        try:
            _put(self._file, text)
        except OSError as error:
            with contextlib.suppress(OSError):
                _put(self._file, self._written)
            if not self._is_trouble_reported:
                lost = "After a crash of Jupyter, this kernel may not be found again"
                log.warning("%s cannot be written: %s. %s.", self.path, error, lost)
            self._is_trouble_reported = True
            return False
        self._written = text
        return True

    def remove(self) -> None:
        """Remove the file: its kernel has ended."""
        self.data = {}
        _remove(self.path)

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
                    told = _content(other, str(path))
                    if self._is_own(told):
                        told["owner"], told["owner_by_host"] = self.owner, self._owners[1]
                        if self.write(**told):
                            _remove(str(path))
                finally:
                    os.close(other)

    def _leave(self, path: Path) -> None:
        """Release the request of another proxy of the same notebook that was killed before its kernel started."""
        told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
        if not self._is_own(told) or told.get("state") != "starting":
            return
        with contextlib.suppress(OSError):
            os.close(_open(str(path), 0))  # otherwise that proxy is alive
            schedule_release(str(path).removesuffix(STATE_FILE_SUFFIX))

    def _is_restarting(self, path: Path) -> bool:
        """Return whether a proxy of the same notebook will soon leave its allocation to this proxy."""
        told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
        return self._is_own(told) and told.get("state") == "restarting"

    def _is_own(self, told: KernelState) -> bool:
        """Return whether a kernel is that of this notebook, by the machine's ID, or its name if the ID changed."""
        return not {told.get("owner"), told.get("owner_by_host")}.isdisjoint(self._owners)


def _rank(path: Path) -> tuple[bool, float]:
    """Return the sort key of a state file: kernels with variables first, the newest of them, then older requests.

    A notebook has left an older kernel with variables when it was moved to another one, for example.
    """
    told = read(str(path).removesuffix(STATE_FILE_SUFFIX))
    begun = told.get("begun")
    begun = begun if isinstance(begun, float) else 0.0
    has_variables = told.get("state") in ("running", "unknown", "restarting")
    return not has_variables, -begun if has_variables else begun


def _put(file: int, text: bytes) -> None:
    """Write the content in place: the file is locked, and a line is read as a whole or not at all."""
    done = 0
    while done < len(text):
        written = os.pwrite(file, text[done:], done)
        if not written:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        done += written
    os.ftruncate(file, len(text))


def _remove(path: str) -> None:
    """Remove a state file, and the owner beside it."""
    for file in (path, path.removesuffix(STATE_FILE_SUFFIX) + _OWNER_SUFFIX):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(file)


def read(connection_file: str) -> KernelState:
    """Return the content of the state file of a connection file; empty if there is none."""
    try:
        file = os.open(connection_file + STATE_FILE_SUFFIX, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return {}
    try:
        return _content(file, connection_file + STATE_FILE_SUFFIX)
    finally:
        os.close(file)


def write_owner(connection_file: str, notebook: str, kernel: str) -> None:
    """Write the owner of a kernel whose notebook was renamed: its proxy, which has the state file, knows the old name.

    Raises
    ------
    OSError
        The file cannot be written.
    """
    path = connection_file + _OWNER_SUFFIX
    file = os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        _put(file, _kernel_owners(notebook, kernel)[0].encode())
    finally:
        os.close(file)
    os.replace(f"{path}.new", path)


def _renamed_owner(path: str) -> str:
    """Return the owner that was written beside a state file; empty if there is none."""
    with contextlib.suppress(OSError, ValueError):
        text = Path(path.removesuffix(STATE_FILE_SUFFIX) + _OWNER_SUFFIX).read_text("ascii")
        return text if _OWNER_PATTERN.fullmatch(text) else ""
    return ""


def _kernel_owners(notebook: str | None, kernel: str) -> tuple[str, str]:
    """Return the owner of a kernel (a notebook on this machine, else a unique value), also as earlier versions did.

    These used the host name, which changes with the network of a laptop. The identifier of a machine without a disk
    changes with each start.
    """
    place = os.path.abspath(notebook) if notebook else secrets.token_hex(16)
    now, before = ("\n".join((machine, place, kernel)) for machine in (_machine_id(), socket.gethostname()))
    return _digest(now), _digest(before)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:16]


def _machine_id() -> str:
    """Return an identifier of this machine that outlives its host name, if the machine has one (machine-id(5))."""
    for path in _MACHINE_ID_FILES:
        with contextlib.suppress(OSError, ValueError):
            text = Path(path).read_text("ascii").strip()
            if re.fullmatch("[0-9a-f]{32}", text):
                return text
    if sys.platform == "darwin":
        import ctypes

        with contextlib.suppress(OSError, AttributeError):
            found, no_limit = ctypes.create_string_buffer(16), (ctypes.c_long * 2)()
            if ctypes.CDLL(None).gethostuuid(found, no_limit) == 0:  # gethostuuid(2)
                return found.raw.hex()
    return socket.gethostname()


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


def _content(file: int, path: str) -> KernelState:
    try:
        told = json.loads(os.pread(file, _MAX_STATE_BYTES, 0).partition(b"\n")[0])
    except (OSError, ValueError):
        return {}
    if not isinstance(told, dict):
        return {}
    if told and (owner := _renamed_owner(path)):
        told["owner"] = owner
        told.pop("owner_by_host", None)  # of the former name
    return cast("KernelState", told)
