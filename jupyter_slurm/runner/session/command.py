"""Serve with any command that takes a ``{port}``, for ``serve.py``: TensorBoard, code-server, MLflow.

Such a command proves nothing by itself. So it is ready when the system says that a process of its own listens on the
port (proc(5)), on the loopback only, and a request is answered. It is in use while it has connections.

Python 3.8+, standard library only.
"""

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
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long as all the rest here
    from typing import Any, Callable, Iterable, Iterator

if "load" not in globals():  # load() gives it to what it loads
    import runpy

    load = runpy.run_path(__file__[: -len("session/command.py")] + "loader.py")["load"]
relay: Any = load("login_node.relay")

FIRST, LAST = 20_000, 32_000  # ports that systems do not hand out by themselves
_TRIES = 200
_STARTS_AGAIN = 3  # where somebody was quicker to take the port
_ENDS = 10.0  # seconds to end in peace
_CONNECTS = 5.0
_PIECES = 16  # of an answer; a server may say that it was cut short
_SILENT = 10.0  # seconds for an answer; what takes a connection and says nothing does not speak HTTP
_PR_SET_PDEATHSIG = 1
_LISTEN, _TIME_WAIT = "0A", "06"
_LINGERS = 60.0  # seconds in TIME_WAIT (tcp(7)); the table says how many are left


class SessionStartError(Exception):
    """There will be no server; the message and ``hint`` are for the person."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def node_name() -> str:
    """Return the name that Slurm has for this node, which may not be the machine's."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


def root_of(wanted: Any) -> str:
    """Return the folder that a server shows, or begins in."""
    root = os.path.join(os.getcwd(), os.path.expanduser(wanted)) if wanted else os.getcwd()
    if not os.path.isdir(root):
        raise SessionStartError(f"{node_name()} has no folder {root}.", "dir=FOLDER names one that the node sees.")
    return root


def dying_with_us(number: int = signal.SIGTERM) -> Callable[[], Any]:
    """Return what a child does at first, so that the kernel sends it a signal when we are gone, however we went.

    The library is loaded before there is a child: between fork and exec that is not safe.
    """
    libc = ctypes.CDLL(None)
    return lambda: libc.prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)


def end(process: Any) -> None:
    """Have a child end, if need be by force, and with it what it has started."""
    if process is None or process.poll() is not None:
        return
    left = family(process.pid)
    process.terminate()
    try:
        process.wait(_ENDS)
    except subprocess.TimeoutExpired:
        left.update(family(process.pid))
        process.kill()
        process.wait()
    for pid, begun in left.items():
        if _stat(pid)[1:] == (begun,):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)


def words_of(code: int) -> str:
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
        return {inode: address for address, _, inode in relay.ask_kernel(port)}
    except OSError:
        return {row.inode: row.address for row in rows() if row.port == port and row.state == _LISTEN}


def own_listeners(port: int, pid: int) -> set[str]:
    """Return the inodes of the sockets with which a process listens on a port."""
    there = set(listeners(port))
    return there & sockets_of([pid]) if there else set()


def random_port() -> int:
    """Return a port that systems do not hand out by themselves; others may have it."""
    return FIRST + int.from_bytes(os.urandom(4), "big") % (LAST - FIRST)


def free_port() -> int:
    """Return a port that nobody has, on any address of this node."""
    for _ in range(_TRIES):
        port = random_port()
        if _is_free(port):
            return port
    raise SessionStartError(f"{node_name()} has no free port from {FIRST} to {LAST}.", "Another node may have one.")


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


