"""Log of a daemon on this host: in the state directory, else beside the socket."""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING

from jupyter_slurm.agent.hosting.discovery import open_private, search_locations
from jupyter_slurm.errors import AgentRefused

if TYPE_CHECKING:
    from jupyter_slurm.config import Settings

__all__ = ["log_path", "open_log", "usual_log_path"]


def log_path(settings: Settings) -> str:
    """Return the path of a daemon's log on this host; a home shared by several hosts has several logs.

    If the state directory cannot be written, the log is in the directory of the socket.
    """
    return max(_log_paths(settings), key=_modified)


def usual_log_path(settings: Settings) -> str:
    """Return the path of a daemon's log if the state directory can be written."""
    return settings.machine_path("agent", ".log")


def open_log(settings: Settings, text: bytes = b"") -> tuple[str | None, int]:
    """Open a daemon's log, and write a line to it. Return its path, and its file descriptor.

    A full or read-only disk must not keep the agent from starting: without a writable file, path is None, and the
    null device is open.

    Raises
    ------
    OSError
        The file is a link, or belongs to another user.
    """
    usual = usual_log_path(settings)
    for path in (usual, *(path for path in _log_paths(settings) if path != usual)):
        try:
            os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
            fd = open_private(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        except OSError as error:
            if error.errno in (errno.EPERM, errno.ELOOP):
                raise
            continue
        try:
            os.write(fd, text)  # a file can be opened on a full disk
        except OSError:
            os.close(fd)
            continue
        return path, fd
    return None, os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _log_paths(settings: Settings) -> list[str]:
    paths = [usual_log_path(settings)]
    with contextlib.suppress(AgentRefused):
        paths += [os.path.join(place.folder, os.path.basename(paths[0])) for place in search_locations(settings)[:1]]
    return paths


def _modified(path: str) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return 0.0
