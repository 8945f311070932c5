"""One of several jobs does something for all: a lock that holds between nodes, too.

It is a file that can be made by one only (open(2): O_EXCL holds on NFS), and whose time is renewed while it is held.
Not flock(2): between nodes that is up to how Lustre, BeeGFS and NFS are mounted, and where it does not hold, nothing
tells. Whoever waits counts by its own clock for how long the file has not changed; a holder of the same node is looked
at. A holder that was frozen may come to life beside its successor, so what is made is put in place by renaming.

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
_EXPIRY_S = 60.0  # seconds after which one that was not renewed has ended
_POLL_INTERVAL_S = 0.5  # seconds between two looks
_MAX_LOCK_BYTES = 4096


def holder() -> str:
    """Return what tells this process from all others: the boot of its node, its namespace, number, beginning (proc(5)).

    Every node gives its first namespace of processes the same number, and a container of another node is seen where
    DOCKER_HOST leads there, or where Podman keeps its records in a home that nodes share.
    """
    with open("/proc/self/stat", encoding="ascii", errors="replace") as file:
        begun = file.read().rpartition(")")[2].split()[19]
    return f"{_boot()}/{os.readlink('/proc/self/ns/pid')}/{os.getpid()}/{begun}"


def is_gone(label: str) -> bool:
    """Tell whether the process of such a label has ended; one of another node or namespace is never taken for that."""
    boot, space, pid, begun = (label.split("/") + [""] * 4)[:4]
    is_here = boot != "" and (boot, space) == (_boot(), os.readlink("/proc/self/ns/pid"))
    if not is_here or not pid.isdigit():
        return False
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
            fields = file.read().rpartition(")")[2].split()
            return fields[19] != begun or fields[0] in ("Z", "X")  # dead, and nobody has asked yet how it died
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
    """Return what a lock says, and when it was renewed, as other nodes see it after opening it; None: there is none."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_at_once) as file:
            return file.read(_MAX_LOCK_BYTES), os.fstat(file.fileno()).st_mtime_ns
    except FileNotFoundError:
        return None
    except OSError:  # of somebody else, in a folder of several
        with contextlib.suppress(OSError):
            return "", os.stat(path).st_mtime_ns
        return None


def _at_once(path: str, flags: int) -> int:
    """Open a file; a pipe that somebody has put there would be waited for."""
    return os.open(path, flags | os.O_NONBLOCK)


def _parse_holder(text: str) -> dict[str, str]:
    with contextlib.suppress(ValueError, RecursionError):
        told = json.loads(text)
        if isinstance(told, dict):
            return {name: str(value)[:200] for name, value in told.items()}
    return {}  # it is just being written


def _make(path: str, text: str) -> bool:
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
    except FileExistsError:
        return False
    with os.fdopen(file, "w", encoding="utf-8") as lock:
        lock.write(text)
    return True


def _break(path: str, text: str) -> None:
    """Take away the lock of a holder that is gone; one that somebody has taken meanwhile is put back."""
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
            return  # others took this process for gone
        with contextlib.suppress(OSError):
            os.utime(path)


@contextlib.contextmanager
def held(path: str, is_done: Callable[[], bool], wait: Callable[[str], None]) -> Iterator[bool]:
    """Hold the lock of something that is to be done once.

    Parameters
    ----------
    path : str
        Of the lock.
    is_done : callable
        Whether somebody has done it.
    wait : callable
        Is told once, in words, who is waited for.

    Yields
    ------
    bool
        Whether it is to be done here; else another one has done it.

    Raises
    ------
    OSError
        The lock cannot be made.
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
    """Make the lock; return False when that is not needed any more."""
    seen, since, named = None, time.monotonic(), ""
    while not is_done():
        if _make(path, text):
            return True
        found = _read(path)
        if found != seen:
            seen, since = found, time.monotonic()
        told = _parse_holder(found[0] if found else "")
        if found and (is_gone(told.get("holder", "")) or time.monotonic() - since > _EXPIRY_S):
            _break(path, found[0])
            continue
        who = f"job {told['job']} on {told['node']}" if told.get("job") and told.get("node") else ""
        if who and who != named:
            named = who
            wait(who)
        time.sleep(_POLL_INTERVAL_S)
    return False
