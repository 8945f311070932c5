"""Visibility of a local path on the compute nodes, as far as this machine can tell."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable

__all__ = ["visibility_warning"]

_SHARED_FILE_SYSTEMS = frozenset(
    [
        "9p",
        "afs",
        "beegfs",
        "ceph",
        "cifs",
        "cvmfs",
        "fuse.cephfs",
        "fuse.cvmfs",
        "fuse.glusterfs",
        "fuse.sshfs",
        "glusterfs",
        "gpfs",
        "lustre",
        "mmfs",
        "nfs",
        "nfs4",
        "orangefs",
        "panfs",
        "pvfs2",
        "smb3",
        "wekafs",
    ]
)
_NODE_FOLDERS = ("/usr/", "/bin/", "/opt/")


def file_system_type(path: str, mounts: str) -> str:
    """Return the type of the file system that holds a path.

    Parameters
    ----------
    path : str
        Absolute path.
    mounts : str
        Text of /proc/self/mounts (proc(5)).
    """
    best, kind = "", ""
    for line in mounts.splitlines():
        fields = line.split(" ")
        if len(fields) < 3:
            continue
        point = fields[1].encode("latin-1", "replace").decode("unicode_escape", "replace")
        if (path == point or path.startswith(point.rstrip("/") + "/")) and len(point) >= len(best):
            best, kind = point, fields[2]
    return kind


def visibility_warning(path: str, hosts: Iterable[str], local_text: str, mounts: str) -> str | None:
    """Return a reason why the nodes may not see a program of this machine; None: no such reason.

    Parameters
    ----------
    path : str
        Path of the program.
    hosts : iterable of str
        Host names of the nodes.
    local_text : str
        Host name of this machine.
    mounts : str
        Text of /proc/self/mounts.
    """
    short = local_text.split(".")[0]
    if all(host.split(".")[0] in (short, "localhost") for host in hosts):
        return None
    path = posixpath.normpath(path)
    kind = file_system_type(path, mounts)
    if not kind or kind in _SHARED_FILE_SYSTEMS or path.startswith(_NODE_FOLDERS):
        return None
    return (
        f"{path} lies on a local file system ({kind}) of {short}, so the nodes may not have it. "
        "Give python=PATH with a Python that the nodes see, in your home directory or "
        "/usr/bin/python3."
    )
