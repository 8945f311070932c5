"""Space in directories of a cluster: the script that asks df and the tools for quotas, and the parser of its answer."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from jupyter_slurm.domain.storage.quotas import (
    Quota,
    parse_beegfs,
    parse_df,
    parse_gpfs,
    parse_lustre,
    parse_quota,
    parse_xfs,
)

__all__ = ["DISK_SPACE_SCRIPT", "DiskSpace", "FolderQuota", "find_shortage", "parse_quotas", "parse_room"]

_TOOL_TIMEOUT_S: Final = 10  # seconds: a tool queries file servers, and a server may not answer
_MAX_ANSWER_BYTES: Final = 65536  # of one tool

DISK_SPACE_SCRIPT: Final = f"""LC_ALL=C; PATH=$PATH:/usr/sbin:/sbin:/usr/lpp/mmfs/bin; export LC_ALL PATH
ask() {{ timeout -k 1 {_TOOL_TIMEOUT_S} "$@" </dev/null 2>/dev/null | tr -d '\\000' | head -c {_MAX_ANSWER_BYTES}; }}
tell() {{
  tool=$1 owner=$2 place=$3; shift 3
  command -v "$1" >/dev/null 2>&1 || return 0
  printf '%s\\0%s\\0%s\\0' "$tool" "$owner" "$place"; ask "$@"; printf '\\0'
}}
user=$(id -un) group=$(id -gn)
tell quota '' '' quota -wp
tell groups '' '' quota -wpg
tell gpfs '' '' mmlsquota -Y
for folder do
  mount=$(ask stat -c %m -- "$folder")
  case $mount in /*) ;; *) continue ;; esac
  tell df '' "$folder" df -Pk -- "$folder"
  tell inodes '' "$folder" df -Pi -- "$folder"
  tell xfs "user $user" "$folder" xfs_quota -c 'quota -N -v -b -i' "$mount"
  tell beegfs '' "$folder" beegfs-ctl --getquota --uid "$(id -u)" --csv --mount="$mount"
  command -v lfs >/dev/null 2>&1 || continue
  tell lustre "user $user" "$folder" lfs quota -q -u "$user" "$folder"
  tell lustre "group $group" "$folder" lfs quota -q -g "$group" "$folder"
  project=$(ask lfs project -d "$folder" | {{ read -r number _; printf %s "$number"; }})
  case $project in ''|0|*[!0-9]*) continue ;; esac
  tell lustre "project $project" "$folder" lfs quota -q -p "$project" "$folder"
done
:
"""
"""Shell text that prints the input of :func:`parse_quotas` for the directories in its arguments (absolute paths)."""

_ORIGINS: Final = {"": "free", "user": "left of your quota", "project": "left of the quota of its project"}
_OWNERS_OF_FOLDER: Final = re.compile(r"|user(?!.* in fileset ).*|project .*", re.DOTALL)

_MOUNT: Final = re.compile(r"\s(?:[0-9]{1,4}%|-)\s+(/.*)$")  # in the last line of df

_Answers = Mapping[tuple[str, str, str], str]  # by tool, owner and directory


class DiskSpace(NamedTuple):
    """Bytes that may still be written; ``description`` names their origin: a disk or a quota."""

    free: int
    description: str


class FolderQuota(NamedTuple):
    """Disk or quota that limits a directory; ``folder`` is empty for a quota of another file system."""

    folder: str
    tool: str
    quota: Quota


def parse_quotas(text: str, folders: Sequence[str]) -> list[FolderQuota]:
    """Return what limits the directories, in their order; then quotas with a limit of other file systems.

    A disk or quota that limits several directories is listed for the first one.
    """
    answers = dict(_sections(text))
    general = [("quota", one) for tool in ("quota", "groups") for one in parse_quota(answers.get((tool, "", ""), ""))]
    general += [("GPFS", one) for one in parse_gpfs(answers.get(("gpfs", "", ""), ""))]
    found: dict[tuple[str, str, str, str], FolderQuota] = {}
    for folder in folders:
        blocks = answers.get(("df", "", folder), "")
        disk = parse_df(blocks, answers.get(("inodes", "", folder), ""))
        if disk is None:
            continue
        here = [(tool, one) for tool, one in general if _device(one.file_system) == _device(disk.file_system)]
        mount = "" if here or _is_device(disk.file_system) else _mount_point(blocks)
        for tool, one in [("disk", disk), *here, *_of_folder(answers, folder, disk, has_quota=bool(here))]:
            found.setdefault((tool, disk.file_system, mount, one.owner), FolderQuota(folder, tool, one))
    known = {id(one.quota) for one in found.values()}
    others = [FolderQuota("", tool, one) for tool, one in general if one.limit and id(one) not in known]
    return [*found.values(), *others]


def parse_room(text: str, folder: str) -> DiskSpace | None:
    """Return the space in a directory, by its disk or a quota of the user or its project; None if unknown.

    Quotas of groups and filesets do not count: the directory may belong to another group or fileset.
    """
    return min((room for _, room in _rooms(parse_quotas(text, [folder]))), default=None)


def find_shortage(found: Sequence[FolderQuota], least: float) -> tuple[str, DiskSpace] | None:
    """Return the directory with the least space, and the space, if that is less than ``least`` bytes."""
    room, folder = min(((room, folder) for folder, room in _rooms(found)), default=(None, ""))
    return None if room is None or room.free >= least else (folder, room)


def _rooms(found: Iterable[FolderQuota]) -> Iterator[tuple[str, DiskSpace]]:
    for folder, _, one in found:
        if folder and one.free is not None and _OWNERS_OF_FOLDER.fullmatch(one.owner):
            yield folder, DiskSpace(one.free, _ORIGINS[one.owner.partition(" ")[0]])


def _sections(text: str) -> Iterator[tuple[tuple[str, str, str], str]]:
    parts = text.split("\0")
    for tool, owner, folder, answer in zip(parts[::4], parts[1::4], parts[2::4], parts[3::4], strict=False):
        yield (tool, owner, folder), answer


def _of_folder(answers: _Answers, folder: str, disk: Quota, *, has_quota: bool) -> Iterator[tuple[str, Quota]]:
    """Yield the quotas of tools that are asked about each directory; quota(1) knows those of XFS, too."""
    for (tool, owner, place), answer in answers.items():
        if place != folder:
            continue
        if tool == "lustre":
            found = [("Lustre", one) for one in parse_lustre(answer, owner)]
        elif tool == "xfs" and not has_quota:
            found = [("XFS", one) for one in parse_xfs(answer, owner)]
        else:
            found = [("BeeGFS", one) for one in parse_beegfs(answer)] if tool == "beegfs" else []
        for name, one in found:
            yield name, one._replace(file_system=one.file_system or disk.file_system)


def _device(name: str) -> str:
    """Return the name of a file system as df and the tools agree on: GPFS is ``gpfs0`` or ``/dev/gpfs0``."""
    return name if ":" in name else posixpath.basename(name) or name


def _is_device(name: str) -> bool:
    """Return whether a name stands for one file system: BeeGFS is always ``beegfs_nodev``, and tmpfs ``tmpfs``."""
    return "/" in name or ":" in name


def _mount_point(blocks: str) -> str:
    found = _MOUNT.search(blocks.strip().rpartition("\n")[2])
    return found[1] if found else ""
