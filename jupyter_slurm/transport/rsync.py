"""rsync between a local folder and a transport's directory, over the existing connection.

rsync starts a configurable shell (``--rsh``) and speaks through its standard streams with an rsync on the other side.
In place of that shell, ``rsync_bridge.py`` hands both streams over to this process. So rsync needs no second login, no
port, and no secret in a command line. Both rsyncs are started in their folder with the path ``./``, so that no path is
quoted.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import io
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from jupyter_slurm.errors import CommandError, CommandMissing, SlurmError, TransportError
from jupyter_slurm.transport.base import Completed, Stream, Transport
from jupyter_slurm.transport.stream_copy import copy_from, copy_to

__all__ = ["Rsync", "check_rsync"]

_CONNECT_TIMEOUT_S = 60.0  # seconds for a new connection
_CHUNK_BYTES = 256 << 10
_END_TIMEOUT_S = 10.0  # seconds for the remote rsync to end after the local one
_NOTE_INTERVAL_S = 0.05
_MAX_OUTPUT_BYTES = 256 << 20  # bytes of rsync's standard output, such as a listing
_MAX_STDERR_BYTES = 64 << 10  # bytes to keep of its standard error, half of them from its end
_BROKEN = (10, 12, 30, 35, 255)  # exit codes (rsync(1)): socket, protocol stream, time-outs, the remote shell
_FULL = (b"No space left", b"quota exceeded")
_MAX_COMMAND_BYTES = 1 << 16  # bytes of rsync's remote command
_MARK = "JUPYTER_SLURM_RSYNC"
# The shell before this line may have read the bytes sent before the line.
_THERE = f'cd -- "$1" && {_MARK}=$2 && export {_MARK} && shift 2 && echo && exec "$@"'
# An ended rsync keeps partial files where the next run looks for them. Without a process with the mark: no action.
_END = f"""
left() {{ grep -lzxF -- "{_MARK}=$1" /proc/[0-9]*/environ 2>/dev/null | tr -dc '0-9\\n'; }}
kill $(left "$1") 2>/dev/null
for _ in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(left "$1")" ] && exit; sleep 1; done
kill -9 $(left "$1") 2>/dev/null; :
"""
_HINT = "Install rsync 3.1 or newer (with apt, dnf, brew or conda), or ask the administrators."


async def check_rsync(transport: Transport, name: str) -> None:
    """Check that rsync is installed on both sides.

    Raises
    ------
    CommandMissing
        rsync is missing. The message names the side.
    """
    near = shutil.which("rsync")
    if near is None:
        raise CommandMissing("This computer has no rsync, which stage= needs.", hint=_HINT)
    done = await asyncio.to_thread(subprocess.run, [near, "--version"], capture_output=True, check=False)
    if not done.stdout.startswith((b"rsync  version 3.", b"rsync  version v3.", b"rsync  version 4.")):
        said = done.stdout.decode("utf-8", "replace").split("\n")[0][:80]
        raise CommandMissing(f"The rsync of this computer is too old for stage=: {said}.", hint=_HINT)
    try:
        there = await transport.run(["rsync", "--version"])
    except CommandMissing:
        raise CommandMissing(f"{name} has no rsync, which stage= needs.", hint=_HINT) from None
    if there.exit_code:
        raise CommandMissing(f"The rsync of {name} does not work: `rsync --version` fails.", hint=_HINT)


class Rsync:
    """One run of rsync.

    Parameters
    ----------
    transport : Transport
        Transport to the remote host.
    local_path, remote_path : str
        Absolute folders: local, and remote.
    owner : str, optional
        Distinguishes this computer from others with the same name and the same folders.
    moved : callable, optional
        Called with the number of bytes sent in the main direction, from time to time while it grows.
    limit : int, optional
        Most bytes that the remote host may send: a hostile one would fill the disk.
    """

    def __init__(
        self,
        transport: Transport,
        local_path: str,
        remote_path: str,
        *,
        owner: str = "",
        moved: Callable[[int], None] | None = None,
        limit: int | None = None,
    ) -> None:
        self._transport, self._local_path, self._remote_path, self._owner = transport, local_path, remote_path, owner
        self._moved, self._limit = moved or (lambda _: None), limit
        self._process: subprocess.Popen[bytes] | None = None
        self._is_pull = False
        self._next_note = 0.0
        self._stream: Stream | None = None
        self._ended = threading.Event()
        self._trouble: Exception | None = None
        self._refusal: CommandError | None = None

    async def run(self, options: Sequence[str], *, is_pull: bool = False, stdin: bytes = b"") -> Completed:
        """Run rsync to its end: from local to remote, or with ``is_pull`` back. A cancellation ends rsync.

        Raises
        ------
        TransportError
            There is no connection, or it broke. The run may be repeated.
        CommandError
            The remote host sent too much. rsync was ended.
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
        """End the remote rsync of an earlier run between these folders, which may not have noticed a broken connection.

        Only then are its partial files available to the next run.
        """
        await self._transport.run(["/bin/sh", "-c", _END, "sh", self._mark()])

    def _mark(self) -> str:
        named = "\0".join((self._owner, socket.gethostname(), self._local_path, self._remote_path))
        return hashlib.sha256(named.encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def stop(self) -> None:
        """End rsync: partial files are kept for the next run."""
        self._ended.set()
        if self._process is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGTERM)

    def refuse(self) -> None:
        """End rsync because the remote host sends too much. The run fails."""
        self._refusal = CommandError(
            "The cluster sent more than it had listed. The transfer was stopped.",
            hint="Copy the files when nothing writes to them any more.",
        )
        self.stop()

    def _run(self, options: list[str], stdin: bytes) -> Completed:
        near, far = socket.socketpair()
        with near:
            with far:
                ends = ["js:./", "./"] if self._is_pull else ["./", "js:./"]
                try:
                    self._process = subprocess.Popen(
                        ["rsync", f"--rsh={_shell(far.fileno())}", *options, *ends],
                        cwd=self._local_path,
                        env=_environment(),
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.PIPE,
                        pass_fds=[far.fileno()],
                        start_new_session=True,
                    )
                except OSError as error:
                    raise TransportError(
                        f"rsync cannot be started in {self._local_path}: {error.strerror}.",
                        hint="Check that the folder exists and that you may read it.",
                    ) from error
            if self._ended.is_set():
                self.stop()
            carrying = threading.Thread(target=self._carry, args=(near,), name="jupyter-slurm-rsync", daemon=True)
            carrying.start()
            out, said = self._communicate(self._process, stdin)
            with contextlib.suppress(OSError):
                near.shutdown(socket.SHUT_RDWR)
            carrying.join(_END_TIMEOUT_S)
            if carrying.is_alive() and self._stream is not None:
                self._stream.close()  # the remote rsync waits for its disk, for example
            carrying.join()
        return self._result(self._process.returncode, out, said)

    def _result(self, exit_code: int, out: bytes, said: bytes) -> Completed:
        if self._refusal is not None:
            raise self._refusal
        if exit_code and isinstance(self._trouble, SlurmError):
            raise self._trouble
        if exit_code and self._trouble is not None:  # holds the messages of the remote rsync
            said += str(self._trouble).encode("utf-8", "replace")
        # the remote rsync then ends, which looks like a broken connection
        is_full = any(sign in said for sign in _FULL)
        if exit_code in _BROKEN and self._trouble is not None and not is_full:
            raise TransportError(
                f"The connection for rsync broke: {self._trouble}",
                hint="Run the command again: files that were copied are not sent twice.",
            ) from self._trouble
        return Completed(exit_code, out, said)

    def _communicate(self, process: subprocess.Popen[bytes], stdin: bytes) -> tuple[bytes, bytes]:
        """Send rsync its input, and return its output. The remote host decides how much rsync prints."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        out, said = io.BytesIO(), bytearray()
        threads = [
            threading.Thread(target=_feed, args=(process.stdin, stdin), name="jupyter-slurm-rsync-in", daemon=True),
            threading.Thread(target=_listen, args=(process.stderr, said), name="jupyter-slurm-rsync-err", daemon=True),
        ]
        for thread in threads:
            thread.start()
        with process.stdout as pipe:
            while data := os.read(pipe.fileno(), _CHUNK_BYTES):
                if self._refusal is not None:
                    continue
                out.write(data)
                if out.tell() > _MAX_OUTPUT_BYTES:
                    self._refusal = CommandError(
                        f"rsync printed more than {_MAX_OUTPUT_BYTES >> 20} MiB, and was ended.",
                        hint="Check the files on the cluster, or stage a folder with fewer files.",
                    )
                    out = io.BytesIO()
                    self.stop()
        for thread in threads:
            thread.join()
        process.wait()
        return out.getvalue(), bytes(said)

    def _carry(self, local_socket: socket.socket) -> None:
        """Wait for rsync's remote command, run it, and copy the streams in both directions."""
        files: list[int] = []
        try:
            said, files = _received(local_socket)
            if not files:
                return  # rsync ended before its request
            words = json.loads(said)[1:]
            if words[:2] != ["rsync", "--server"]:
                raise TransportError(
                    f"rsync tried to run another command than rsync: {words[:2]}.",
                    hint="Remove RSYNC_RSH from the environment, and any wrapper of rsync on this computer.",
                )
            stream = self._stream = self._transport.pipe(
                ["/bin/sh", "-c", _THERE, "sh", self._remote_path, self._mark(), *words], _CONNECT_TIMEOUT_S
            )
            if self._process is not None and self._process.poll() is not None:
                return  # it was stopped meanwhile
            self._pass_on(local_socket, stream, *files)
        except (SlurmError, OSError, ValueError) as error:
            self._trouble = self._trouble or error
        finally:
            if self._stream is not None:
                self._stream.close()
            for file in files:
                os.close(file)

    def _pass_on(self, local_socket: socket.socket, stream: Stream, source: int, target: int) -> None:
        for file in (source, target):
            os.set_blocking(file, True)  # rsync may have changed the mode
        up = threading.Thread(target=self._send, args=(stream, source), name="jupyter-slurm-rsync-up", daemon=True)
        done = 0
        try:
            stream.recv(1)
            up.start()
            with contextlib.closing(copy_from(stream, target)) as sizes:
                for size in sizes:
                    done += size
                    if self._limit is not None and done > self._limit:
                        self.refuse()
                        break
                    if self._is_pull:
                        self._note(done)
        except (CommandError, OSError) as error:  # also if the command has ended; with its standard error
            self._trouble = error
        finally:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, target)  # rsync sees the end; the descriptor stays in use
            os.close(null)
            with contextlib.suppress(OSError):
                local_socket.sendall(b"0")  # the bridge ends; rsync waits for it before closing the other direction
            if up.ident is not None:
                up.join()

    def _note(self, done: int) -> None:
        """Report a number of bytes, unless one was reported a moment ago: each report wakes another thread."""
        if (now := time.monotonic()) >= self._next_note:
            self._next_note = now + _NOTE_INTERVAL_S
            self._moved(done)

    def _send(self, stream: Stream, source: int) -> None:
        done = 0
        try:
            for size in copy_to(source, stream):
                done += size
                if not self._is_pull:
                    self._note(done)
            stream.shutdown_write()
        except OSError as error:
            self._trouble = self._trouble or error
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, source)  # rsync must not write any more
            os.close(null)


