"""Files of the user on this host, for a client at the other end of this process's standard input and output.

Python 3.8 or later, standard library only. The client first sends this text, then one request after the other. A
request and its answer are a head (JSON in ASCII) and raw bytes: the lengths of both (4 bytes each, big-endian), the
head, the bytes. Names are bytes of any kind: those that are not UTF-8 are U+DC80-DCFF in the head (PEP 383).

A file is written to a draft in the same directory, which then takes its name. So a file is always whole: the old one or
the new one. A version is size, time and inode of a file.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import stat
import struct
import sys
import time
from typing import Any, Dict, Iterator, Tuple

LENGTHS = struct.Struct(">II")
MAX_HEAD = 1 << 16
MAX_DATA = 8 << 20
MAX_ENTRIES = 100000
DRAFT = b".jupyter-slurm-draft-"
_STALE_S = 86400.0  # seconds after which a draft is a remnant
_LOCK_TRIES = 50

Answer = Tuple[Dict[str, Any], bytes]


class Refused(Exception):
    """A request that is not carried out; ``code`` names the kind of the reason."""

    def __init__(self, code: str, reason: str = "") -> None:
        super().__init__(reason)
        self.code = code


def raw(text: str) -> bytes:
    """Return the bytes of a name in a head."""
    return text.encode("utf-8", "surrogateescape")


def version_of(found: os.stat_result) -> str:
    """Return the version of a file."""
    return f"{found.st_size}-{found.st_mtime_ns}-{found.st_ino}"


def describe(name: bytes, link: os.stat_result, found: os.stat_result) -> list[Any]:
    """Return name, type, whether it is a link, size, time in seconds, and version."""
    kind = "directory" if stat.S_ISDIR(found.st_mode) else "file" if stat.S_ISREG(found.st_mode) else "other"
    name_text = name.decode("utf-8", "surrogateescape")
    return [name_text, kind, stat.S_ISLNK(link.st_mode), found.st_size, found.st_mtime, version_of(found)]


def entry_at(path: bytes) -> list[Any]:
    """Return the description of a path; a link that leads nowhere is described itself."""
    link = os.lstat(path)
    try:
        found = os.stat(path)
    except OSError:
        found = link
    return describe(os.path.basename(path.rstrip(b"/")) or b"/", link, found)


def list_directory(path: bytes) -> Answer:
    """Describe the entries of a directory."""
    entries: list[Any] = []
    with os.scandir(path) as found:
        for entry in found:
            if entry.name.startswith(DRAFT):
                continue
            if len(entries) == MAX_ENTRIES:
                return {"entries": entries, "is_whole": False}, b""
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                entries.append(describe_listed(entry))
    return {"entries": entries, "is_whole": True}, b""


def describe_listed(entry: os.DirEntry[bytes]) -> list[Any]:
    """Return the description of an entry; one without a status, such as a broken mount point, is of another type."""
    try:
        link = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        raise
    except OSError:
        return [entry.name.decode("utf-8", "surrogateescape"), "other", False, 0, 0.0, f"0-0-{entry.inode()}"]
    target = link
    if stat.S_ISLNK(link.st_mode):
        with contextlib.suppress(OSError):
            target = entry.stat()
    return describe(entry.name, link, target)


def read(path: bytes, offset: int, limit: int, version: str | None) -> Answer:
    """Read a part of a file, of this version if one is given."""
    file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a FIFO would block
    try:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode):
            raise Refused("directory" if stat.S_ISDIR(found.st_mode) else "special")
        if version is not None and version_of(found) != version:
            raise Refused("changed")
        data = os.pread(file, min(limit, MAX_DATA), offset)
        return {"size": found.st_size, "version": version_of(found)}, data
    finally:
        os.close(file)


@contextlib.contextmanager
def locked(folder: bytes) -> Iterator[None]:
    """Keep other processes of this program from changing names in a directory, where its file system has locks."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for _ in range(_LOCK_TRIES):
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                time.sleep(0.02)
            except OSError:
                break
        yield
        with contextlib.suppress(OSError):
            os.fsync(file)
    finally:
        os.close(file)


