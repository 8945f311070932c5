"""Starting daemons that outlive us, and finding them again.

Each daemon gets a random mark in its environment. What carries the mark is ours, whoever started it and whatever became
of its parent; nothing else is, so no process id ever needs to be remembered and none can be mistaken.
See proc(5) for the files read here.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_slurm.embedded.machine.packages import find_program
from jupyter_slurm.errors import EmbeddedError

__all__ = ["MARK", "ROLE", "Process", "find_daemons", "find_job_processes", "kill_all", "listens", "spawn"]

MARK = "JUPYTER_SLURM_EMBEDDED"
ROLE = "JUPYTER_SLURM_EMBEDDED_ROLE"
_TCP_LISTEN = "0A"
_ENDED = (b"Z", b"X")
_KERNEL_THREAD = 0x00200000
_LOOKS_AT_EMPTY = 4


@dataclass(frozen=True)
class Process:
    """A process as it was seen; ``started`` (clock ticks since boot) tells it from a later one with the same id."""

    pid: int
    parent: int
    started: int
    name: str = ""
    role: str = ""

    def alive(self) -> bool:
        """Tell whether this very process is still there and not a zombie."""
        found = look(self.pid)
        return found is not None and found.started == self.started

    def send(self, number: int) -> None:
        """Send a signal to this very process; nothing happens when it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # The descriptor pins the process; what it pins is compared before the signal goes out.
            if self.alive():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def look(pid: int) -> Process | None:
    """Return a process as /proc/PID/stat has it, or None if it is gone or a zombie."""
    try:
        text = Path(f"/proc/{pid}/stat").read_bytes()
    except OSError:
        return None
    # The name stands in brackets and may hold anything, brackets too: count from the last one.
    name = text[text.index(b"(") + 1 : text.rindex(b")")].decode(errors="replace")
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in _ENDED else Process(pid, int(fields[1]), int(fields[19]), name)


def listens(process: Process, port: int) -> bool:
    """Tell whether this process, and no stranger, accepts TCP connections on that port of an IPv4 address."""
    sockets = set()
    directory = f"/proc/{process.pid}/fd"
    try:
        # Of its own network, which need not be ours.
        for line in Path(f"/proc/{process.pid}/net/tcp").read_text(encoding="ascii").splitlines()[1:]:
            fields = line.split()
            if fields[3] == _TCP_LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                sockets.add(f"socket:[{fields[9]}]")
        for name in os.listdir(directory) if sockets else ():
            with contextlib.suppress(FileNotFoundError):
                if os.readlink(f"{directory}/{name}") in sockets:
                    return True
    except OSError:
        pass
    return False


def environment_of(pid: int) -> dict[bytes, bytes]:
    """Return the environment a process was started with; empty if it is gone or not ours to read."""
    empty, deadline = 0, time.monotonic() + 1.0
    while empty < _LOOKS_AT_EMPTY and time.monotonic() < deadline:
        try:
            data = Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            break
        if data:
            return dict(item.split(b"=", 1) for item in data.split(b"\0") if b"=" in item)
        # Within execve(2) a process has no environment for a moment, one that execs again and again for many moments.
        verdict = _has_no_environment(pid)
        if verdict is None:
            break
        empty = empty + 1 if verdict else 0
        time.sleep(0.0005)
    return {}


def _has_no_environment(pid: int) -> bool | None:
    """Tell whether a process was started with an empty environment; None if it is a kernel thread, or has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in _ENDED or int(fields[6]) & _KERNEL_THREAD:
        return None
    start, end = int(fields[47]), int(fields[48])
    return start == end != 0


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _find(wanted: Callable[[dict[bytes, bytes]], str | None]) -> list[Process]:
    """Return the live processes whose environment ``wanted`` gives a role to."""
    found = []
    for pid in _pids():
        process = look(pid)
        if process is not None:
            role = wanted(environment_of(pid))
            if role is not None:
                found.append(replace(process, role=role))
    return found


def find_daemons(mark: str) -> list[Process]:
    """Return the processes that carry the mark: daemons and what they started (a slurmstepd has its slurmd's role)."""
    wanted = mark.encode()
    return _find(lambda env: env.get(ROLE.encode(), b"").decode() if env.get(MARK.encode()) == wanted else None)


def find_job_processes(slurm_conf: Path, nodes: Iterable[str]) -> list[Process]:
    """Return what runs inside jobs on the nodes of the cluster with this slurm.conf.

    Only slurmd gives a process SLURMD_NODENAME: the shell of a person who typed ``salloc`` is not among them.
    """
    conf, names = os.fsencode(slurm_conf), {name.encode() for name in nodes}

    def wanted(env: dict[bytes, bytes]) -> str | None:
        inside = env.get(b"SLURM_CONF") == conf and b"SLURM_JOB_ID" in env and env.get(b"SLURMD_NODENAME") in names
        return "job" if inside else None

    return _find(wanted)


def spawn(
    argv: Sequence[str],
    role: str,
    mark: str,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    enter: Sequence[str] = (),
) -> None:
    """Start a daemon in a session of its own, with init as its parent, in the mark's name.

    It starts in ``/`` with nothing on its standard input and a plain environment; its output is appended to ``log``.
    ``enter`` is what leads to the host where it runs.
    """
    environment = {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "LC_ALL": "C.UTF-8",
        **(env or {}),
        MARK: mark,
        ROLE: role,
    }
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        # setsid --fork ends at once and leaves the daemon to init: no zombie waits for us, none needs us.
        subprocess.run(
            [*enter, str(find_program("setsid")), "--fork", *argv],
            stdin=subprocess.DEVNULL,
            stdout=descriptor,
            stderr=descriptor,
            env=environment,
            cwd="/",
            check=True,
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise EmbeddedError(f"{argv[0]} could not be started: {error}.") from error
    finally:
        os.close(descriptor)


def descendants(processes: Iterable[Process]) -> list[Process]:
    """Return the live children of these processes, theirs, and so on."""
    children: dict[int, list[Process]] = {}
    for pid in _pids():
        process = look(pid)
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    result: list[Process] = []
    waiting = [process.pid for process in processes]
    while waiting:
        for child in children.pop(waiting.pop(), []):
            result.append(child)
            waiting.append(child.pid)
    return result


def kill_all(find: Callable[[], Iterable[Process]], *, timeout: float = 10.0) -> list[Process]:
    """Kill what ``find`` finds until it finds nothing. Returns what is still there when the time is over.

    It is asked again and again since a process that is about to die may have started another one; and once more after
    it has found nothing, since a look at all processes takes a while and a new one can slip past it.
    """
    deadline = time.monotonic() + timeout
    empty = 0
    while empty < 2:
        remaining = list(find())
        empty = 0 if remaining else empty + 1
        for process in remaining:
            process.send(signal.SIGKILL)
        if remaining and time.monotonic() > deadline:
            return remaining
        time.sleep(0.02)
    return []
