"""Whether a folder on a far machine is ours alone: nobody else may put job directories there, or swap it."""

from __future__ import annotations

import os
import re
import stat

from jupyter_slurm.errors import ConfigError, TransportError, UsageError
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import FileStat, Transport

__all__ = ["is_owned", "make_owned_folder", "ownership_error", "read_values"]

# Every folder from there to the root, as it is named and as it is meant: symbolic links have owners as well.
_SCRIPT = r"""umask 077
mkdir -p -- "$1" 2>/dev/null
look() {
    at=$1
    while :; do
        stat -c '%u %f %n' -- "$at" 2>/dev/null
        [ "$at" != / ] || break
        at=${at%/*}
        at=${at:-/}
    done
}
id -u
look "$1"
cd -P -- "$1" 2>/dev/null && look "$(pwd -P)"
:"""
_VALUES = b"jupyter-slurm values 1\n"  # no other file of the person's leaves this machine in this way
_LINE = re.compile(r"(\d+) ([0-9a-f]+) (/.*)")


async def is_owned(transport: Transport, folder: str) -> bool:
    """Tell whether nobody else can have written what is in a job directory: more than text may be taken from it.

    On a far machine this is known: :func:`make_owned_folder` looked at what the directory lies in.
    """
    try:
        return not _ownership_error(folder, await transport.stat(folder))
    except (FileNotFoundError, TransportError):
        return False


async def ownership_error(transport: Transport, folder: str) -> str:
    """Return why what is in a job directory is not believed, as :func:`is_owned` has it; empty: it is, or is gone."""
    try:
        return _ownership_error(folder, await transport.stat(folder))
    except FileNotFoundError:
        return ""


def _ownership_error(folder: str, status: FileStat) -> str:
    if status.owner not in (None, os.geteuid()):
        return printable(f"the job's folder {folder} belongs to another user (uid {status.owner})")
    shared = (status.mode or 0) & (stat.S_IWGRP | stat.S_IWOTH)
    return printable(f"others can write to the job's folder {folder}") if shared else ""


def read_values(path: str) -> bytes:
    """Read a file of values of this machine (runner/variables/values.py) that nobody else can have written.

    Raises
    ------
    UsageError
        It is none.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
            if stat.S_ISREG(found.st_mode) and is_private and (content := file.read()).startswith(_VALUES):
                return content
    except (OSError, ValueError) as error:
        raise UsageError(f"the values of the cell cannot be read: {error}", hint="Submit the cell again.") from error
    raise UsageError("the file of values is not a file of this user alone", hint="Submit the cell again.")


async def make_owned_folder(transport: Transport, folder: str) -> None:
    """Make a folder, if that can be done, and see that it and all above it belong to us or to root.

    As sshd looks at an ``authorized_keys`` (StrictModes), but that a group may write: sites make project folders so.

    Parameters
    ----------
    transport : Transport
        The way to the machine.
    folder : str
        Its absolute path there.

    Raises
    ------
    ConfigError
        Somebody else could put jobs there, or read what we put there.
    """
    done = await transport.run(["/bin/sh", "-c", _SCRIPT, "sh", folder.rstrip("/") or "/"])
    me, *lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    seen = [found.groups() for line in lines if (found := _LINE.fullmatch(line))]
    if done.exit_code or not me.isdigit() or not seen:
        raise TransportError(f"The shell there does not say whose {folder} is.", hint="It needs coreutils (stat, id).")
    for owner, bits, path in seen:
        mode = int(bits, 16)
        if owner not in (me, "0"):
            raise _foreign_folder_error(folder, f"{path} belongs to another user (uid {owner})")
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not stat.S_ISLNK(mode):
            raise _foreign_folder_error(folder, f"everybody can write to {path}")


def _foreign_folder_error(folder: str, reason: str) -> ConfigError:
    return ConfigError(
        printable(f"Jobs cannot be kept in {folder}: {reason}."),
        hint='Set a folder of your own in the profile: [slurm] job_root = "~/…".',
    )