def check_version(path: bytes, version: str | None) -> os.stat_result | None:
    """Return the status of a file; Refused unless it has the version. Empty: no file; None: any version."""
    try:
        found: os.stat_result | None = os.stat(path)
    except FileNotFoundError:
        found = None
    if found is not None and not stat.S_ISREG(found.st_mode):
        raise Refused("directory" if stat.S_ISDIR(found.st_mode) else "special")
    if version is not None and version != ("" if found is None else version_of(found)):
        raise Refused("changed" if version else "exists")
    if found is not None and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    return found


def write(path: bytes, draft_token: bytes, offset: int, version: str | None, is_last: bool, data: bytes) -> Answer:
    """Write a part of a file to its draft; the last part gives the draft the name of the file."""
    path = os.path.realpath(path)
    folder = os.path.dirname(path)
    draft = os.path.join(folder, DRAFT + draft_token)
    if offset == 0:
        check_version(path, version)
        remove_stale(folder)
        with contextlib.suppress(FileNotFoundError):  # of a request that is repeated
            os.unlink(draft)
    try:
        flags = os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_CREAT | os.O_EXCL if offset == 0 else 0)
        with os.fdopen(os.open(draft, flags, 0o600), "wb", buffering=0) as file:
            if os.fstat(file.fileno()).st_size < offset:
                raise Refused("incomplete")
            os.ftruncate(file.fileno(), offset)
            file.seek(offset)
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            if not is_last:
                return {"entry": None}, b""
            os.fsync(file.fileno())
            with locked(folder):
                keep_mode(file.fileno(), check_version(path, version))
                if version == "":
                    place_new(draft, path)
                else:
                    os.replace(draft, path)
        return {"entry": entry_at(path)}, b""
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def keep_mode(file: int, old: os.stat_result | None) -> None:
    """Give a draft the mode and the group of the old file, or those of a new file."""
    if old is None:
        mask = os.umask(0)
        os.umask(mask)
        os.fchmod(file, 0o666 & ~mask)
        return
    with contextlib.suppress(OSError):
        os.fchown(file, -1, old.st_gid)
    os.fchmod(file, old.st_mode & 0o777)


def place_new(source: bytes, path: bytes) -> None:
    """Give a file a name that must be free."""
    try:
        os.link(source, path, follow_symlinks=False)
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        check_free(path)
        os.rename(source, path)
    else:
        os.unlink(source)


def check_free(path: bytes) -> None:
    """Raise FileExistsError if something has this name."""
    if os.path.lexists(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST))


def remove_stale(folder: bytes) -> None:
    """Remove old drafts of the user from a directory."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(DRAFT):
                with contextlib.suppress(OSError):  # the next one may be removable
                    if is_stale(entry.path):
                        remove_draft(entry.path)


def is_stale(draft: bytes) -> bool:
    """Return whether a draft is an old one of the user; the times of copied directories are those of the source."""
    limit, found = time.time() - _STALE_S, os.lstat(draft)
    if found.st_uid != os.geteuid() or not stat.S_ISDIR(found.st_mode):
        return found.st_uid == os.geteuid() and found.st_mtime < limit
    paths = (os.path.join(folder, name) for folder, _, names in os.walk(draft) for name in (b"", *names))
    return all(os.lstat(path).st_ctime < limit for path in paths)


def remove_draft(draft: bytes) -> None:
    """Remove a draft, as far as possible; a directory that was copied with its mode may be read-only."""
    with contextlib.suppress(OSError, RecursionError):
        if stat.S_ISDIR(os.lstat(draft).st_mode):
            os.chmod(draft, stat.S_IRWXU)
            for folder, names, _ in os.walk(draft):
                for path in (os.path.join(folder, name) for name in names):
                    if not os.path.islink(path):
                        os.chmod(path, stat.S_IRWXU)
        remove(draft)


def copy(path: bytes, to: bytes) -> None:
    """Copy a file or a tree to a free name; links stay links."""
    check_free(to)
    if (os.path.realpath(to) + b"/").startswith(os.path.realpath(path) + b"/"):
        raise Refused("inside")
    draft = os.path.join(os.path.dirname(to), DRAFT + os.urandom(8).hex().encode("ascii"))
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            shutil.copytree(os.fsdecode(path), os.fsdecode(draft), symlinks=True)
            check_free(to)
            os.rename(draft, to)
        else:
            shutil.copy2(path, draft, follow_symlinks=False)
            place_new(draft, to)
    except BaseException:
        remove_draft(draft)
        raise


def remove(path: bytes) -> None:
    """Remove a file or a tree, if it exists; links are not followed."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    else:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)


