"""Ownership of a folder on a remote host: no other user may be able to add job directories or replace the folder."""

from __future__ import annotations

import contextlib
import os
import posixpath
import re
import stat

from jupyter_slurm.errors import ConfigError, TransportError, UntrustedFile, UsageError
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport

__all__ = ["check_ownership", "is_owned", "make_owned_folder", "ownership_error", "read_values"]

# Every folder up to the root, as named and as resolved: symbolic links have owners as well.
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
_VALUES = b"jupyter-slurm values 1\n"  # no other file of the user leaves this machine in this way
_LINE = re.compile(r"(\d+) ([0-9a-f]+) (/.*)")


async def is_owned(transport: Transport, folder: str) -> bool:
    """Return whether no other user can have written the content of a job directory: more than text may be read from it.

    Files are read with ``read_owned`` nevertheless, which looks again: another folder may stand there by then.
    """
    try:
        await transport.stat(folder)
        return not await ownership_error(transport, folder)
    except (FileNotFoundError, TransportError):
        return False


async def ownership_error(transport: Transport, folder: str) -> str:
    """Return why the content of a job directory is not trusted, by the rules of :func:`is_owned`; empty: trusted, or
    gone.
    """
    try:
        await check_ownership(transport, folder)
    except UntrustedFile as error:
        return printable(str(error.details["reason"]))
    return ""


async def check_ownership(transport: Transport, folder: str) -> None:
    """Raise UntrustedFile if another user can have written the content of a job directory."""
    with contextlib.suppress(FileNotFoundError):
        await transport.read_owned(posixpath.join(folder, "job.json"), 0, 1)


def read_values(path: str) -> bytes:
    """Read a local file of values (runner/variables/values_file.py) that no other user can have written.

    Raises
    ------
    UsageError
        There is no such file.
    """
    try:
        with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
            found = os.fstat(file.fileno())
            is_private = found.st_uid == os.geteuid() and not found.st_mode & 0o077
            if stat.S_ISREG(found.st_mode) and is_private and (content := file.read()).startswith(_VALUES):
                return content
    except (OSError, ValueError) as error:
        raise UsageError(f"The values of the cell cannot be read: {error}", hint="Submit the cell again.") from error
    raise UsageError("The file with the values of the cell is not private to your user.", hint="Submit the cell again.")


async def make_owned_folder(transport: Transport, folder: str) -> None:
    """Create a folder if necessary, and check that it and all folders above it belong to the user or to root.

    The rules are those of sshd for ``authorized_keys`` (StrictModes), but a group may write: sites create project
    folders so.

    Parameters
    ----------
    transport : Transport
        Transport to the host.
    folder : str
        Absolute path on the host.

    Raises
    ------
    ConfigError
        Another user could add jobs, or read data of the jobs.
    """
    done = await transport.run(["/bin/sh", "-c", _SCRIPT, "sh", folder.rstrip("/") or "/"])
    me, *lines = done.stdout.decode("utf-8", "surrogateescape").split("\n")
    seen = [found.groups() for line in lines if (found := _LINE.fullmatch(line))]
    if done.exit_code or not me.isdigit() or not seen:
        raise TransportError(
            f"The remote shell does not report the owner of {folder}.",
            hint="Ask the administrators for coreutils (stat, id) on the cluster.",
        )
    for owner, bits, path in seen:
        mode = int(bits, 16)
        if owner not in (me, "0"):
            raise _foreign_folder_error(folder, f"{path} belongs to another user (uid {owner})")
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX and not stat.S_ISLNK(mode):
            raise _foreign_folder_error(folder, f"all users can write to {path}")


def _foreign_folder_error(folder: str, reason: str) -> ConfigError:
    return ConfigError(
        printable(f"Jobs cannot be kept in {folder}: {reason}."),
        hint='Set a directory of your own in the profile: [slurm] job_root = "~/…".',
    )
