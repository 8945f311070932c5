"""The side of a transfer on a cluster, by scripts for the POSIX shell of its login node or its host for transfers."""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Sequence
from typing import Final

from jupyter_slurm.domain.staging_rules import PARTIAL_FOLDER_NAME
from jupyter_slurm.domain.storage.transfer_rules import Entry, parse_entries
from jupyter_slurm.errors import CommandError, ParseError, UsageError
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.staging.cluster_paths import expand_path
from jupyter_slurm.services.transfers.sides import Destination, Group, Item
from jupyter_slurm.transport.base import Completed, Transport

__all__ = ["ClusterSide"]

# Names stand on standard input: a pattern of a shell finds more of them than a command line can have.
_RESOLVE: Final = r"""
exec xargs -0 -r sh -c '
can_read() { [ -e "$1" ] && [ -r "$1" ]; }
all=1
for path do can_read "$path" || all=; done
[ -z "$all" ] || exec readlink -fz -- "$@"  # a process for each would take minutes
for path do can_read "$path" && readlink -fz -- "$path" || printf "%s\0" ""; done' sh
"""
# The answer: whether the sources keep their names, and whether files were received before.
_PREPARE: Final = r"""
dest=$1 parent=$2 name=$3 many=$4 keeps=
if [ -n "$many" ] && [ ! -e "$dest" ]; then mkdir -p -- "$dest" || exit; fi
[ -d "$dest" ] && keeps=1 parent=$dest
[ -n "$keeps" ] || [ -z "$many" ] || { echo "$dest is not a directory" >&2; exit 1; }
[ -e "$parent" ] || { echo "the directory $parent does not exist" >&2; exit 1; }
[ -d "$parent" ] || { echo "$parent is not a directory" >&2; exit 1; }
if [ -d "$parent/$name" ] && [ ! -L "$parent/$name" ] && [ -O "$parent/$name" ]; then echo "$keeps resumed"; exit; fi
echo "$keeps "
"""
_LIST: Final = r"""
cd -- "$1" && find . -maxdepth 0 -printf '' || exit
exec xargs -0 -r sh -c '
find "$@" -type d ! "(" -readable -executable ")" -printf "! %s %T@ %p\0\0" -prune \
  -o -printf "%y %s %T@ %p\0%l\0" 2>/dev/null; :' sh
"""
# An earlier run may have left directories that their owner may not write: cp, mv and rm could not continue.
_MAKE: Final = r"""
if [ -d "$1" ] && [ ! -L "$1" ] && [ -O "$1" ]; then
  find "$1" -type d ! -perm -700 -exec chmod u+rwx -- {} \; || exit
fi
for path do
  { [ -d "$path" ] && [ ! -L "$path" ] && [ -O "$path" ]; } || mkdir -m 700 -- "$path" || exit
done
"""
_DROP: Final = r"""
cd -- "$1" && exec xargs -0 -r rm -rf --
"""
_RENAME: Final = r"""
cd -- "$1" || exit
exec xargs -0 -r -n 200 sh -c '
while [ $# -gt 1 ]; do
  [ ! -e "$1" ] || { rm -rf -- "$2" && mv -- "$1" "$2"; } || exit  # $2: of an interrupted run
  shift 2
done' sh
"""
# Names are moved one directory at a time, whole directories first. What stays has met a file of the same name. Only
# directories that their owner may write can be moved: new ones get their modes back at the end.
_FINISH: Final = r"""
base=$1 received=$2 flag=$3
cd -- "$received" && rm -rf -- "./$4" || exit
find . -type d ! -perm -700 -exec sh -c '
  [ -e "$1/$2" ] || stat --printf "%a %n\0" -- "$2" || exit
  exec chmod u+rwx -- "$2"' sh "$base" {} \; >> "$received.modes" || exit
xargs -0 -r sh -c '
  base=$1; shift
  for name do
    if { [ -e "$name" ] || [ -L "$name" ]; } && [ ! -e "$base/$name" ] && [ ! -L "$base/$name" ]; then
      printf "%s\0" "$name"
    fi
  done' sh "$base" | xargs -0 -r mv -n -t "$base/" -- || :
find . -type d -print0 | xargs -0 sh -c '
  base=$1 flag=$2; shift 2
  for dir do
    [ -d "$base/$dir" ] || mkdir -m "$(stat -c %a -- "$dir")" -- "$base/$dir" || exit
    find "$dir" -maxdepth 1 ! -type d -exec mv "$flag" -t "$base/$dir" -- {} + || [ "$flag" = -n ] || exit
  done' sh "$base" "$flag" || exit
xargs -0 -r sh -c '
  base=$1; shift
  for line do
    dir=$base/${line#* }
    [ ! -d "$dir" ] || [ -L "$dir" ] || chmod "${line%% *}" -- "$dir"
  done' sh "$base" < "$received.modes"
find . ! -type d -exec sh -c '
  base=$1; shift
  for name do
    [ -e "$base/$name" ] || [ -L "$base/$name" ] || { echo "$base/$name was not written" >&2; exit 1; }
    printf "%s\0" "$name"
  done' sh "$base" {} +
"""

_DF_TIMEOUT_S: Final = 60.0
_FREE: Final = re.compile(r"\s(\d{1,18})\s+\d+%\s")


