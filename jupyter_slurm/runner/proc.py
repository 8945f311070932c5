"""Processes, sockets and ports of a node, as the system tells them (proc(5)). Python 3.8+, standard library only."""

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

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long as all the rest here
    from typing import Any, Callable, Iterable, Iterator

if "load" not in globals():  # load() gives it to what it loads
    import runpy

    load = runpy.run_path(__file__[: -len("proc.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.login_node import relay
else:
    relay = load("login_node.relay")

FIRST_PORT, LAST_PORT = 20_000, 32_000  # systems do not hand out those by themselves
LISTEN, TIME_WAIT = "0A", "06"  # states of a socket
_MAX_PORT_TRIES = 200
_END_TIMEOUT_S = 10.0  # to end in peace
_PR_SET_PDEATHSIG = 1


class NoFreePort(Exception):
    """There is no free port on the node; the message and ``hint`` are for the user."""

    def __init__(self) -> None:
        super().__init__(f"{node_name()} has no free port from {FIRST_PORT} to {LAST_PORT}.")
        self.hint = "Another node may have one."


def node_name() -> str:
    """Return the name that Slurm has for this node, which may not be the machine's."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def dying_with_us(number: int = signal.SIGTERM) -> Callable[[], Any]:
    """Return what a child does at first, so that the kernel sends it a signal when we are gone, however we went.

    The library is loaded before there is a child: between fork and exec that is not safe.
    """
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end_process(process: Any) -> None:
    """Have a child end, if need be by force, and with it what it has started."""
    if process is None or process.poll() is not None:
        return
    left = family(process.pid)
    process.terminate()
    try:
        process.wait(_END_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        left.update(family(process.pid))
        process.kill()
        process.wait()
    for pid, begun in left.items():
        if _stat(pid)[1:] == (begun,):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def describe_exit(code: int) -> str:
    """Return how a process ended."""
    return f"signal {-code}" if code < 0 else f"exit code {code}"


# A socket, as the system tells it: ``peer`` is (address, port); for ``left`` seconds one that is over is remembered.
Row = collections.namedtuple("Row", "address port peer state left inode")


def rows() -> Iterator[Row]:
    """Return the TCP sockets of this node (proc(5))."""
    ticks = os.sysconf("SC_CLK_TCK")
    for name, kind in (("tcp", socket.AF_INET), ("tcp6", socket.AF_INET6)):
        with contextlib.suppress(OSError), open("/proc/net/" + name, encoding="ascii") as file:
            for line in list(file)[1:]:
                row = line.split()
                left = int(row[5].partition(":")[2], 16) / ticks
                address, port = _address(row[1], kind)
                yield Row(address, port, _address(row[2], kind), row[3], left, row[9])


def _address(text: str, kind: Any) -> tuple[str, int]:
    digits, _, port = text.partition(":")
    words = [int(digits[at : at + 8], 16) for at in range(0, len(digits), 8)]
    name = socket.inet_ntop(kind, struct.pack(f"={len(words)}I", *words))
    return (name[7:] if name.startswith("::ffff:") and "." in name else name), int(port, 16)


def is_loopback(address: str) -> bool:
    """Tell whether an address is reached from this node only."""
    return address == "::1" or address.startswith("127.")


def family(first: int) -> dict[int, str]:
    """Return a process and all that descend from it, each with when it began."""
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
    """Return the parent of a process, and when it began; nothing of one that is gone (proc(5))."""
    try:
        fields = _fields(pid)
        return int(fields[1]), fields[19]
    except (OSError, ValueError, IndexError):
        return ()


def _fields(pid: int) -> list[str]:
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        return file.read().rpartition(")")[2].split()


def cpu_times(first: int) -> dict[int, float]:
    """Return the seconds of CPU time of all that descend from a process, each with its children that are over."""
    ticks, found = os.sysconf("SC_CLK_TCK"), {}
    for pid in family(first).keys() - {first}:
        with contextlib.suppress(OSError, ValueError, IndexError):
            found[pid] = sum(map(int, _fields(pid)[11:15])) / ticks
    return found


def sockets_of(pids: Iterable[int]) -> set[str]:
    """Return the inodes of the sockets that processes have open."""
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
    """Return the sockets with which anybody listens on a port: the address of each, by its inode."""
    try:
        return {inode: address for address, _, inode in relay.query_kernel(port)}
    except OSError:
        return {row.inode: row.address for row in rows() if row.port == port and row.state == LISTEN}


def own_listeners(port: int, pid: int) -> set[str]:
    """Return the inodes of the sockets with which a process listens on a port."""
    there = set(listeners(port))
    return there & sockets_of([pid]) if there else set()


def random_port() -> int:
    """Return a port that systems do not hand out by themselves; others may have it."""
    return FIRST_PORT + int.from_bytes(os.urandom(4), "big") % (LAST_PORT - FIRST_PORT)


def free_port() -> int:
    """Return a port that nobody has, on any address of this node."""
    for _ in range(_MAX_PORT_TRIES):
        port = random_port()
        if _is_free(port):
            return port
    raise NoFreePort


def _is_free(port: int) -> bool:
    for kind in (socket.AF_INET, socket.AF_INET6):
        try:
            with socket.socket(kind) as probe:
                if kind == socket.AF_INET6:
                    probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
                probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:  # otherwise it is a node without IPv6
                return False
    return True