def _feed(pipe: IO[bytes], data: bytes) -> None:
    with contextlib.suppress(BrokenPipeError), pipe:  # also at its end, when the rest is written
        pipe.write(data)


def _listen(pipe: IO[bytes], said: bytearray) -> None:
    """Keep the beginning and the end of what is read."""
    half = _MAX_STDERR_BYTES // 2
    with pipe:
        while data := os.read(pipe.fileno(), _CHUNK_BYTES):
            said += data
            del said[half:-half]


def _shell(file: int) -> str:
    """Return the command for rsync to start, with single quotes as in rsync(1), --rsh."""
    bridge = str(Path(__file__).with_name("rsync_bridge.py"))
    words = [sys.executable, "-I", "-S", bridge, str(file)]
    return " ".join("'" + word.replace("'", "''") + "'" for word in words)


def _environment() -> dict[str, str]:
    """Return rsync's environment: its own variables change its behaviour, the locale its messages."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("RSYNC_")}
    return {**env, "LC_ALL": "C", "TZ": "UTC"}


def _received(local_socket: socket.socket) -> tuple[bytes, list[int]]:
    said, files = b"", list[int]()
    while not said.endswith(b"\n") and len(said) < _MAX_COMMAND_BYTES:
        data, more, _, _ = socket.recv_fds(local_socket, _MAX_COMMAND_BYTES, 2)
        files += more
        if not data:
            break
        said += data
    return said, files
