"""Server from any command with a ``{port}``, for ``serve.py``: TensorBoard, code-server, MLflow.

Such a command proves nothing by itself. A command is ready when one of its own processes listens on the port (according
to proc(5)), only on the loopback, and answers a request. A command is in use while it has connections.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("session/command.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner import proc
    from jupyter_slurm.runner.job_document import SessionPart
else:
    proc = load("proc")

_MAX_STARTS = 3  # attempts, if another process takes the port first
CONNECT_TIMEOUT_S = 5.0
_MAX_READS = 16  # of an answer; a server may report a premature end
# seconds for an answer; a server that accepts a connection and sends nothing does not speak HTTP
_ANSWER_TIMEOUT_S = 10.0
_TIME_WAIT_S = 60.0  # seconds in TIME_WAIT (tcp(7)); the table has the seconds left


class SessionStartError(Exception):
    """The server cannot start; the message and ``hint`` are for the user."""

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.hint = hint


def root_of(wanted: Any) -> str:
    """Return the folder that a server shows, or starts in."""
    root = os.path.join(os.getcwd(), os.path.expanduser(wanted)) if wanted else os.getcwd()
    if not os.path.isdir(root):
        raise SessionStartError(
            f"{proc.node_name()} has no folder {root}.", "Choose a folder that the node sees with dir=FOLDER."
        )
    return root


class CommandProcess:
    """Server command: its process, its port and its use.

    Parameters
    ----------
    asked : dict
        ``session`` of the record: ``command``, ``base_url``, ``dir``.
    env : dict
        Environment of the command.
    """

    version = ""
    pause = 0.02  # seconds between two checks for readiness
    wanted_port = 0  # that of an earlier run

    def __init__(self, asked: SessionPart, env: dict[str, str]) -> None:
        self.words: list[str] = list(asked["command"])
        self.base_url, self.root = str(asked["base_url"]).rstrip("/"), root_of(asked.get("dir"))
        # Programs installed with the named Python are beside it.
        self.env = dict(env, PATH=os.pathsep.join([env.get("PATH", os.defpath), os.path.dirname(sys.executable)]))
        self.module = os.path.basename(self.words[0])
        self.port, self.starts = 0, 0
        self._program: list[str] = []  # instead of the first word
        self.process: Any = None
        self.used = time.monotonic()
        self.is_open_at: list[tuple[str, int]] = []  # addresses and ports that others can reach

    def start(self) -> None:
        """Start the command on a free port."""
        try:
            wanted = 0 if self.starts else self.wanted_port
            self.port = wanted if wanted and proc.is_free(wanted, after_use=True) else proc.free_port()
            self.starts += 1
        except proc.NoFreePort as error:
            raise SessionStartError(str(error), error.hint) from None
        words = [self._filled(word) for word in self.words]
        import shutil  # not needed for Jupyter

        place = os.path.join(self.root, words[0]) if "/" in words[0] else words[0]
        found, node = shutil.which(place, path=self.env["PATH"]), proc.node_name()
        if found is None:
            hint = "Choose an environment with env=NAME or an image with image=NAME:TAG, or write the whole path."
            if " " in words[0]:
                hint = "Write the words of the command after -- without quotes around them all."
            raise SessionStartError(f"{node} has no {words[0]}.", hint)
        words = [*self._program, *words[1:]] if self._program else words
        try:
            self.process = subprocess.Popen(
                words,
                executable=words[0] if self._program else found,
                stdin=subprocess.DEVNULL,
                stdout=sys.stderr,  # one log for all output
                cwd=self.root,
                env=self.env,
                preexec_fn=proc.dying_with_us(),
            )
        except (OSError, ValueError) as error:
            raise SessionStartError(f"{words[0]} cannot be run on {node}: {error}.") from error

    def _placeholders(self) -> dict[str, str]:
        """Return the values of the placeholders of a command."""
        return {"{port}": str(self.port), "{host}": "127.0.0.1", "{base_url}": self.base_url}

    def _filled(self, text: str) -> str:
        for name, value in self._placeholders().items():
            text = text.replace(name, value)
        return text

    def is_ready(self) -> bool:
        """Return whether the server answers on its port. A process of another program on that port does not count."""
        listening = [row for row in proc.rows() if row.port == self.port and row.state == proc.LISTEN]
        code = self.process.poll()
        if code is not None:
            if listening and self.starts < _MAX_STARTS:
                sys.stderr.write(f"Port {self.port} was taken by another program. {self.module} tries another one.\n")
                self.start()
                return False
            raise SessionStartError(
                f"{self.module} ended before it was ready ({proc.describe_exit(code)}).",
                "Read the last lines of its log. The command must stay in the foreground.",
            )
        own: set[str] = proc.sockets_of(proc.family(self.process.pid)) if listening else set()
        addresses = [row.address for row in listening if row.inode in own]
        for address in addresses:
            if not proc.is_loopback(address):
                raise SessionStartError(
                    f"{self.module} listens on {address}, which other users can reach over the network.",
                    "Let it listen only on {host}, the loopback address, with --host {host} or a similar option.",
                )
        return bool(addresses) and self._answers(addresses[0])

    def _answers(self, address: str) -> bool:
        """Return whether the server accepts a request, with any answer."""
        name = f"[{address}]" if ":" in address else address
        try:
            connection = socket.create_connection((address, self.port), CONNECT_TIMEOUT_S)
        except OSError:
            return False
        self._ask(connection, f"{name}:{self.port}")
        return True

    def _ask(self, connection: socket.socket, host: str) -> None:
        """Send a request, and wait for any answer."""
        asked = f"GET {self.base_url}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
        with connection, contextlib.suppress(OSError):
            connection.settimeout(_ANSWER_TIMEOUT_S)
            connection.sendall(asked.encode("ascii"))
            for _ in range(_MAX_READS):
                if not connection.recv(65_536):
                    break

    def unused_for(self) -> float:
        """Return the seconds without a connection of its user."""
        now, found = time.monotonic(), list(proc.rows())
        self._check_open_ports(found)
        for row in found:
            if self._is_use(row):
                age = max(0.0, _TIME_WAIT_S - row.left) if row.state == proc.TIME_WAIT else 0.0
                self.used = max(self.used, now - age)
        return now - self.used

    def _is_use(self, row: proc.Row) -> bool:
        """Return whether a socket is a connection to the server, on this node only of the same user.

        The user is that of the other end, which has a row of its own. Nobody knows the user of a closed connection.
        """
        is_near, is_far = row.port == self.port, row.peer[1] == self.port and proc.is_loopback(row.peer[0])
        if row.state == proc.LISTEN:
            return False
        if row.state == proc.TIME_WAIT:
            return bool(is_near or is_far)
        return bool(is_far and row.user == os.getuid()) or bool(is_near and not proc.is_loopback(row.peer[0]))

    def _check_open_ports(self, found: list[proc.Row]) -> None:
        """Find and log ports that others can reach. The server may open a port, or reopen one, at any time."""
        open_to_all = [row for row in found if row.state == proc.LISTEN and not proc.is_loopback(row.address)]
        own: set[str] = proc.sockets_of(proc.family(self.process.pid)) if open_to_all else set()
        before = self.warnings
        self.is_open_at = sorted({(row.address, row.port) for row in open_to_all if row.inode in own})
        for warning in self.warnings:
            if warning not in before:
                sys.stderr.write(f"Warning: {warning}\n")

    @property
    def warnings(self) -> list[str]:
        """Problems of the server, for the user."""
        return [
            f"{self.module} listens on port {port} of {address}, which other users can reach over the network. Let "
            "it listen only on the loopback address, or require a password."
            for address, port in self.is_open_at
        ]

    def end(self) -> None:
        """End the command and its descendants."""
        proc.end_process(self.process)