def rename(path: bytes, to: bytes) -> None:
    """Give a file or a directory a free name; between two file systems, it is copied and removed."""
    found = os.lstat(path)
    check_free(to)
    try:
        with locked(os.path.dirname(to)):
            if stat.S_ISDIR(found.st_mode):
                check_free(to)
                os.rename(path, to)
            else:
                place_new(path, to)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        copy(path, to)
        remove(path)


def holds_home(path: bytes, home: bytes) -> bool:
    """Return whether a directory is the home directory or one above it."""
    return not os.path.islink(path) and os.path.commonpath([os.path.realpath(path), os.path.realpath(home)]) == (
        os.path.realpath(path)
    )


def change(action: str, path: bytes, to: bytes, home: bytes) -> Answer:
    """Make a directory, rename, copy or delete; describe the result."""
    path, to = (b"/" + name.strip(b"/") if name else b"" for name in (path, to))
    if action in ("rename", "delete") and holds_home(path, home):
        raise Refused("root")
    if action == "mkdir":
        os.mkdir(path)
    elif action == "rename":
        rename(path, to)
    elif action == "copy":
        copy(path, to)
    else:
        os.lstat(path)
        remove(path)
        return {"entry": None}, b""
    return {"entry": entry_at(to or path)}, b""


def act(head: dict[str, Any], data: bytes) -> Answer:
    """Carry out a request."""
    action, path = head["action"], raw(head["path"])
    if action == "list":
        return list_directory(path)
    if action == "stat":
        return {"entry": entry_at(path)}, b""
    if action == "read":
        return read(path, head["offset"], head["limit"], head["version"])
    if action == "write":
        return write(path, raw(head["draft"]), head["offset"], head["version"], head["is_last"], data)
    return change(action, path, raw(head["to"]), raw(head["home"]))


def answer_to(head: dict[str, Any], data: bytes) -> Answer:
    """Carry out a request; an error is an answer, too."""
    try:
        return act(head, data)
    except Refused as error:
        return {"error": error.code, "reason": str(error)}, b""
    except shutil.Error as error:
        return {"error": "copy", "reason": str(error)[:2000]}, b""
    except RecursionError:
        return {"error": "deep"}, b""
    except OSError as error:
        return {"error": errno.errorcode.get(error.errno or 0, "EIO"), "reason": error.strerror or str(error)}, b""


def receive(size: int) -> bytes:
    """Read so many bytes; the end of the input ends this process."""
    parts = []
    while size:
        piece = os.read(0, min(size, 1 << 20))
        if not piece:
            sys.exit(0)
        parts.append(piece)
        size -= len(piece)
    return b"".join(parts)


def main() -> None:
    """Serve requests until the end of the input."""
    while True:
        head_size, data_size = LENGTHS.unpack(receive(LENGTHS.size))
        if head_size > MAX_HEAD or data_size > MAX_DATA:
            sys.exit("a request is too large")
        head = json.loads(receive(head_size).decode("ascii"))
        answer, data = answer_to(head, receive(data_size))
        text = json.dumps(answer, separators=(",", ":")).encode("ascii")
        view = memoryview(LENGTHS.pack(len(text), len(data)) + text + data)
        while view:
            view = view[os.write(1, view) :]


if __name__ == "__main__":
    main()
