"""Processes, sockets and ports of a node, as reported by the system (proc(5)). Python 3.8+, standard library only."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import errno
import os
import signal
import socket
import struct
import subprocess
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any, Callable, Iterable, Iterator

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("proc.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.login_node import relay
else:
    relay = load("login_node.relay")

FIRST_PORT, LAST_PORT = 20_000, 32_000  # systems do not assign these automatically
LISTEN, TIME_WAIT = "0A", "06"  # states of a socket
_DEFAULT_JOB_NAMES = ("allocation", "jupyter")  # of allocations and sessions
_MAX_PORT_TRIES = 200
_WRITE_TIMEOUT_S = 10.0  # seconds that a program may still be open for writing
_WRITE_CHECK_S = 0.05  # seconds between two tries
_END_TIMEOUT_S = 10.0  # seconds to end after SIGTERM
_END_CHECK_S = 0.25  # seconds between two checks whether descendants are left
_PR_SET_PDEATHSIG = 1


def start_written(start: Callable[[], Any]) -> Any:
    """Return ``start()``, which runs a file that was just written.

    A process that began while the file was written may have it open for some moments. Until then it cannot be run
    (``ETXTBSY``), and ``start`` is called again.

    Raises
    ------
    OSError
        The program cannot be run.
    """
    deadline = time.monotonic() + _WRITE_TIMEOUT_S
    while True:
        try:
            return start()
        except OSError as error:
            if error.errno != errno.ETXTBSY or time.monotonic() > deadline:
                raise
        time.sleep(_WRITE_CHECK_S)


class NoFreePort(Exception):
    """No port of the node is free; the message and ``hint`` are for the user."""

    def __init__(self) -> None:
        super().__init__(f"{node_name()} has no free port from {FIRST_PORT} to {LAST_PORT}.")
        self.hint = "Exclude the node with -x NODE of sbatch."


def node_name() -> str:
    """Return Slurm's name of this node, which may differ from the host name."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def dying_with_us(number: int = signal.SIGTERM) -> Callable[[], Any]:
    """Return a function for the start of a child: the system signals the child when this process ends in any way.

    The library is loaded before the fork: loading between fork and exec is not safe.
    """
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end_process(process: Any, alone: float = _END_TIMEOUT_S) -> None:
    """End a child and its descendants, by force if necessary.

    Parameters
    ----------
    process : subprocess.Popen or None
        The child.
    alone : float
        Seconds to end by itself if it has no descendants, which are processes of the user that may save their work.
    """
    if process is None or process.poll() is not None:
        return
    left = family(process.pid)
    process.terminate()
    if not _ends_by_itself(process, alone):
        left.update(family(process.pid))
        process.kill()
        process.wait()
    for pid, begun in left.items():
        if _stat(pid)[1:] == (begun,):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def _ends_by_itself(process: Any, alone: float) -> bool:
    """Return whether a child has ended in time after SIGTERM."""
    begun = time.monotonic()
    while time.monotonic() < begun + _END_TIMEOUT_S:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_CHECK_S)
            return True
        if time.monotonic() > begun + alone and len(family(process.pid)) < 2:
            return False
    return False


def describe_exit(code: int) -> str:
    """Describe how a process ended."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# TCP socket as reported by the system. ``peer`` is (address, port); a closed socket is kept for ``left`` seconds,
# without its ``user``.
Row = collections.namedtuple("Row", "address port peer state left user inode")


def rows() -> Iterator[Row]:
    """Return the TCP sockets of this node (proc(5))."""
    ticks = os.sysconf("SC_CLK_TCK")
    for name, kind in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError), open("/proc/net/" + name, encoding="ascii") as file:
            for line in list(file)[1:]:
                row = line.split()
                left = int(row[5].partition(":")[2], 16) / ticks
                address, port = _address(row[1], kind)
                yield Row(address, port, _address(row[2], kind), row[3], left, int(row[7]), row[9])


def _address(text: str, kind: Any) -> tuple[str, int]:
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    name = socket.inet_ntop(kind, struct.pack(f"={len(words)}I", *words))
    return (name[7:] if name.startswith("::ffff:") and "." in name else name), int(port, 16)


def is_loopback(address: str) -> bool:
    """Return whether an address is reachable from this node only."""
    return address == "::1" or address.startswith("127.")


def family(first: int) -> dict[int, str]:
    """Return a process and all its descendants, each with its start time."""
    told = {pid: _stat(pid) for pid in map(int, filter(str.isdigit, os.listdir("/proc")))}
    children: dict[int, list[int]] = {}
    for pid, stat in told.items():
        children.setdefault(stat[0] if stat else 0, []).append(pid)
    found, more = [first], [first]
    while more:
        more = [child for pid in more for child in children.get(pid, [])]
        found += more
    return {pid: told[pid][1] for pid in found if told.get(pid)}


def _stat(pid: int) -> tuple[Any, ...]:
    """Return parent and start time of a process; nothing for a process that has ended (proc(5))."""
    try:
        fields = _fields(pid)
        return int(fields[1]), fields[19]
    except (OSError, ValueError, IndexError):
        return ()


def _fields(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def cpu_times(first: int) -> dict[int, float]:
    """Return the CPU seconds of all descendants of a process, each with its ended children."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for pid in family(first).keys() - {first}:
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[pid] = sum(map(int, _fields(pid)[11:15])) / ticks
    return found


def sockets_of(pids: Iterable[int]) -> set[str]:
    """Return the inodes of the open sockets of processes."""
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for number in os.listdir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    target = os.readlink(f"/proc/{pid}/fd/{number}")
                    if target.startswith("socket:["):
                        found.add(target[8:-1])
    return found


def listeners(port: int) -> dict[str, str]:
    """Return the listening sockets of a port: addresses by inode."""
    try:
        return {inode: address for address, _, inode in relay.query_kernel(port)}
    except OSError:
        return {row.inode: row.address for row in rows() if row.port == port and row.state == LISTEN}


def own_listeners(port: int, pid: int) -> set[str]:
    """Return the inodes of the sockets with which a process listens on a port."""
    there = set(listeners(port))
    return there & sockets_of([pid]) if there else set()


def random_port() -> int:
    """Return a random port that systems do not assign automatically. The port may be in use."""
    return FIRST_PORT + int.from_bytes(os.urandom(4), "big") % (LAST_PORT - FIRST_PORT)


def free_port() -> int:
    """Return a port that is free on all addresses of this node."""
    for _ in range(_MAX_PORT_TRIES):
        port = random_port()
        if is_free(port):
            return port
    raise NoFreePort


def is_free(port: int, *, after_use: bool = False) -> bool:
    """Return whether a port is free on all addresses of this node.

    ``after_use``: closed connections of a server that has ended do not count (SO_REUSEADDR in socket(7)).
    """
    for kind in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(kind) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, int(after_use))
                if kind == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # otherwise the node has no IPv6
                return False
    return True


def be_interactive(env: Any) -> None:
    """Give a job without a name of the user the name that salloc gives: ``interactive``.

    Libraries such as Lightning know by this name that one process uses the job, not a process of srun for each task.
    """
    if env.get("SLURM_JOB_NAME") in _DEFAULT_JOB_NAMES:
        env["SLURM_JOB_NAME"] = "interactive"
