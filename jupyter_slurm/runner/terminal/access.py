"""Access to the terminals of this host: ``start COLUMNS ROWS JOB NAME NODE [ARGV...]``, ``list``, ``attach ID MARK``.

``start`` and ``list`` print JSON. JOB, NAME and NODE describe the program in lists, and are empty for the login shell.
``attach`` connects its standard streams with a terminal, after a line with the mark. Python 3.8+, standard library
only.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import re
import runpy
import secrets
import select
import selectors
import signal
import socket
import stat
import sys
import time
from typing import TYPE_CHECKING, Dict, Sequence, Union

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("terminal/access.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.terminal import keeper
else:
    keeper = load("terminal.keeper")

Record = Dict[
    str, Union[str, float]
]  # of one terminal: id, title (the job), name, node, started (seconds since the epoch), host, takes_streams

_MAX_TERMINALS = 32
_CHUNK_BYTES = 1 << 16
_MAX_RECORD_BYTES = 4096
_KEEPER_TIMEOUT_MS = 2000  # milliseconds for the keeper to notice the end of the streams
_NAME = re.compile(r"([0-9a-f]{8})\.json")


def start(columns: int, rows: int, described: Sequence[str], argv: Sequence[str]) -> Record:
    """Start a terminal that outlives this process; return its record."""
    folder = keeper.folder()
    if len(list_terminals()) >= _MAX_TERMINALS:
        raise OSError(f"{_MAX_TERMINALS} terminals are open, the maximum")
    name = secrets.token_hex(4)
    path, draft = os.path.join(folder, f"{name}.sock"), os.path.join(folder, f".{name}")
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o077)
    listener.bind(path)
    listener.listen(keeper.MAX_VIEWERS)
    record: Record = {"id": name, **dict(zip(("title", "name", "node"), described))}
    record.update(started=time.time(), host=os.uname().nodename, takes_streams=keeper.TAKES_STREAMS)
    with open(draft, "w", encoding="utf-8") as file:
        json.dump(record, file)
    os.rename(draft, os.path.join(folder, f"{name}.json"))
    os.umask(mask)  # that of the user's shell
    if os.fork() == 0:
        _keep(listener, name, columns, rows, argv)
    return record


def _keep(listener: socket.socket, name: str, columns: int, rows: int, argv: Sequence[str]) -> None:
    """Keep the terminal in a process of its own session, and end the process with it."""
    try:
        os.setsid()
        if os.fork():
            os._exit(0)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        null = os.open(os.devnull, os.O_RDWR)
        for file in range(3):
            os.dup2(null, file)
        os.closerange(3, listener.fileno())
        os.closerange(listener.fileno() + 1, 256)
        keeper.Keeper(listener, *keeper.start_program(argv, columns, rows)).run()
    finally:
        _remove(keeper.folder(), name)
        os._exit(0)


def _remove(folder: str, name: str) -> None:
    for end in ("json", "sock"):
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, f"{name}.{end}"))


def list_terminals() -> list[Record]:
    """Return the records of the terminals of this host, oldest first; remains of killed keepers are removed."""
    folder, found = keeper.folder(), []
    for match in filter(None, map(_NAME.fullmatch, os.listdir(folder))):
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                probe.setblocking(False)
                with contextlib.suppress(BlockingIOError):  # a stopped keeper
                    probe.connect(os.path.join(folder, f"{match[1]}.sock"))
            with open(os.path.join(folder, match[0]), encoding="utf-8") as file:
                found.append(json.loads(file.read(_MAX_RECORD_BYTES)))
        except (ConnectionRefusedError, FileNotFoundError):
            _remove(folder, match[1])
        except (OSError, ValueError):
            continue
    return sorted(found, key=lambda record: float(record["started"]))


def attach(name: str, mark: str) -> None:
    """Connect the standard streams with a terminal, until one of them ends."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    _write(1, f"{mark}\n".encode("ascii"))
    try:
        sock.connect(os.path.join(keeper.folder(), f"{name}.sock"))
    except (ConnectionRefusedError, FileNotFoundError):
        _write(1, keeper.HEAD.pack(b"x", 0))  # it has ended, with an exit code that nobody knows
        return
    if _takes_streams(name):
        _hand_over(sock)
        return
    with selectors.DefaultSelector() as selector:
        selector.register(0, selectors.EVENT_READ)
        selector.register(sock, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                data = os.read(key.fd, _CHUNK_BYTES)
                if not data:
                    return
                _write(sock.fileno() if key.fd == 0 else 1, data)


def _takes_streams(name: str) -> bool:
    """Return whether the keeper, perhaps of an older version, can carry the standard streams of this process."""
    with contextlib.suppress(OSError, ValueError), open(
        os.path.join(keeper.folder(), f"{name}.json"), encoding="utf-8"
    ) as file:
        kinds = [os.fstat(number).st_mode for number in range(2)]
        is_known = json.loads(file.read(_MAX_RECORD_BYTES)).get("takes_streams") is True
        return is_known and all(stat.S_ISSOCK(kind) or stat.S_ISFIFO(kind) for kind in kinds)
    return False


def _hand_over(sock: socket.socket) -> None:
    """Hand the standard streams to the keeper, and wait for the end: each key wakes one process less."""
    files = array.array("i", range(2))
    sock.sendmsg([keeper.HEAD.pack(b"f", 0)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, files)])
    poll, timeout = select.poll(), None
    poll.register(sock, select.POLLIN)
    poll.register(0, 0)  # its break
    while ready := poll.poll(timeout):
        for file, _ in ready:
            if file == 0:
                poll.unregister(0)
                timeout = _KEEPER_TIMEOUT_MS  # the keeper may be stopped
            elif not sock.recv(_CHUNK_BYTES):  # else output from before the streams
                return


def _say(file: int, text: str) -> None:
    _write(file, f"{text}\n".encode("utf-8", "surrogateescape"))


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]


def main(words: Sequence[str]) -> int:
    """Run a command; return its exit code."""
    try:
        if words[0] == "start":
            _say(1, json.dumps(start(int(words[1]), int(words[2]), words[3:6], words[6:])))
        elif words[0] == "list":
            _say(1, json.dumps(list_terminals()))
        elif words[0] == "attach":
            attach(words[1], words[2])
    except OSError as error:
        _say(2, str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
