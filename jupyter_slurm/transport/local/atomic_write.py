"""Directories created atomically on this computer.

A directory is created in advance, with files in it. On a network file system, or on a disk after many deletions, a new
file takes longer than all other work of a submission; a rename takes almost no time.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import hashlib
import itertools
import os
import re
import secrets
import shutil
import threading
from collections.abc import Mapping, Sequence

from jupyter_slurm.transport.local.files import lock, new_file, write_all

__all__ = ["FileDraft", "FileDrafts", "draft_name", "remove_abandoned"]

_NUMBERS = itertools.count(secrets.randbelow(0x10000))  # of the names; an earlier process may have had this process ID
_PREPARED_FILES = 4  # files: the script, its record, and sbatch's two output streams


def draft_name() -> str:
    """Return a name for an unfinished file or folder. It tells later processes of this machine who is making it.

    This process counts its names: random ones of the same length would be the same now and then.
    """
    return f".{_machine()}{os.getpid() & 0xFFFFFF:06x}{next(_NUMBERS) & 0xFFFF:04x}.tmp"


def remove_abandoned(folder: str) -> None:
    """Remove the drafts in a folder whose process, on this machine, was killed."""
    named = re.compile(rf"\.{_machine()}([0-9a-f]{{6}})[0-9a-f]{{4}}\.tmp")
    with contextlib.suppress(OSError):
        for name in os.listdir(folder):
            match = named.fullmatch(name)
            if match is not None and not _is_alive(int(match[1], 16)):
                path = os.path.join(folder, name)
                if os.path.isdir(path) and not os.path.islink(path):
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    os.unlink(path)


@functools.cache
def _machine() -> str:
    """Return six digits for this boot of this machine, and for its process namespace, to which a process ID belongs."""
    parts = [os.uname().nodename]
    with contextlib.suppress(OSError):
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            parts.append(file.read())
        parts.append(os.readlink("/proc/self/ns/pid"))
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:6]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


class FileDraft:
    """A directory with a temporary name, whose files are open.

    Parameters
    ----------
    parent : str
        The directory that contains the draft.
    files : int
        Number of files to create at once.

    Raises
    ------
    OSError
        The draft cannot be created.
    """

    def __init__(self, parent: str, files: int = 0) -> None:
        self._path = os.path.join(parent, draft_name())
        self._unnamed: list[int] = []
        self._named: list[int] = []
        os.mkdir(self._path, 0o700)
        try:
            for index in range(files):
                self._unnamed.append(new_file(self._file(index)))
        except BaseException:
            self.discard()
            raise

    def publish(self, path: str, files: Mapping[str, bytes], empty: Sequence[str]) -> list[int]:
        """Write these files and take the final name, atomically for other processes; the first file is locked.

        Parameters
        ----------
        path : str
            Final path, in the same parent.
        files : mapping
            Content by name; at least one.
        empty : sequence of str
            Names of files to be written later.

        Returns
        -------
        list of int
            Descriptors of the first file and the empty files, open for writing.

        Raises
        ------
        FileExistsError
            The name exists already.
        OSError
            The directory cannot be created. In both cases the draft is removed.
        """
        try:
            for index, (name, data) in enumerate(files.items()):
                file = self._add(name)
                if index == 0:
                    lock(file)
                write_all(file, data)
            for name in empty:
                self._add(name)
            while self._unnamed:
                index = len(self._unnamed) - 1
                os.unlink(self._file(index))
                os.close(self._unnamed.pop())
            os.rename(self._path, path)
        except BaseException as error:
            self.discard()
            if isinstance(error, OSError) and error.errno == errno.ENOTEMPTY:
                raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path) from error
            raise
        for file in self._named[1 : len(files)]:
            os.close(file)
        return [self._named[0], *self._named[len(files) :]]

    def discard(self) -> None:
        """Remove the draft."""
        while self._unnamed:
            os.close(self._unnamed.pop())
        while self._named:
            os.close(self._named.pop())
        shutil.rmtree(self._path, ignore_errors=True)

    def _add(self, name: str) -> int:
        path = os.path.join(self._path, name)
        if self._unnamed:
            os.rename(self._file(len(self._unnamed) - 1), path)
            self._named.append(self._unnamed.pop())
        else:
            self._named.append(new_file(path))
        return self._named[-1]

    def _file(self, index: int) -> str:
        return os.path.join(self._path, f".{index}")


class FileDrafts:
    """Drafts created in advance, at most one for each parent. Thread safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._prepared: dict[str, FileDraft] = {}
        self._swept = set[str]()
        self._is_closed = False

    def new_folder(self, path: str, files: Mapping[str, bytes], empty: Sequence[str]) -> list[int]:
        """Create a directory, see :meth:`FileDraft.publish`. A prepared draft may have been removed meanwhile."""
        parent = os.path.dirname(path)
        with self._lock:
            ready = self._prepared.pop(parent, None)
        if ready is not None:
            try:
                return ready.publish(path, files, empty)
            except FileExistsError:
                raise
            except OSError:
                pass  # a new draft meets any remaining error too
        return FileDraft(parent).publish(path, files, empty)

    def prepare(self, parent: str) -> None:
        """Create a draft for the next call, if possible."""
        with self._lock:
            if self._is_closed or parent in self._prepared:
                return
            is_first = parent not in self._swept
            self._swept.add(parent)
        if is_first:
            remove_abandoned(parent)
        try:
            draft = FileDraft(parent, _PREPARED_FILES)
        except OSError:
            return
        with self._lock:
            if not self._is_closed and parent not in self._prepared:
                self._prepared[parent] = draft
                return
        draft.discard()

    def close(self) -> None:
        """Remove the drafts."""
        with self._lock:
            self._is_closed = True
            ready, self._prepared = self._prepared, {}
        for draft in ready.values():
            draft.discard()
