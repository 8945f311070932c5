"""Files of the user on one cluster: each request is answered by a process on the login node."""

from __future__ import annotations

import asyncio
import contextlib
import posixpath
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Final

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.runner.login_node.files import MAX_DATA
from jupyter_slurm.services.files.answers import entries_of, entry_of, error_of, size_of, version_of
from jupyter_slurm.services.files.helper import FileHelper, HelperAnswer
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.ssh.link.threads import DaemonThreadPool

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["ClusterFiles"]

_IDLE_S: Final = 30.0  # seconds after which the process ends; a login has few sessions
_ANSWER_TIMEOUT_S: Final = 60.0
_CHANGE_TIMEOUT_S: Final = 3600.0  # a copy of a large tree
_PIECE_BYTES: Final = 1 << 20
_MAX_PATH_BYTES: Final = 4095  # PATH_MAX of Linux, without the end
_READING: Final = ("list", "read", "stat")


class ClusterFiles:
    """Files of the user on one cluster. Paths are absolute, or relative to the home directory (also with ``~/``).

    Parameters
    ----------
    transport : Transport
        Starts the processes.
    location : ClusterLocation
        Location of the cluster.

    Raises
    ------
    FileError, TransportError
        From every method.
    """

    def __init__(self, transport: Transport, location: ClusterLocation) -> None:
        self._transport, self._location = transport, location
        self._threads = DaemonThreadPool()
        self._turn = asyncio.Lock()
        self._helper: tuple[int, FileHelper] | None = None  # with the generation of the connection
        self._idle: asyncio.TimerHandle | None = None
        transport.when_full(self._give_up)

    async def list_directory(self, path: str) -> api.FileList:
        """Return the entries of a directory, unsorted."""
        answer, _ = await self._call({"action": "list", "path": path})
        entries = await asyncio.to_thread(entries_of, answer)
        return {"path": self._absolute(path), "entries": entries, "is_whole": answer.get("is_whole") is True}

    async def describe(self, path: str) -> api.FileEntry:
        """Return the entry of a path."""
        return entry_of((await self._call({"action": "stat", "path": path}))[0].get("entry"))

    async def read(self, path: str, offset: int, limit: int, version: str | None = None) -> tuple[bytes, int, str]:
        """Return bytes of a file, its size, and its version.

        Raises
        ------
        FileConflict
            The file has another version.
        """
        asked = {"action": "read", "path": path, "offset": offset, "limit": limit, "version": version}
        answer, data = await self._call(asked)
        size = size_of(answer.get("size"))
        if len(data) > limit:
            raise TransportError("The cluster sent more of a file than was asked for.", hint="Try again.")
        return data, size, version_of(answer.get("version"))

    async def stream(self, path: str) -> AsyncGenerator[tuple[bytes, int], None]:
        """Yield a file in pieces, each with the size of the file; it must not change meanwhile."""
        data, size, version = await self.read(path, 0, _PIECE_BYTES)
        yield data, size
        offset = len(data)
        while offset < size:
            data, _, _ = await self.read(path, offset, min(_PIECE_BYTES, size - offset), version)
            if not data:
                raise TransportError(f"{path} ended early.", hint="Try again.")
            yield data, size
            offset += len(data)

    async def write(self, path: str, part: api.FilePart, data: bytes) -> api.FileEntry | None:
        """Write a part of a file; the last one makes all parts the file, and returns its entry.

        Raises
        ------
        FileConflict
            The file has another version. It is unchanged.
        """
        if len(data) > MAX_DATA:
            raise UsageError(f"A part of a file has at most {MAX_DATA} bytes.", hint="Send several parts.")
        asked = {"action": "write", "path": path, "draft": part["draft"], "offset": part["offset"]}
        more = {"version": part.get("version"), "is_last": part["is_last"]}
        answer, _ = await self._call({**asked, **more}, data)
        return entry_of(answer.get("entry")) if part["is_last"] else None

    async def change(self, action: str, path: str, to: str | None = None) -> api.FileEntry | None:
        """Make a directory (``mkdir``), ``rename``, ``copy`` or ``delete``; return the entry of the result.

        Copies and deletions take long. They have a process of their own, unless the login allows no more sessions.
        """
        if (action in ("rename", "copy")) != bool(to):
            raise UsageError(f"{action}: the new name is missing, or is one too many.", hint="Give a new name.")
        target = self._absolute(to) if to else ""
        self._absolute(path)  # a path that is not valid starts no process
        asked = {"action": action, "path": path, "to": target, "home": self._location.home}
        helper: FileHelper | None = None
        if action != "mkdir":
            with contextlib.suppress(TransportError):
                helper = await self._threads.call(self._start, self._discard)
        answer, _ = await self._call(asked, helper=helper)
        return None if action == "delete" else entry_of(answer.get("entry"))

    async def stop(self) -> None:
        """End the process."""
        self._close()
        self._threads.close()

    # -- requests

    def _absolute(self, path: str) -> str:
        if "\0" in path:
            raise UsageError("A path holds a NUL byte.", hint="Remove the NUL byte.")
        below = path[1:].lstrip("/") if path == "~" or path.startswith("~/") else path
        path = posixpath.join(self._location.home, below)
        try:
            size = len(path.encode("utf-8", "surrogateescape"))
        except UnicodeEncodeError:
            raise UsageError("A path holds a character that is not valid.", hint="Correct the name.") from None
        if size > _MAX_PATH_BYTES:
            raise UsageError(f"A path has more than {_MAX_PATH_BYTES} bytes.", hint="Use a shorter name.")
        return path

    async def _call(
        self, asked: Mapping[str, object], data: bytes = b"", helper: FileHelper | None = None
    ) -> HelperAnswer:
        """Send a request, to a process of its own if there is one.

        Raises
        ------
        FileError
            The request was refused.
        """
        path = str(asked["path"])
        asked = {**asked, "path": self._absolute(path)}
        if helper is not None:
            answer = await self._send_alone(helper, asked)
        else:
            async with self._turn:
                answer = await self._send(asked, data)
        is_taken = answer[0].get("error") == "EEXIST"
        about = str(asked.get("to") or path) if is_taken else path
        if refused := error_of(answer[0], about, str(asked["action"])):
            raise refused
        return answer

    async def _send_alone(self, helper: FileHelper, asked: Mapping[str, object]) -> HelperAnswer:
        try:
            return await self._threads.call(lambda: helper.call(asked, b"", _CHANGE_TIMEOUT_S))
        except OSError as error:
            raise self._broken(error) from error
        finally:
            self._threads.run_later(helper.close)

    async def _send(self, asked: Mapping[str, object], data: bytes) -> HelperAnswer:
        """Send a request; one that only reads is sent again over a new connection."""
        try:
            return await self._exchange(asked, data)
        except OSError as error:
            if asked["action"] not in _READING:
                raise self._broken(error) from error
        try:
            return await self._exchange(asked, data)
        except OSError as error:
            raise self._broken(error) from error

    async def _exchange(self, asked: Mapping[str, object], data: bytes) -> HelperAnswer:
        if self._idle is not None:
            self._idle.cancel()
        if self._helper is None or self._helper[0] != self._transport.generation:
            self._close()
            helper = await self._threads.call(self._start, self._discard)
            self._helper = (self._transport.generation, helper)
        helper, is_done = self._helper[1], False
        timeout = _CHANGE_TIMEOUT_S if "to" in asked else _ANSWER_TIMEOUT_S
        try:
            answer = await self._threads.call(lambda: helper.call(asked, data, timeout))
            is_done = True
        finally:
            if not is_done:  # broken, or cancelled: its next answer would be that of this request
                self._close()
        self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._close)
        return answer

    def _discard(self, helper: FileHelper) -> None:
        """Close a helper whose request was cancelled at its start; closing may block."""
        self._threads.run_later(helper.close)

    def _start(self) -> FileHelper:
        return FileHelper(self._transport, self._location.id)

    def _give_up(self) -> None:
        if not self._turn.locked():
            self._close()

    def _close(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
            self._idle = None
        if self._helper is not None:
            helper, self._helper = self._helper[1], None
            with contextlib.suppress(RuntimeError):
                self._threads.run_later(helper.close)

    def _broken(self, error: OSError) -> TransportError:
        return TransportError(
            f"The connection to {self._location.id} broke: {error}",
            hint="Try again. A file that was being saved is the old one or the new one, never a part.",
        )