class ClusterSide:
    """Files of a cluster.

    Parameters
    ----------
    transport : Transport
        Transport to the host that carries the files.
    host : str
        Its name in messages.
    login : Transport
        Transport to the login node, whose variables stand in paths.
    location : ClusterLocation
        Location of the cluster, with its home.
    """

    def __init__(self, transport: Transport, host: str, login: Transport, location: ClusterLocation) -> None:
        self.transport, self.host, self.login, self.location = transport, host, login, location

    async def path(self, path: str) -> str:
        """Return an absolute path: names are relative to the home, and variables are those of the cluster."""
        if path == "~":
            path = "~/"
        expanded = await expand_path(path, self.location, self.login)
        return posixpath.normpath(posixpath.join(self.location.home, expanded))

    async def resolve(self, sources: Sequence[str]) -> list[Item]:
        """Return the sources; see :class:`Side`."""
        paths = [await self.path(source) for source in sources]
        found = decode_output((await self._run("read", _RESOLVE, names=paths)).stdout).split("\0")
        if len(found) != len(paths) + 1:
            raise ParseError(f"The answer of {self.host} about the files could not be read.")
        items = []
        for path, real in zip(paths, found, strict=False):
            folder, name = posixpath.split(real)
            if name in ("", ".", "..") or not real.startswith("/"):  # a cluster may answer anything
                raise UsageError(
                    f"{printable(path)} on {self.host} does not exist, or you may not read it.",
                    hint=f"List the directory: `%slurm ls {shlex.quote(printable(posixpath.dirname(path)))}`.",
                )
            items.append(Item(folder, name, posixpath.basename(path) or name))
        return items

    async def prepare(self, dest: str, count: int, partial: str) -> Destination:
        """Make the destination; see :class:`Side`."""
        path = await self.path(dest)
        parent, name = posixpath.split(path)
        many = "1" if count > 1 or dest.endswith("/") else ""
        done = await self._run("write to", _PREPARE, path, parent, partial, many)
        keeps, _, resumed = decode_output(done.stdout).partition(" ")
        folder = path if keeps else parent
        joined = posixpath.join(folder, partial)
        return Destination(folder, joined, None if keeps else name, is_resumed=bool(resumed.strip()))

    async def list_files(self, folder: str, names: Sequence[str]) -> dict[str, Entry]:
        """Return everything below these names; see :class:`Side`."""
        done = await self._run("list", _LIST, folder, names=[f"./{name}" for name in names])
        try:
            return await call_off_loop(parse_entries, done.stdout)
        except ValueError:
            raise ParseError(f"The list of files of {self.host} could not be read.") from None

    async def make(self, dest: Destination, groups: Sequence[Group]) -> None:
        """Make the directories that receive files."""
        await self._run("write to", _MAKE, dest.partial, *(group.received for group in groups))

    async def drop(self, folder: str, paths: Sequence[str]) -> None:
        """Remove received entries; see :class:`Side`."""
        await self._run("write to", _DROP, folder, names=[f"./{path}" for path in paths])

    async def finish(self, dest: Destination, groups: Sequence[Group], *, overwrite: bool) -> list[str]:
        """Move received files to the destination; see :class:`Side`."""
        met = list[str]()
        for group in groups:
            finals = [f"./{final}" for final in group.names.values()]
            renamed = [f"./{word}" for pair in group.names.items() if pair[0] != pair[1] for word in pair]
            if renamed:
                await self._run("write to", _RENAME, group.received, names=renamed)
            args = (dest.folder, group.received, "-f" if overwrite else "-n", PARTIAL_FOLDER_NAME)
            done = await self._run("write to", _FINISH, *args, names=finals)
            met += [path.removeprefix("./") for path in decode_output(done.stdout).split("\0")[:-1]]
        await self.transport.remove(dest.partial)
        return met

    async def check_room(self, dest: Destination, needed: int) -> None:
        """Refuse a transfer that the file system has no room for; what an earlier run has sent takes room already.

        A quota is checked by the cluster, while it writes.
        """
        if dest.is_resumed:
            return
        done = await self.transport.run(["df", "-Pk", "--", dest.folder], timeout=_DF_TIMEOUT_S)
        found = _FREE.search(decode_output(done.stdout))
        if found is None or needed <= (free := int(found[1]) * 1024):
            return
        raise UsageError(
            f"{needed / 1e6:.1f} MB would be copied to {printable(dest.folder)} on {self.host}, but only "
            f"{free / 1e6:.1f} MB are free.",
            hint="Look at `%slurm room`, and free some space, or choose another destination.",
        )

    async def discard(self, dest: Destination) -> None:
        """Remove what was received."""
        await self.transport.remove(dest.partial)

    async def _run(self, verb: str, script: str, *args: str, names: Sequence[str] = ()) -> Completed:
        """Run a script, with names on its standard input."""
        raw = "".join(f"{name}\0" for name in names).encode("utf-8", "surrogateescape")
        done = await self.transport.run(["/bin/sh", "-c", script, "sh", *args], stdin=raw, timeout=None)
        if done.exit_code:
            said = printable(decode_output(done.stderr)).strip()[:500]
            raise CommandError(
                f"Cannot {verb} the directory on {self.host}: {said or f'exit code {done.exit_code}'}",
                hint="Check the path, its permissions and your quota: `%slurm room`.",
            )
        return done
