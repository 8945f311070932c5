"""Lock that lets one of several jobs do work for all, also between nodes.

The lock is a file that only one process can create (open(2): O_EXCL holds on NFS), with a modification time that the
holder renews. flock(2) is not used: between nodes it depends on the mount options of Lustre, BeeGFS and NFS, and its
failure is silent. Waiting processes measure by their own clock how long the file has not changed. A holder on the same
node is checked directly. A frozen holder may resume beside its successor, so results are put in place by renaming.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import threading
import time
from typing import Any, Callable, Iterator

_RENEWAL_INTERVAL_S = 5.0  # seconds between two renewals
_EXPIRY_S = 60.0  # seconds without renewal after which the holder counts as ended
_POLL_INTERVAL_S = 0.5  # seconds between two checks
_MAX_LOCK_BYTES = 4096


def holder() -> str:
    """Return a unique label of this process: boot of its node, namespace, process id, start time (proc(5)).

    The first process namespace has the same number on every node. A container of another node is visible if DOCKER_HOST
    points to that node, or if Podman keeps its records in a shared home.
    """
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        begun = file.read().rpartition(")")[2].split()[19]
    return f"{_boot()}/{os.readlink('/proc/self/ns/pid')}/{os.getpid()}/{begun}"


def has_ended(label: str) -> bool:
    """Return whether the process with a label has ended; never true for processes of other nodes or namespaces."""
    boot, space, pid, begun = (label.split("/") + [""] * 4)[:4]
    is_here = boot != "" and (boot, space) == (_boot(), os.readlink("/proc/self/ns/pid"))
    if not is_here or not pid.isdigit():
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return fields[19] != begun or fields[0] in ("Z", "X")  # dead, but not reaped by its parent yet
    except FileNotFoundError:
        return True
    except OSError:
        return False


def _boot() -> str:
    with contextlib.suppress(OSError), open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()
    return ""


def _node() -> str:
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def _read(path: str) -> Any:
    """Return content and renewal time of a lock; None: no lock. Opening it updates the time seen from other nodes."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_at_once) as file:
            return file.read(_MAX_LOCK_BYTES), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
    except OSError:  # of another user, in a folder of several users
        with contextlib.suppress(OSError):
            return "", os.stat(path).st_mtime_ns
        return None


def _at_once(path: str, flags: int) -> int:
    """Open a file without blocking, in case another user has put a pipe in its place."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse_holder(text: str) -> dict[str, str]:
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(text)
        if isinstance(told, dict):
            return {name: str(value)[:200] for name, value in told.items()}
    return {}  # the file is just being written


def _make(path: str, text: str) -> bool:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(file, "w", encoding="utf-8") as lock:
        lock.write(text)
    return True


def _break(path: str, text: str) -> None:
    """Remove the lock of a holder that has ended. A lock acquired by another process in the meantime is put back."""
    aside = f"{path}.{os.urandom(4).hex()}"
    try:
        os.rename(path, aside)
    except FileNotFoundError:
        return
    except OSError:
        raise PermissionError(
            errno.EPERM, "the lock of another user's job, which has ended, cannot be removed", path
        ) from None
    with contextlib.suppress(OSError):
        found = _read(aside)
        if found is not None and found[0] != text:
            os.link(aside, path)
        os.unlink(aside)


def _renew(path: str, text: str, is_over: threading.Event) -> None:
    while not is_over.wait(_RENEWAL_INTERVAL_S):
        found = _read(path)
        if found is None or found[0] != text:
            return  # others assumed that this process had ended
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def held(path: str, is_done: Callable[[], bool], wait: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock for work that is to be done once.

    Parameters
    ----------
    path : str
        Path of the lock.
    is_done : callable
        Returns whether another process has done the work.
    wait : callable
        Called once with a text that names the awaited job.

    Yields
    ------
    bool
        Whether this process has to do the work; False: another one has done it.

    Raises
    ------
    OSError
        The lock cannot be created.
    """
    mine = {"job": os.environ.get("SLURM_JOB_ID", ""), "node": _node(), "holder": holder()}
    text = json.dumps({**mine, "at": str(time.time())})
    if not _take(path, text, is_done, wait):
        yield False
        return
    is_over = threading.Event()
    threading.Thread(target=_renew, args=(path, text, is_over), daemon=True).start()
    try:
        yield not is_done()
    finally:
        is_over.set()
        found = _read(path)
        if found is not None and found[0] == text:
            with contextlib.suppress(OSError):
                os.unlink(path)


def _take(path: str, text: str, is_done: Callable[[], bool], wait: Callable[[str], None]) -> bool:
    """Create the lock; return False if it is no longer needed."""
    seen, since, named = None, time.monotonic(), ""
    while not is_done():
        if _make(path, text):
            return True
        found = _read(path)
        if found != seen:
            seen, since = found, time.monotonic()
        told = _parse_holder(found[0] if found else "")
        if found and (has_ended(told.get("holder", "")) or time.monotonic() - since > _EXPIRY_S):
            _break(path, found[0])
            continue
        who = f"job {told['job']} on {told['node']}" if told.get("job") and told.get("node") else ""
        if who and who != named:
            named = who
            wait(who)
        time.sleep(_POLL_INTERVAL_S)
    return False
