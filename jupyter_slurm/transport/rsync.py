"""rsync between a folder of this machine and one of a transport's: its bytes take the connection that there is.

rsync starts a shell of its choice (``--rsh``) and speaks through its standard input and output with an rsync on the
other side. Here that is ``rsync_bridge.py``, which hands both ends over to this process. So there is no second log-in,
no port, and nothing secret in a command line. Both rsyncs are started in their folder and are told ``./``: no path is
quoted by anybody.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from jupyter_slurm.errors import CommandMissing, SlurmError, TransportError
from jupyter_slurm.transport.base import Completed, Stream, Transport

__all__ = ["Rsync", "check_rsync"]

_PATIENCE = 60.0  # seconds for a connection that is made anew
_PIECE = 256 << 10
_BROKEN = (10, 12, 30, 35, 255)  # exit codes (rsync(1)): socket, protocol stream, time-outs, the shell that was to run
_FULL = (b"No space left", b"quota exceeded")
_MOST = 1 << 16  # bytes of the words that rsync wants to have run
_MARK = "JUPYTER_SLURM_RSYNC"
# The shell before it may have read what is sent before that line.
_THERE = f'cd -- "$1" && {_MARK}=$2 && export {_MARK} && shift 2 && echo && exec "$@"'
# When it ends, it keeps what has arrived where the next one looks for it. Without a process that has the mark: nothing.
_END = f"""
left() {{ grep -lzxF -- "{_MARK}=$1" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\\n'; }}
kill $(left "$1") 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(left "$1")" ] && exit; sleep 1; done
kill -9 $(left "$1") 2>/dev/null; :
"""
_HINT = "apt, dnf, brew and conda have it: install rsync (3.1 or newer) there, or ask the administrators."


async def check_rsync(transport: Transport, name: str) -> None:
    """See that rsync is on both sides.

    Raises
    ------
    CommandMissing
        It is not; the message says on which.
    """
    near = shutil.which("rsync")
    if near is None:
        raise CommandMissing("This machine has no rsync, which stage= needs.", hint=_HINT)
    done = await asyncio.to_thread(subprocess.run, [near, "--version"], capture_output=True, check=False)
    if not done.stdout.startswith((b"rsync  version 3.", b"rsync  version v3.", b"rsync  version 4.")):
        said = done.stdout.decode("utf-8", "replace").split("\n")[0][:80]
        raise CommandMissing(f"The rsync of this machine is too old for stage=: {said}.", hint=_HINT)
    try:
        there = await transport.run(["rsync", "--version"])
    except CommandMissing:
        raise CommandMissing(f"{name} has no rsync, which stage= needs.", hint=_HINT) from None
    if there.exit_code:
        raise CommandMissing(f"The rsync of {name} does not work: `rsync --version` fails there.", hint=_HINT)


class Rsync:
    """One run of rsync.

    Parameters
    ----------
    transport : Transport
        The way to the other side.
    here, there : str
        Folders, absolute; of this machine, and of that one.
    owner : str, optional
        Tells this machine from others that have its name, and folders of the same names.
    moved : callable, optional
        Is told how many bytes have gone over the connection, in its main direction, each time it is more.
    """

    def __init__(
        self,
        transport: Transport,
        here: str,
        there: str,
        *,
        owner: str = "",
        moved: Callable[[int], None] | None = None,
    ) -> None:
        self._transport, self._here, self._there, self._owner = transport, here, there, owner
        self._moved = moved or (lambda _: None)
        self._process: subprocess.Popen[bytes] | None = None
        self._is_pull = False
        self._ended = threading.Event()
        self._trouble: Exception | None = None

    async def run(self, options: Sequence[str], *, is_pull: bool = False, stdin: bytes = b"") -> Completed:
        """Run it to its end: from here to there, or with ``is_pull`` back; who is cancelled ends it.

        Raises
        ------
        TransportError
            There is no connection, or it broke; the same may be asked for again.
        """
        self._is_pull = is_pull
        running = asyncio.ensure_future(asyncio.to_thread(self._run, list(options), stdin))
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            self.stop()
            with contextlib.suppress(Exception):
                await running
            raise

    async def end_remains(self) -> None:
        """End the other side's half of an earlier run between these folders, which may not know that its link broke.

        Only then is what it has received there for the next run.
        """
        await self._transport.run(["/bin/sh", "-c", _END, "sh", self._mark()])

    def _mark(self) -> str:
        named = "\0".join((self._owner, socket.gethostname(), self._here, self._there))
        return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def stop(self) -> None:
        """End it: what has arrived of a file is kept for the next time."""
        self._ended.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def _run(self, options: list[str], stdin: bytes) -> Completed:
        near, far = socket.socketpair()
        with near:
            with far:
                ends = ["js:./", "./"] if self._is_pull else ["./", "js:./"]
                try:
                    self._process = subprocess.Popen(
                        ["rsync", f"--rsh={_shell(far.fileno())}", *options, *ends],
                        cwd=self._here,
                        env=_environment(),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        pass_fds=[far.fileno()],
                        start_new_session=True,
                    )
                except OSError as error:
                    raise TransportError(f"rsync cannot be started in {self._here}: {error.strerror}") from error
            if self._ended.is_set():
                self.stop()
            carrying = threading.Thread(target=self._carry, args=(near,), name="jupyter-slurm-rsync", daemon=True)
            carrying.start()
            out, said = self._process.communicate(stdin)
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
            carrying.join()
        if self._process.returncode and isinstance(self._trouble, SlurmError):
            raise self._trouble
        is_full = any(sign in said for sign in _FULL)  # the other side ends then, which looks like a link that broke
        if self._process.returncode in _BROKEN and self._trouble is not None and not is_full:
            raise TransportError(f"The connection for rsync broke: {self._trouble}") from self._trouble
        return Completed(self._process.returncode, out, said)

    def _carry(self, near: socket.socket) -> None:
        """Wait for what rsync wants to have run there, run it, and pass on what both say."""
        files: list[int] = []
        stream: Stream | None = None
        try:
            said, files = _received(near)
            if not files:
                return  # it ended before it had a question
            words = json.loads(said)[1:]
            if words[:2] != ["rsync", "--server"]:
                raise TransportError(f"rsync wanted to run something else than rsync: {words[:2]}")
            stream = self._transport.pipe(["/bin/sh", "-c", _THERE, "sh", self._there, self._mark(), *words], _PATIENCE)
            self._pass_on(near, stream, *files)
        except (SlurmError, OSError, ValueError) as error:
            self._trouble = self._trouble or error
        finally:
            if stream is not None:
                stream.close()
            for file in files:
                os.close(file)

    def _pass_on(self, near: socket.socket, stream: Stream, source: int, target: int) -> None:
        for file in (source, target):
            os.set_blocking(file, True)  # rsync may have it otherwise
        up = threading.Thread(target=self._send, args=(stream, source), name="jupyter-slurm-rsync-up", daemon=True)
        done = 0
        try:
            data = stream.recv(1)
            up.start()
            while data := stream.recv(_PIECE):
                _write(target, data)
                done += len(data)
                if self._is_pull:
                    self._moved(done)
        except OSError as error:  # also of a command that has ended, with what it said
            self._trouble = error
        finally:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, target)  # rsync sees the end; the number stays ours
            os.close(null)
            with contextlib.suppress(OSError):
                near.sendall(b"0")  # the bridge ends, for which rsync waits before it closes the other direction
            if up.ident is not None:
                up.join()

    def _send(self, stream: Stream, source: int) -> None:
        done = 0
        try:
            while data := os.read(source, _PIECE):
                stream.sendall(data)
                done += len(data)
                if not self._is_pull:
                    self._moved(done)
            stream.shutdown_write()
        except OSError as error:
            self._trouble = self._trouble or error
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, source)  # rsync must not go on to write
            os.close(null)


def _shell(file: int) -> str:
    """Return what rsync is to start; it takes the text apart at blanks, and knows single quotes (rsync(1), --rsh)."""
    bridge = str(Path(__file__).with_name("rsync_bridge.py"))
    words = [sys.executable, "-I", "-S", bridge, str(file)]
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def _environment() -> dict[str, str]:
    """Return the environment of rsync: its own variables change what it does, the language what it says."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")}
    return {**env, "LC_ALL": "C", "TZ": "UTC"}


def _received(near: socket.socket) -> tuple[bytes, list[int]]:
    said, files = b"", list[int]()
    while not said.endswith(b"\n") and len(said) < _MOST:
        data, more, _, _ = socket.recv_fds(near, _MOST, 2)
        files += more
        if not data:
            break
        said += data
    return said, files


def _write(file: int, data: bytes) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(file, left) :]
