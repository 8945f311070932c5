"""Commands that run once on the far side and do not die with the connection."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, number
from jupyter_slurm.transport.ssh.shell.files import failure, percent_b
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = ["LARGE", "RemoteDetachedRun", "RemoteDirectoryLock", "draft_of", "exit_code", "once_words", "started"]

LARGE = 256 << 10
"""Bytes of a file from which it travels by itself: the far shell would have to hold it in a line of its input."""

_LOOK = 1.0  # seconds for which a shell waits for a command's end; another command may want it
_GLANCE = 0.05


class RemoteDirectoryLock:
    """See :class:`jupyter_slurm.transport.base.DirectoryLock`: a process over there that has the file open and locked.

    It ends with the shell that started it, which ends with the connection.

    Parameters
    ----------
    shell : Shell
        That shell.
    process : int
        Its id over there.
    free : callable
        Ends it, without waiting.
    is_alive : callable
        Whether the shell is there.
    """

    def __init__(
        self, shell: Shell, process: int, free: Callable[[Shell, int], None], is_alive: Callable[[Shell], bool]
    ) -> None:
        self._shell, self._process, self._free, self._is_alive = shell, process, free, is_alive
        self._released = False

    @property
    def is_lost(self) -> bool:
        """Whether the connection broke since."""
        return not self._is_alive(self._shell)

    def release(self) -> None:
        """Let others have the file."""
        if not self._released:
            self._released = True
            self._free(self._shell, self._process)


class RemoteDetachedRun:
    """See :class:`jupyter_slurm.transport.base.DetachedRun`.

    Parameters
    ----------
    prefix : str
        Path of the files without what is behind the dot.
    hold : RemoteDirectoryLock or None
        The lock of the new folder's first file.
    done : Completed or None
        What it left, where the answer to the start had that already.
    look : callable
        Asks again: is given how long the far side waits for the end, in seconds.
    """

    def __init__(
        self,
        prefix: str,
        hold: RemoteDirectoryLock | None,
        done: Completed | None,
        look: Callable[[float, float | None], Awaitable[Completed | None]],
    ) -> None:
        self._prefix, self.hold, self._done, self._look = prefix, hold, done, look

    async def result(self, timeout: float | None) -> Completed | None:
        """Wait for its end, also across connections."""
        deadline = None if timeout is None else time.monotonic() + timeout
        pause = 0.1
        while self._done is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._done = await self._look(_LOOK if left is None else max(_GLANCE, min(_LOOK, left)), left)
            if self._done is None:
                await asyncio.sleep(pause if left is None else max(0.0, min(pause, left)))
                pause = min(1.0, pause * 1.5)
        return self._done


def draft_of(prefix: str) -> str:
    """Return where the folder of ``prefix`` is made before it gets its name."""
    folder = posixpath.dirname(prefix)
    return posixpath.join(posixpath.dirname(folder), f".{posixpath.basename(folder)}.{secrets.token_hex(4)}")


def once_words(
    prefix: str,
    token: str,
    draft: str,
    wait: float,
    files: Mapping[str, bytes] | None,
    large: Mapping[str, str],
    command: Sequence[str],
) -> list[str]:
    """Return the words of the call that starts a command once.

    Parameters
    ----------
    prefix, files
        See :meth:`jupyter_slurm.transport.base.Transport.start_once`.
    token : str
        By which we know later that it was us who started it.
    draft : str
        Where the folder is made.
    wait : float
        Seconds to wait for its end.
    large : mapping
        Files that lie there already: name to path.
    command : sequence of str
        The circumstances and the command.
    """
    if files is not None and not files:
        raise ValueError("a folder without files cannot be held")
    given = []
    for name, data in (files or {}).items():
        given += ["link", name, large[name]] if name in large else ["text", name, percent_b(data)]
    return ["js_once", prefix, token, draft, f"{wait:g}", str(len(files or {})), *given, *command]


def started(answer: ShellAnswer, prefix: str) -> tuple[int | None, Completed | None]:
    """Read the answer to a start, or to a later look: the process that holds the folder, and what the command left.

    Raises
    ------
    FileExistsError, FileNotFoundError, TransportError
        It was not started.
    """
    state, _, rest = answer.value.partition(" ")
    if state == "taken":
        raise FileExistsError(f"{prefix} is there already")
    if state != "started":
        raise failure(answer, "write", prefix)
    holder, _, code = rest.partition(":")
    if code == "gone":
        raise FileNotFoundError(f"{prefix}.out is gone")
    done = None if code == "runs" else Completed(exit_code(code), answer.stdout, answer.stderr)
    return number(holder) if holder else None, done


def exit_code(value: str) -> int:
    """Return an exit code as Python tells it: a shell says 128 + n of a signal n.

    A command whose wrapper was killed with it (SIGKILL to all that runs) is told as killed.
    """
    if value == "died":
        return -9
    code = number(value)
    return 128 - code if 128 < code <= 192 else code
