"""Folder of environments: ``NAME`` is a link to ``.made/HASH.RANDOM``.

An environment is made under a random name, because it cannot be moved, and appears when its name is linked to it. HASH
is that of the request: a second environment with the same packages is a second link. ``python store.py
list|link|remove`` prints JSON on the host of sbatch; the request is read from stdin.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
import time
from typing import Iterable, Iterator, TypedDict

MADE = ".made"
NOTE = "jupyter_slurm.json"
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
_HASH = re.compile(r"[0-9a-f]{16}")
_PLACE = re.compile(r"[0-9a-f]{16}\.[0-9a-f]{8}")
_MAX_NOTE_BYTES = 16_384
_MAX_ENVIRONMENTS = 1000
_MAX_ATTEMPTS = 6
_MAX_TEXT = 3000  # characters
_UNUSED_S = 14 * 86400.0  # seconds after which an environment without a name is removed; pending jobs may use it
_LEFTOVERS = (".attempts", ".json")  # of builds that reached no index, and of requests that no command has read
_LEFTOVER_FOLDERS = (".files.", ".removed.")  # of commands and removals that were killed
_TEXTS = ("tool", "python", "source", "hash", "job", "driver", "failed_imports")
_NUMBERS = ("made", "packages", "cuda", "min_driver")


class EnvironmentNote(TypedDict, total=False):
    """Note in an environment, and its place."""

    name: str
    path: str
    tool: str
    python: str
    source: str
    hash: str
    job: str
    driver: str
    failed_imports: str
    made: float
    packages: int
    cuda: int
    min_driver: int


def open_store(folder: str) -> str:
    """Create the folder, for its user only; return its folder of environments without names.

    Raises
    ------
    OSError
        The folder cannot be used, or belongs to another user.
    """
    made = os.path.join(folder, MADE)
    for path in (folder, made):
        os.makedirs(path, mode=0o700, exist_ok=True)
        if os.lstat(path).st_uid != os.geteuid() or os.path.islink(path):
            raise PermissionError(1, "it belongs to another user, or is a link", path)
    return made


def find_created(folder: str, request_hash: str) -> str:
    """Return the complete environment with a hash, the latest if there are several; empty: there is none."""
    made = os.path.join(folder, MADE)
    paths = [os.path.join(made, name) for name in _names(made) if name.partition(".")[0] == request_hash]
    complete = [path for path in paths if _PLACE.fullmatch(os.path.basename(path)) and read_note(path)]
    return max(complete, key=lambda path: read_note(path).get("made", 0.0), default="")


def link(folder: str, name: str, path: str) -> None:
    """Give an environment a name, in place of the environment that had it."""
    final, draft = os.path.join(folder, name), os.path.join(folder, MADE, f".link.{os.urandom(8).hex()}")
    before = os.path.join(folder, _target(folder, name))
    os.symlink(os.path.join(MADE, os.path.basename(path)), draft)
    try:
        os.replace(draft, final)
    except OSError:
        os.unlink(draft)
        raise
    with contextlib.suppress(OSError):
        if before != os.path.join(folder, ""):
            os.utime(before)  # from now on without a name, if no other one leads to it
    remove_unused(folder)


def remove_unused(folder: str) -> None:
    """Remove environments that have had no name for two weeks, and incomplete ones."""
    used = {_target(folder, name) for name in _names(folder)}
    for name in _names(os.path.join(folder, MADE)):
        path = os.path.join(folder, MADE, name)
        with contextlib.suppress(OSError):
            is_old = time.time() - os.lstat(path).st_mtime > _UNUSED_S
            is_unused = _PLACE.fullmatch(name) and os.path.join(MADE, name) not in used
            if is_old and (is_unused or name.startswith(_LEFTOVER_FOLDERS)):
                shutil.rmtree(path, ignore_errors=True)
            elif is_old and name.endswith(_LEFTOVERS):
                os.unlink(path)


def remove_incomplete(folder: str, request_hash: str) -> None:
    """Remove the environments with a hash that killed builds have left. The caller holds the lock of the hash."""
    used = {_target(folder, name) for name in _names(folder)}
    for name in _names(os.path.join(folder, MADE)):
        path = os.path.join(folder, MADE, name)
        if not _PLACE.fullmatch(name) or name.partition(".")[0] != request_hash or os.path.join(MADE, name) in used:
            continue
        try:
            os.lstat(os.path.join(path, NOTE))
        except FileNotFoundError:
            aside = os.path.join(folder, MADE, f".removed.{os.urandom(8).hex()}")
            with contextlib.suppress(OSError):
                os.rename(path, aside)  # a build that continues without its lock fails
                shutil.rmtree(aside, ignore_errors=True)
        except OSError:
            pass  # the note cannot be read now


def add_attempt(made: str, request_hash: str, place: str, index: str) -> list[tuple[str, str]]:
    """Remember that a host did not reach an index; return the hosts with the indexes, without repetition."""
    path = os.path.join(made, f"{request_hash}.attempts")
    with open(path, "a+", encoding="utf-8", errors="replace") as file:
        file.write(f"{place}\t{index}\n")
        file.seek(0)
        lines = file.read(_MAX_NOTE_BYTES).splitlines()
    known = {place: address for place, _, address in (line.partition("\t") for line in lines) if place}
    return list(known.items())[-_MAX_ATTEMPTS:]


def read_note(path: str) -> EnvironmentNote:
    """Return the valid fields of the note that completes an environment."""
    kept: EnvironmentNote = {}
    try:
        with open(os.path.join(path, NOTE), encoding="utf-8", errors="replace") as file:
            told = json.loads(file.read(_MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return kept
    if not isinstance(told, dict):
        return kept
    for field in _TEXTS:
        if isinstance(told.get(field), str):
            kept[field] = told[field][:_MAX_TEXT]  # type: ignore[literal-required]
    for field in _NUMBERS:
        if isinstance(told.get(field), (int, float)) and 0 <= told[field] < 1e18:
            kept[field] = told[field]  # type: ignore[literal-required]
    return kept


def write_note(path: str, note: EnvironmentNote) -> None:
    """Write the note that completes an environment."""
    draft = os.path.join(path, f".{NOTE}.{os.urandom(4).hex()}")
    with open(draft, "w", encoding="utf-8") as file:
        json.dump({"format": 1, "made": time.time(), **note}, file)
    os.replace(draft, os.path.join(path, NOTE))


def list_environments(folder: str) -> Iterator[EnvironmentNote]:
    """Yield the named environments, each with its note."""
    for name in _names(folder)[:_MAX_ENVIRONMENTS]:
        if target := _target(folder, name):
            path = os.path.join(folder, target)
            yield {"name": name, "path": path, **read_note(path)}


def find_used(folder: str, name: str, paths: Iterable[str]) -> list[str]:
    """Return those paths that lead to a named environment, by whatever links."""
    target = _target(folder, name)
    real = os.path.realpath(os.path.join(folder, target))
    return [path for path in paths if target and os.path.realpath(path) == real]


def remove(folder: str, name: str) -> list[str]:
    """Remove a name, and its environment unless another name leads to it; return the removed paths."""
    target = _target(folder, name) if NAME.fullmatch(name) else ""
    if not target:
        return []
    os.unlink(os.path.join(folder, name))
    removed = [os.path.join(folder, name)]
    if target not in {_target(folder, other) for other in _names(folder)}:
        path = os.path.join(folder, target)
        shutil.rmtree(path, ignore_errors=True)
        removed.append(path)
    return removed


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder))
    return []


def _target(folder: str, name: str) -> str:
    """Return the place of a named environment, below the folder; empty: the name is no link of this program."""
    if not NAME.fullmatch(name):
        return ""
    try:
        head, _, place = os.readlink(os.path.join(folder, name)).rpartition("/")
    except OSError:
        return ""
    return os.path.join(MADE, place) if head == MADE and _PLACE.fullmatch(place) else ""


def main() -> int:
    """Answer a request on the host of sbatch."""
    asked = json.load(sys.stdin)
    folder = str(asked["folder"])
    if sys.argv[1] == "link" and (path := find_created(folder, str(asked["hash"]))):
        link(folder, str(asked["name"]), path)
    used = find_used(folder, str(asked["name"]), asked["used"]) if sys.argv[1] == "remove" else []
    removed = remove(folder, str(asked["name"])) if sys.argv[1] == "remove" and not used else []
    json.dump({"environments": list(list_environments(folder)), "used": used, "removed": removed}, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
