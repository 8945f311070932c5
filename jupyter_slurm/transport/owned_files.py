"""Files that no other user can have written: the owner is looked at after the file was opened, not before.

Another user who can write to a folder above a file may put a folder of the same name in the place of its folder, at any
moment. So the folder is entered first and then looked at, as are all folders above it, and the file is opened once, by
its name in that folder.
"""

from __future__ import annotations

import errno
import os
import stat
from typing import Final

from jupyter_slurm.errors import UntrustedFile

__all__ = ["ENTER_OWNED_FOLDER", "UNTRUSTED", "read_owned_file", "untrusted_file"]

UNTRUSTED: Final = 77
"""Exit code of the shell functions for what other users can have written; the reason is their last line."""

# js_enter FOLDER enters a folder, js_opened NAME checks standard input. What is looked at is where the shell is (., ..,
# ../..), and each folder on the path as named: symbolic links have owners as well. A group may write to the folders
# above, because sites create project folders so; what its members put there belongs to them, and is refused. An access
# control list needs no look of its own: the bits of the group are then its mask.
ENTER_OWNED_FOLDER: Final = r"""
js_me=
js_bad() { printf '%s\n' "$1" >&2; return 77; }
js_look() {
  js_owner=${1%%:*} js_mode=$((0x${1#*:}))
  if [ "$js_owner" != "$js_me" ] && [ "$js_owner" != "$3" ]; then
    js_bad "$2 belongs to another user (uid $js_owner)"
  elif [ $((js_mode & 0170000)) = $((0120000)) ]; then :
  elif [ $((js_mode & $4)) != 0 ] && [ $((js_mode & $5)) = 0 ]; then js_bad "other users can write to $2"
  fi
}
js_enter() {
  CDPATH= cd -P -- "$1" >/dev/null 2>&1 || { LC_ALL=C ls -d -- "$1/." >/dev/null; return 1; }
  js_me=${js_me:-$(id -u)} js_at=$1 js_up=. js_under=$PWD
  set -- .
  while [ "$js_under" != / ] && [ -n "$js_under" ]; do
    js_up=$js_up/.. js_under=${js_under%/*}
    set -- "$@" "$js_up"
  done
  while [ "$js_at" != / ] && [ -n "$js_at" ]; do
    set -- "$@" "$js_at"
    js_at=${js_at%/*}
  done
  js_seen=$(LC_ALL=C stat -c '%u:%f' -- "$@") || return 1
  js_under=$PWD
  for js_one in $js_seen; do
    case $1 in
      .) js_look "$js_one" "the folder $PWD" "$js_me" 022 0 || return; js_open=$((js_mode & 011)) ;;
      ./*) js_under=${js_under%/*}; js_look "$js_one" "${js_under:-/}" 0 02 01000 || return ;;
      *) js_look "$js_one" "$1" 0 02 01000 || return ;;
    esac
    shift
  done
}
js_opened() {
  js_one=$(LC_ALL=C stat -L -c '%u:%f' /proc/self/fd/0) || return 1
  js_look "$js_one" "$1" "$js_me" $((js_open << 1)) 0 || return
  [ $((js_mode & 0170000)) = $((0100000)) ] || js_bad "$1 is not a regular file"
}
"""


def untrusted_file(path: str, reason: str) -> UntrustedFile:
    """Return the error about a file that other users can have written."""
    return UntrustedFile(
        f"{path} is not read: {reason}.",
        hint="Ask the owner to correct it (chown, chmod go-w), choose a directory of your own as job_root, or run the "
        "cell again.",
        path=path,
        reason=reason,
    )


def read_owned_file(path: str, offset: int, limit: int | None) -> bytes:
    """Read a file of this computer that no other user can have written; see the module.

    Raises
    ------
    UntrustedFile
        Its folder or the file belongs to another user, or other users can write to it.
    OSError
        It cannot be read.
    """
    folder, name = os.path.split(path)
    place = os.open(folder or "/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        entered = os.fstat(place)
        _check(path, f"the folder {folder}", entered, 0o022)
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=place)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise untrusted_file(path, f"{name} is a symbolic link") from None
            raise
    finally:
        os.close(place)
    with open(file, "rb") as opened:
        found = os.fstat(file)
        # Nobody else reaches a file in a private folder, whatever its own mode is.
        _check(path, name, found, (entered.st_mode & 0o011) << 1)
        if not stat.S_ISREG(found.st_mode):
            raise untrusted_file(path, f"{name} is not a regular file")
        opened.seek(offset)
        return opened.read(-1 if limit is None else limit)


def _check(path: str, name: str, found: os.stat_result, shared: int) -> None:
    if found.st_uid != os.geteuid():
        raise untrusted_file(path, f"{name} belongs to another user (uid {found.st_uid})")
    if found.st_mode & shared:
        raise untrusted_file(path, f"other users can write to {name}")
