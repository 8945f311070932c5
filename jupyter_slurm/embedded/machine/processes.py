"""Start of daemons that outlive this process, and search for them.

Each daemon has a random mark in its environment. A process with the mark belongs to the cluster, whatever process
started it and whatever happened to its parent; no other process does. So no process ID needs to be recorded, and none
can be mistaken. See proc(5) for the files read in this module.
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
_KERNEL_THREAD_FLAG = 0x00200000
_EMPTY_CHECKS = 4
_END_TIMEOUT_S = 1.0  # seconds for killed processes to end, before they are searched for again


@dataclass(frozen=True)
class Process:
    """A process at one moment; ``started`` (clock ticks since boot) identifies it if its ID is reused."""

    pid: int
    parent: int
    started: int
    name: str = ""
    role: str = ""

    def alive(self) -> bool:
        """Return whether this very process still exists and is not a zombie."""
        found = inspect_process(self.pid)
        return found is not None and found.started == self.started

    def send(self, number: int) -> None:
        """Send a signal to this very process; no effect if it is gone."""
        try:
            descriptor = os.pidfd_open(self.pid)
        except OSError:
            return
        try:
            # The descriptor pins a process, whose identity is checked before the signal is sent.
            if self.alive():
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(descriptor, number)
        finally:
            os.close(descriptor)


def inspect_process(pid: int) -> Process | None:
    """Return a process from /proc/PID/stat, or None if it is gone or a zombie."""
    try:
        text = _read(f"/proc/{pid}/stat")
    except OSError:
        return None
    # The name stands in brackets and may contain anything, also brackets: search the last one.
    name = text[text.index(b"(") + 1 : text.rindex(b")")].decode(errors="replace")
    fields = text[text.rindex(b")") + 2 :].split()
    return None if fields[0] in _ENDED else Process(pid, int(fields[1]), int(fields[19]), name)


def _read(path: str) -> bytes:
    """Return the content of a file of /proc. A search reads thousands: :class:`~pathlib.Path` takes thrice as long."""
    with open(path, "rb", buffering=0) as file:
        return file.readall()


def listens(process: Process, port: int) -> bool:
    """Return whether this process accepts TCP connections on that port of an IPv4 address."""
    sockets = set()
    directory = f"/proc/{process.pid}/fd"
    try:
        # Of the process's own network, which may differ from that of this process.
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


def _read_environment(pid: int) -> bytes:
    """Return the environment with which a process was started, as in /proc; empty if it is gone or unreadable."""
    empty, deadline = 0, time.monotonic() + 1.0
    while empty < _EMPTY_CHECKS and time.monotonic() < deadline:
        try:
            data = _read(f"/proc/{pid}/environ")
        except OSError:
            break
        if data:
            return data
        # During execve(2) a process has no environment for a moment; a process may exec many times.
        verdict = _has_no_environment(pid)
        if verdict is None:
            break
        empty = empty + 1 if verdict else 0
        time.sleep(0.0005)
    return b""


def _has_no_environment(pid: int) -> bool | None:
    """Return whether a process was started with an empty environment; None if it is a kernel thread, or has ended."""
    try:
        fields = _read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    except OSError:
        return None
    if fields[0] in _ENDED or int(fields[6]) & _KERNEL_THREAD_FLAG:
        return None
    start, end = int(fields[47]), int(fields[48])
    return start == end != 0


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _find(sign: bytes, matches: Callable[[dict[bytes, bytes]], str | None]) -> list[Process]:
    """Return the live processes whose environment has the sign somewhere, and is mapped to a role."""
    found = []
    for pid in _pids():
        if sign not in _read_environment(pid):
            continue
        process = inspect_process(pid)  # before its environment, as another process may have the number by now
        variables = (item.partition(b"=") for item in _read_environment(pid).split(b"\0"))
        role = matches({name: value for name, _, value in variables})
        if process is not None and role is not None:
            found.append(replace(process, role=role))
    return found


def find_daemons(mark: str) -> list[Process]:
    """Return the processes with the mark: daemons and their children (a slurmstepd has its slurmd's role)."""
    wanted = mark.encode()
    return _find(wanted, lambda env: env.get(ROLE.encode(), b"").decode() if env.get(MARK.encode()) == wanted else None)


def find_job_processes(slurm_conf: Path, nodes: Iterable[str]) -> list[Process]:
    """Return the processes inside jobs on the nodes of the cluster with this slurm.conf.

    Only slurmd sets SLURMD_NODENAME for a process: the shell of a user who typed ``salloc`` is not included.
    """
    conf, names = os.fsencode(slurm_conf), {name.encode() for name in nodes}

    def wanted(env: dict[bytes, bytes]) -> str | None:
        inside = env.get(b"SLURM_CONF") == conf and b"SLURM_JOB_ID" in env and env.get(b"SLURMD_NODENAME") in names
        return "job" if inside else None

    return _find(b"SLURMD_NODENAME=", wanted)


def spawn(
    argv: Sequence[str],
    role: str,
    mark: str,
    *,
    log: Path,
    env: Mapping[str, str] | None = None,
    enter: Sequence[str] = (),
) -> None:
    """Start a marked daemon in its own session, with init as its parent.

    The daemon starts in ``/`` with an empty standard input and a plain environment; its output is appended to ``log``.
    ``enter`` is the command prefix that leads to its host.
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
        # setsid --fork ends at once and leaves the daemon to init, so that it never becomes a zombie of this process.
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
        raise EmbeddedError(
            f"{argv[0]} could not be started: {error}.",
            hint="Check that the program is installed and that you may run it.",
        ) from error
    finally:
        os.close(descriptor)


def descendants(processes: Iterable[Process]) -> list[Process]:
    """Return the live descendants of these processes."""
    children: dict[int, list[Process]] = {}
    for pid in _pids():
        process = inspect_process(pid)
        if process is not None:
            children.setdefault(process.parent, []).append(process)
    result: list[Process] = []
    waiting = [process.pid for process in processes]
    while waiting:
        for child in children.pop(waiting.pop(), []):
            result.append(child)
            waiting.append(child.pid)
    return result


def kill_all(find: Callable[[], Iterable[Process]], *, timeout: float = 60.0) -> list[Process]:
    """Kill the processes that ``find`` returns until it returns none. Return those left when the time is over.

    The search is repeated, because a dying process may have started another. It runs once more after an empty result,
    because a search takes a while and may miss a new process.
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
        _wait_for_end(remaining)
    return []


def _wait_for_end(processes: Iterable[Process]) -> None:
    """Wait a little for killed processes to end: to look at them alone is cheaper than a search."""
    deadline = time.monotonic() + _END_TIMEOUT_S
    time.sleep(0.02)
    while time.monotonic() < deadline and any(process.alive() for process in processes):
        time.sleep(0.02)
