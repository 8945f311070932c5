"""Files that decide what this computer runs or trusts: other users must not be able to change them.

As OpenSSH does for ``~/.ssh/config`` (ssh(1), FILES), and in addition for the folders above the file, in which another
user could put another file in its place.
"""

from __future__ import annotations

import os
import stat
import sys

from jupyter_slurm.errors import ConfigError

__all__ = ["check_trusted"]

_MAX_LINKS = 40


def check_trusted(path: str, subject: str, *, with_folders: bool = True) -> None:
    """Refuse a file that another user can change; a missing file is not refused.

    Parameters
    ----------
    path : str
        Path of the file.
    subject : str
        Name of the file in the error, for example "The SSH configuration".
    with_folders : bool
        Whether the folders above the file count as well.

    Raises
    ------
    ConfigError
        The file, a link to it or a folder above it belongs to another user, or others may write to it.
    """
    if hasattr(os, "geteuid") and not _is_installed(path):
        found = _first_untrusted(os.path.abspath(path), with_folders=with_folders)
        if found is not None:
            where, why, remedy = found
            raise ConfigError(
                f"{subject} {path} is not used: {where} {why}, who could have commands run on this computer.",
                hint=remedy,
            )


def _is_installed(path: str) -> bool:
    """Return whether a file belongs to the installation of this program, and not everybody can change it.

    The owner, and the group, of an installation can change the program anyway.
    """
    place, prefix = os.path.realpath(path), os.path.realpath(sys.prefix)
    if not place.startswith(prefix + os.sep):
        return False
    while place != prefix:
        if _is_open_to_all(place):
            return False
        place = os.path.dirname(place)
    return True


def _is_open_to_all(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    is_sticky_folder = stat.S_ISDIR(mode) and mode & stat.S_ISVTX
    return bool(mode & stat.S_IWOTH) and not is_sticky_folder


def _first_untrusted(path: str, *, with_folders: bool) -> tuple[str, str, str] | None:
    """Return the first file or folder on the way to a file that others can change, why, and the remedy."""
    for _ in range(_MAX_LINKS):
        parent, is_link = os.path.realpath(os.path.dirname(path)), os.path.islink(path)
        for place in (path, *(_folders(parent) if with_folders else ())):
            if (found := _untrusted(place)) is not None:
                return place, *found
        if not is_link:
            return None
        path = os.path.join(parent, os.readlink(path))
    return None


def _folders(path: str) -> list[str]:
    """Return a folder and the folders above it, up to the home of the user (as sshd(8), StrictModes)."""
    home, found = os.path.realpath(os.path.expanduser("~")), [path]
    while path != home and (above := os.path.dirname(path)) != path:
        path = above
        found.append(path)
    return found


def _untrusted(path: str) -> tuple[str, str] | None:
    """Return why another user can change a file, or the entries of a folder, and the remedy; None: nobody can."""
    try:
        about = os.lstat(path)
    except OSError:
        return None
    if about.st_uid not in (0, os.geteuid()):
        return (
            f"belongs to another user (uid {about.st_uid})",
            f"Copy the file into a folder of your own, or make it yours: `sudo chown {os.geteuid()} {path}`.",
        )
    if stat.S_ISCHR(about.st_mode):
        return None  # /dev/null, in place of a list of known hosts
    if stat.S_ISLNK(about.st_mode) or (stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX):
        return None  # in a folder with the sticky bit, only the owner of a file can replace it
    if about.st_mode & stat.S_IWOTH or (about.st_mode & stat.S_IWGRP and not _is_private_group(about.st_gid)):
        return "can be changed by other users", f"Run `chmod go-w {path}`."
    return None


def _is_private_group(group: int) -> bool:
    """Return whether a group has no other member than this user, as the personal groups of many systems."""
    import grp
    import pwd

    try:
        own = pwd.getpwuid(os.geteuid())
        named = grp.getgrgid(group)
    except KeyError:
        return False
    # The members by primary group are not listed with the group. A personal group has the name of its user.
    return own.pw_gid == group and named.gr_name == own.pw_name and set(named.gr_mem) <= {own.pw_name}
