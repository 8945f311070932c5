"""Checks of what a cluster sends about files, and its errors in words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from jupyter_slurm.errors import FileConflict, FileError, SlurmError, TransportError
from jupyter_slurm.runner.login_node.files import MAX_ENTRIES
from jupyter_slurm.services.slurm.client import printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["entries_of", "entry_of", "error_of", "size_of", "version_of"]

_KINDS: Final = ("file", "directory", "other")
_MAX_SIZE: Final = 1 << 62
_MAX_NAME_BYTES: Final = 1024
_MAX_TIME_S: Final = 1 << 62
_VERSION: Final = re.compile(r"[0-9-]{1,100}")
_REASONS: Final = {
    "directory": ("It is a directory.", "Name a file."),
    "special": ("It is not a regular file.", "Name a file."),
    "incomplete": ("The earlier parts of the file are not on the cluster.", "Save the file again."),
    "inside": ("A directory cannot be copied into itself.", "Choose another directory."),
    "deep": ("It has too many levels of directories.", "Use `cp -a` or `rm -r` with `%slurm sh`."),
    "root": ("The home directory and those above it are not changed.", "Name a file or a directory in it."),
    "ENOTDIR": ("A part of the path is not a directory.", ""),
    "EISDIR": ("It is a directory.", "Name a file."),
    "ENOTEMPTY": ("The directory is not empty.", ""),
    "EACCES": ("Permission denied.", "Check the owner and the mode with `%slurm sh ls -ld`."),
    "EPERM": ("Permission denied.", "Check the owner and the mode with `%slurm sh ls -ld`."),
    "EROFS": ("The file system is read-only.", "Choose another directory."),
    "ENOSPC": ("The disk is full.", "Look at `%slurm room`, and free some space. The old file is unchanged."),
    "EDQUOT": ("Your quota is used up.", "Look at `%slurm room`, and free some space. The old file is unchanged."),
    "ELOOP": ("Its symbolic links form a circle.", "Check them with `%slurm sh ls -l`."),
    "ENAMETOOLONG": ("The name is too long.", "Use a shorter name."),
}


def error_of(answer: Mapping[str, Any], path: str, action: str = "") -> SlurmError | None:
    """Return the error in an answer, None if there is none."""
    if "error" not in answer:
        return None
    code, shown = str(answer["error"])[:40], printable(path)
    if code in ("changed", "exists", "EEXIST"):
        if code == "changed" and action == "read":
            hint = "Read it again. A file that grows can be copied: `%slurm get`."
            return FileConflict(f"{shown} changed while it was read.", hint=hint, reason=code)
        reason = "has changed since it was read" if code == "changed" else "exists already"
        hint = "Read the file again, or save it under another name." if code == "changed" else "Choose another name."
        return FileConflict(f"{shown} {reason}. Nothing was written.", hint=hint, reason=code)
    if code == "ENOENT":
        return FileError(f"{shown} does not exist.", hint="Check the name with `%slurm ls`.", reason=code)
    reason, hint = _REASONS.get(code, (printable(str(answer.get("reason"))[:300]), ""))
    return FileError(f"{shown}: {reason}", hint=hint, reason=code)


def entries_of(answer: Mapping[str, Any]) -> list[api.FileEntry]:
    """Return the entries of a directory.

    Raises
    ------
    TransportError
        The cluster sent something else.
    """
    entries = answer.get("entries")
    if not isinstance(entries, list) or len(entries) > MAX_ENTRIES:
        raise _unreadable()
    return [entry_of(entry, is_within=True) for entry in entries]


def entry_of(value: object, *, is_within: bool = False) -> api.FileEntry:
    """Return a checked entry: its name cannot lead to another directory, if it is one within a directory."""
    match value:
        case [str(name), str(kind), bool(is_link), size, int() | float() as modified, version] if (
            kind in _KINDS and abs(modified) < _MAX_TIME_S and _is_name(name, is_within)
        ):
            entry = {"name": name, "type": kind, "is_link": is_link, "size": size_of(size), "modified": float(modified)}
            return cast("api.FileEntry", {**entry, "version": version_of(version)})
    raise _unreadable()


def size_of(value: object) -> int:
    """Return a checked size in bytes."""
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < _MAX_SIZE:
        raise _unreadable()
    return value


def version_of(value: object) -> str:
    """Return a checked version."""
    if not isinstance(value, str) or not _VERSION.fullmatch(value):
        raise _unreadable()
    return value


def _is_name(name: str, is_within: bool) -> bool:
    try:
        size = len(name.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return False
    is_plain = name not in (".", "..") and "\0" not in name and "/" not in name
    return 0 < size <= _MAX_NAME_BYTES and (is_plain or (name == "/" and not is_within))


def _unreadable() -> TransportError:
    return TransportError(
        "The cluster sent an answer about files that cannot be read.",
        hint="Check that python3 on the login node is not a wrapper that prints something.",
    )