class CommandProcess:
    """One command that serves: its process, its port, and how it is used.

    Parameters
    ----------
    asked : dict
        ``session`` of the record: ``command``, ``base_url``, ``dir``.
    env : dict
        Of the command.
    """

    version = ""
    pause = 0.02  # seconds between two looks whether it is ready

    def __init__(self, asked: dict[str, Any], env: dict[str, str]) -> None:
        self.words: list[str] = list(asked["command"])
        self.base_url, self.root = str(asked["base_url"]).rstrip("/"), root_of(asked.get("dir"))
        # Beside the Python that was named there is what was installed with it.
        self.env = dict(env, PATH=os.pathsep.join([env.get("PATH", os.defpath), os.path.dirname(sys.executable)]))
        self.module = os.path.basename(self.words[0])
        self.port, self.starts = 0, 0
        self.process: Any = None
        self.used = time.monotonic()
        self.is_open_at: list[tuple[str, int]] = []  # where others reach it

    def start(self) -> None:
        """Start it, on a port that is free."""
        self.port, self.starts = free_port(), self.starts + 1
        told = {"{port}": str(self.port), "{host}": "127.0.0.1", "{base_url}": self.base_url}
        words = list(self.words)
        for name, value in told.items():
            words = [word.replace(name, value) for word in words]
        import shutil  # a Jupyter does without

        place = os.path.join(self.root, words[0]) if "/" in words[0] else words[0]
        found, node = shutil.which(place, path=self.env["PATH"]), node_name()
        if found is None:
            hint = "env=NAME names an environment that has it, image=NAME:TAG an image; or write its whole path."
            if " " in words[0]:
                hint = "Behind -- each word of a command stands for itself: without quotes around them all."
            raise SessionStartError(f"{node} has no {words[0]}.", hint)
        try:
            self.process = subprocess.Popen(
                words,
                executable=found,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # what it says is one log
                cwd=self.root,
                env=self.env,
                preexec_fn=dying_with_us(),
            )
        except (OSError, ValueError) as error:
            raise SessionStartError(f"{words[0]} cannot be run on {node}: {error}.") from error

    def is_ready(self) -> bool:
        """Tell whether it answers, on its port: somebody else's process on that port does not count."""
        listening = [row for row in rows() if row.port == self.port and row.state == _LISTEN]
        code = self.process.poll()
        if code is not None:
            if listening and self.starts < _STARTS_AGAIN:
                sys.stderr.write(f"Port {self.port} was taken before {self.module} had it: another one is tried.\n")
                self.start()
                return False
            raise SessionStartError(
                f"{self.module} ended before it was ready ({words_of(code)}).",
                "The last lines of its log say why; it has to stay in the foreground.",
            )
        own: set[str] = sockets_of(family(self.process.pid)) if listening else set()
        addresses = [row.address for row in listening if row.inode in own]
        for address in addresses:
            if not is_loopback(address):
                raise SessionStartError(
                    f"{self.module} listens on {address}, where others reach it over the network.",
                    "Have it listen on {host}, the node's loopback, only: --host {host}, --bind {host} or what it has.",
                )
        return bool(addresses) and self._answers(addresses[0])

    def _answers(self, address: str) -> bool:
        """Tell whether it takes a request; what it answers does not matter."""
        name = f"[{address}]" if ":" in address else address
        asked = f"GET {self.base_url}/ HTTP/1.1\r\nHost: {name}:{self.port}\r\nConnection: close\r\n\r\n"
        try:
            connection = socket.create_connection((address, self.port), _CONNECTS)
        except OSError:
            return False
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_SILENT)
            connection.sendall(asked.encode("ascii"))
            for _ in range(_PIECES):
                if not connection.recv(65_536):
                    break
        return True

    def unused_for(self) -> float:
        """Return for how many seconds it has had no connection."""
        now, found = time.monotonic(), list(rows())
        self._see_who_is_let_in(found)
        for row in found:
            is_its = row.port == self.port or (row.peer[1] == self.port and is_loopback(row.peer[0]))
            if is_its and row.state != _LISTEN:
                age = max(0.0, _LINGERS - row.left) if row.state == _TIME_WAIT else 0.0
                self.used = max(self.used, now - age)
        return now - self.used

    def _see_who_is_let_in(self, found: list[Row]) -> None:
        """See where others reach it, and log that: it may open another port, or the same one anew, when it likes."""
        open_to_all = [row for row in found if row.state == _LISTEN and not is_loopback(row.address)]
        own: set[str] = sockets_of(family(self.process.pid)) if open_to_all else set()
        before = self.warnings
        self.is_open_at = sorted({(row.address, row.port) for row in open_to_all if row.inode in own})
        for warning in self.warnings:
            if warning not in before:
                sys.stderr.write(f"Warning: {warning}\n")

    @property
    def warnings(self) -> list[str]:
        """What is wrong with it, for the person."""
        return [
            f"{self.module} listens on port {port} of {address}, where others reach it over the network. Have it "
            "listen on the node's loopback only, or see that it asks for a password."
            for address, port in self.is_open_at
        ]

    def end(self) -> None:
        """Have it end, with what it started."""
        end(self.process)
