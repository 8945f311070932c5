"""Commands on this computer with live output."""

from __future__ import annotations

import contextlib
import os
import select
import subprocess
import tempfile
import threading
import time
from collections.abc import Sequence
from typing import Final

from jupyter_slurm.errors import TransportError
from jupyter_slurm.transport.base import Context, Sink
from jupyter_slurm.transport.guard import GUARD, KILL
from jupyter_slurm.transport.local.processes import start

__all__ = ["LiveProcess"]

# The shell's own message about a signal is not the command's.
_GUARDED: Final = f'{KILL}{GUARD}\nexec 8>&2 2>/dev/null\n( exec 2>&8 8>&-; js_guard "$@" )\nexit $?'
_CHUNK_BYTES: Final = 1 << 16
_WAIT_STEP_S: Final = 0.2  # seconds between two checks whether the command has ended
_DRAIN_TIMEOUT_S: Final = 0.5  # seconds for output that a background process may hold open


class LiveProcess:
    """A command under the guard, whose life is that of its standard input.

    Parameters
    ----------
    argv, text, sink, time_limit, context
        See :meth:`jupyter_slurm.transport.base.Transport.run_live`.
    """

    def __init__(
        self, argv: Sequence[str], text: bytes, sink: Sink, time_limit: float, context: Context | None
    ) -> None:
        self._argv, self._text, self._sink, self._context = argv, text, sink, context
        self._time_limit = time_limit
        self._lock = threading.Lock()
        self._is_over = False
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> int:
        """Run the command in this thread, and return its exit code.

        Raises
        ------
        TransportError
            The command cannot be started.
        """
        path = _private_file(self._text)
        words = ["/bin/sh", "-c", _GUARDED, "sh", f"{self._time_limit:g}", path, *self._argv, path]
        try:
            pipe = subprocess.PIPE
            self._process = process = start(words, self._context, stdin=pipe, stdout=pipe, stderr=pipe, bufsize=0)
        except BaseException:
            os.unlink(path)
            raise
        with process:
            try:
                if self._is_over:  # cancelled during the start
                    self.end()
                self._pass_on(process)
                code = process.wait()
                return 128 - code if code < 0 else code
            finally:
                self.end()

    def end(self) -> None:
        """End the command and the processes of its group, from any thread; may be called again."""
        with self._lock:
            self._is_over = True
            if self._process is not None and self._process.stdin is not None:
                with contextlib.suppress(OSError):
                    self._process.stdin.close()

    def _pass_on(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        assert process.stderr is not None
        streams = {process.stdout.fileno(): 1, process.stderr.fileno(): 2}
        poll, deadline = select.poll(), float("inf")
        for file in streams:
            poll.register(file, select.POLLIN)
        while streams and time.monotonic() < deadline:
            for file, _ in poll.poll(_WAIT_STEP_S * 1000):
                if data := os.read(file, _CHUNK_BYTES):
                    self._sink(streams[file], data)
                else:
                    poll.unregister(file)
                    del streams[file]
            if deadline == float("inf") and process.poll() is not None:
                deadline = time.monotonic() + _DRAIN_TIMEOUT_S
                self.end()  # so do the background processes of its group


def _private_file(text: bytes) -> str:
    try:
        file, path = tempfile.mkstemp(prefix=".jupyter_slurm-")
        with os.fdopen(file, "wb") as opened:
            opened.write(text)
    except OSError as error:
        raise TransportError(
            f"The text of the command cannot be written to a file: {error.strerror}.",
            hint="Check the free space of /tmp on this computer.",
        ) from error
    return path
