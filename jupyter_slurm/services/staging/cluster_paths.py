"""Directories of a cluster that a profile or a keyword names, with variables of the login node in them."""

from __future__ import annotations

import posixpath
import re

from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.base import Transport

__all__ = ["copy_directory", "expand_path", "first_directory"]

_VARIABLE = re.compile(r"\$(?:([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)\})")
_VALUES = 'for name; do printf "%s\\0" "$(printenv -- "$name")"; done'


async def expand_path(path: str, location: ClusterLocation, transport: Transport) -> str:
    """Return a path with the home directory and the variables of the cluster inserted.

    Raises
    ------
    UsageError
        A variable is not set.
    """
    if path.startswith("~/"):
        path = posixpath.join(location.home, path[2:])
    names = [first or second for first, second in _VARIABLE.findall(path)]
    if not names:
        return path
    done = await transport.run(["/bin/sh", "-c", _VALUES, "sh", *names])
    values = dict(zip(names, decode_output(done.stdout).split("\0"), strict=False))
    if missing := [name for name in names if not values.get(name)]:
        raise UsageError(
            f"{path}: {missing[0]} is not set on {location.host}.",
            hint="Write the path without the variable. If a start-up file sets the variable, set "
            "`login_shell = true` under [shell] in the profile.",
        )
    return _VARIABLE.sub(lambda found: values[found[1] or found[2]], path)


async def copy_directory(
    folder: str, digest: str, asked: str | None, location: ClusterLocation, transport: Transport
) -> str:
    """Return the directory of the copy of a staged folder: the requested one, or one below ``shared``.

    Raises
    ------
    UsageError
        The requested one is not absolute.
    """
    name = posixpath.basename(folder) or "root"
    shared = location.storage.get("shared") or posixpath.join(location.folder, "stage")
    dest = await expand_path(asked or posixpath.join(shared, f"{name}-{digest}"), location, transport)
    if not posixpath.isabs(dest):
        raise UsageError(
            f"{printable(dest)} is not a directory of {location.host}.",
            hint="Begin the destination of the folder with /, ~/ or a variable of the cluster.",
        )
    return posixpath.normpath(dest)


async def first_directory(location: ClusterLocation, transport: Transport) -> str:
    """Return the directory in which jobs begin by default: the home, or ``shared`` if the nodes do not see the home."""
    shared = location.storage.get("shared")
    if not location.is_remote or location.storage.get("home_on_nodes") is not False or not shared:
        return location.home
    path = await expand_path(shared, location, transport)
    await transport.make_dir(path)
    return path
