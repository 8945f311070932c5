"""Commands on the remote host that run once and outlive the connection."""

from __future__ import annotations

import asyncio
import posixpath
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence

from jupyter_slurm.errors import CommandTimeout, TransportError
from jupyter_slurm.retry_delays import RetryDelays
from jupyter_slurm.transport.base import Completed
from jupyter_slurm.transport.ssh.protocols import AnswerTooLarge, LinkLost
from jupyter_slurm.transport.ssh.shell.calls import ShellAnswer, number
from jupyter_slurm.transport.ssh.shell.files import failure, percent_b
from jupyter_slurm.transport.ssh.shell.shell import Shell

__all__ = [
    "LARGE_BYTES",
    "RemoteDetachedRun",
    "RemoteDirectoryLock",
    "detached_arguments",
    "draft_path",
    "exit_code",
    "failed_start",
    "started",
]

LARGE_BYTES = 256 << 10
"""Bytes from which a file is sent on its own: the remote shell would hold it in one line of its input."""

_WAIT_STEP_S = 1.0  # seconds for which a shell waits for a command's end; other commands may need the shell
_SHORT_WAIT_S = 0.05


class RemoteDirectoryLock:
    """See :class:`jupyter_slurm.transport.base.DirectoryLock`: a process on the remote host holds the locked file.

    The process ends with the shell that started it, which ends with the connection.

    Parameters
    ----------
    shell : Shell
        The shell that started the process.
    process : int
        ID of the process on the remote host.
    free : callable
        Ends the process, without waiting.
    is_alive : callable
        Returns whether the shell is alive.
    """

    def __init__(
        self, shell: Shell, process: int, free: Callable[[Shell, int], None], is_alive: Callable[[Shell], bool]
    ) -> None:
        self._shell, self._process, self._free, self._is_alive = shell, process, free, is_alive
        self._released = False

    @property
    def is_lost(self) -> bool:
        """Return whether the connection has broken since."""
        return not self._is_alive(self._shell)

    def release(self) -> None:
        """Release the file."""
        if not self._released:
            self._released = True
            self._free(self._shell, self._process)


class RemoteDetachedRun:
    """See :class:`jupyter_slurm.transport.base.DetachedRun`.

    Parameters
    ----------
    prefix : str
        Path of the files without their suffixes.
    lock : RemoteDirectoryLock or None
        The lock of the new folder's first file.
    done : Completed or None
        The result, if the answer to the start already contained it.
    poll : callable
        Queries the result; its argument is the wait for the end on the remote host, in seconds.
    """

    def __init__(
        self,
        prefix: str,
        lock: RemoteDirectoryLock | None,
        done: Completed | None,
        poll: Callable[[float, float | None], Awaitable[Completed | None]],
    ) -> None:
        self._prefix, self.lock, self._result, self._poll = prefix, lock, done, poll

    async def result(self, timeout: float | None) -> Completed | None:
        """Wait for the command's end, also across connections."""
        deadline = None if timeout is None else time.monotonic() + timeout
        delays = RetryDelays(0.1, 1.0, 1.5)
        while self._result is None:
            left = None if deadline is None else deadline - time.monotonic()
            if left is not None and left <= 0:
                return None
            self._result = await self._poll(
                _WAIT_STEP_S if left is None else max(_SHORT_WAIT_S, min(_WAIT_STEP_S, left)), left
            )
            if self._result is None:
                pause = delays.next()
                await asyncio.sleep(pause if left is None else max(0.0, min(pause, left)))
        return self._result


def draft_path(prefix: str) -> str:
    """Return the temporary path of the directory of ``prefix``."""
    folder = posixpath.dirname(prefix)
    return posixpath.join(posixpath.dirname(folder), f".{posixpath.basename(folder)}.{secrets.token_hex(4)}")


def detached_arguments(
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
        See :meth:`jupyter_slurm.transport.base.Transport.start_detached`.
    token : str
        Identifies this start later.
    draft : str
        Temporary path of the directory.
    wait : float
        Seconds to wait for the command's end.
    large : mapping
        Files already on the remote host: name to path.
    command : sequence of str
        The context and the command.
    """
    if files is not None and not files:
        raise ValueError("a folder without files cannot be held")
    given = []
    for name, data in (files or {}).items():
        given += ["link", name, large[name]] if name in large else ["text", name, percent_b(data)]
    return ["js_once", prefix, token, draft, f"{wait:g}", str(len(files or {})), *given, *command]


def started(answer: ShellAnswer, prefix: str) -> tuple[int | None, Completed | None]:
    """Parse the answer to a start or a later query: the process that holds the directory, and the command's result.

    Raises
    ------
    FileExistsError, FileNotFoundError, TransportError
        The command was not started.
    """
    state, _, rest = answer.value.partition(" ")
    if state == "taken":
        raise FileExistsError(f"{prefix} exists already")
    if state != "started":
        raise failure(answer, "write", prefix)
    holder, _, code = rest.partition(":")
    if code == "gone":
        raise FileNotFoundError(f"{prefix}.out is gone")
    done = None if code == "runs" else Completed(exit_code(code), answer.stdout, answer.stderr)
    return number(holder) if holder else None, done


def failed_start(
    error: FileNotFoundError | TransportError, prefix: str, *, was_sent: bool, was_lost: bool
) -> FileNotFoundError | TransportError:
    """Return the error of a start with whether the command may run.

    Parameters
    ----------
    error : FileNotFoundError or TransportError
        Error of the last attempt; a FileNotFoundError without a number means that the command may run.
    prefix : str
        Path of the files without their suffixes.
    was_sent : bool
        Whether a start was sent.
    was_lost : bool
        Whether the answer to an earlier attempt was lost: its start may have succeeded.
    """
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"{prefix}.out is gone") if was_lost else error
    has_no_answer = isinstance(error, (LinkLost, CommandTimeout, AnswerTooLarge))
    if was_lost or has_no_answer:
        error.details["may_run"] = was_lost or was_sent
    return error


def exit_code(value: str) -> int:
    """Return an exit code in Python's form: a shell reports signal n as 128 + n.

    If the wrapper was killed together with the command (SIGKILL to all processes), the command counts as killed.
    """
    if value == "died":
        return -9
    code = number(value)
    return 128 - code if 128 < code <= 192 else code
