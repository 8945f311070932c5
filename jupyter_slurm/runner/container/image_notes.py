"""Inventory of images: in the shared folder, in Docker's stores of nodes, in folders of the site.

A job that fetches or builds an image writes a note beside the image. For an image in the store of a node, the note is a
hidden file. ``python image_notes.py list|used|remove`` prints JSON on the host of sbatch. The request is read from
stdin.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import runpy
import sys
import time
from typing import TYPE_CHECKING, Any, Iterable, Iterator, cast

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_document import ImageNote, ImageRemoval

KINDS = (".sif", ".sandbox", ".charliecloud")
_OF_SITES = (".sif", ".simg", ".img", ".sqfs", ".sqsh")
_NOTE = ".json"
_MAX_NOTE_BYTES = 16_384  # bytes of a note
_MAX_IMAGES = 1000  # listed images
_MAX_NAMES = 4000  # examined names in a folder
_LOCK_TIMEOUT_S = 600.0  # seconds without renewal after which a lock is free, with a margin for clocks that differ
_TEXTS = ("image", "runtime", "node", "source", "job", "user")


def write(path: str, **list_images: Any) -> None:
    """Write a note. Errors are ignored."""
    said = {"format": 1, "made": time.time(), "user": user(), "job": os.environ.get("SLURM_JOB_ID", ""), **list_images}
    draft = f"{path}.{os.urandom(4).hex()}"
    with contextlib.suppress(OSError):
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644), "w") as file:
                json.dump(said, file)
            os.replace(draft, path)
        except OSError:
            os.unlink(draft)


def of_store(folder: str, program: str, name: str) -> str:
    """Return the path of the note of an image in the store of this node; ``name`` is its file name."""
    return os.path.join(folder, f".{program}-{os.uname().nodename}-{name}{_NOTE}")


def of_file(path: str) -> str:
    """Return the path of the note of an image in the folder."""
    return path + _NOTE


def user() -> str:
    """Return the user name, or the user id if the system has no name."""
    with contextlib.suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())


def size_of(path: str) -> int:
    """Return the size of an image in bytes: of a file, or of all files in its folder."""
    total = 0
    with contextlib.suppress(OSError):
        total = os.lstat(path).st_size
    for top, _, names in os.walk(path):
        for name in names:
            with contextlib.suppress(OSError):
                total += os.lstat(os.path.join(top, name)).st_size
    return total


def _read(path: str) -> ImageNote:
    """Return the valid fields of a note, which another user may have written."""
    try:
        with open(path, encoding="utf-8", errors="replace", opener=_at_once) as file:
            list_images = json.loads(file.read(_MAX_NOTE_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(list_images, dict):
        return {}
    kept: dict[str, object] = {
        name: list_images[name][:500] for name in _TEXTS if isinstance(list_images.get(name), str)
    }
    for name in ("made", "size"):
        if isinstance(list_images.get(name), (int, float)) and 0 <= list_images[name] < 1e18:
            kept[name] = list_images[name]
    return cast("ImageNote", kept)


def _at_once(path: str, flags: int) -> int:
    """Open a file without blocking, in case another user has put a pipe in its place."""
    return os.open(path, flags | os.O_NONBLOCK)


def _names(folder: str) -> list[str]:
    with contextlib.suppress(OSError):
        return sorted(os.listdir(folder)[:_MAX_NAMES])
    return []


def list_images(folder: str) -> Iterator[ImageNote]:
    """Return the images of a folder of jupyter_slurm, and the images of nodes according to notes."""
    for name in _names(folder):
        path = os.path.join(folder, name)
        stem, kind = os.path.splitext(name)
        if kind in KINDS and not name.startswith("."):
            guess: ImageNote = {"image": stem.replace("%", "/").replace("+", ":"), "path": path}
            yield {**guess, **_facts(path), **_read(of_file(path))}
        elif name.startswith(".") and kind == _NOTE and "node" in (note := _read(path)):
            yield note


def node_with(folder: str, image: str) -> str:
    """Return a node whose store has an image, according to notes; empty: none is known."""
    return next((one["node"] for one in list_images(folder) if one.get("image") == image and one.get("node")), "")


def of_site(folder: str) -> Iterator[ImageNote]:
    """Return the images of a folder of the site: files, and folders that look like unpacked images."""
    for name in _names(folder):
        path = os.path.join(folder, name)
        is_tree = all(os.path.isdir(os.path.join(path, part)) for part in ("etc", "usr"))
        if name.endswith(_OF_SITES) or is_tree:
            yield {"image": name, "path": path, "shared": True, **_facts(path)}


def _facts(path: str) -> ImageNote:
    """Return the time and the size of an image; no size for a folder, because that takes long."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        facts: ImageNote = {"made": found.st_mtime}
        if not os.path.isdir(path):
            facts["size"] = found.st_size
        return facts
    return {}


def remove(images: Any, folder: str, name: str) -> ImageRemoval:
    """Remove an image from the folder. Return the removed paths, and the nodes with such an image in Docker."""
    path = os.path.join(folder, images.file_name(name))
    there = [path + kind for kind in KINDS if os.path.lexists(path + kind)]
    if busy := [one for one in (path + kind + ".lock" for kind in KINDS) if _is_renewed(one)]:
        return {"error": f"A job is creating {name}: {busy[0]}."}
    removed = []
    for one in there:
        # atomic; if this process is killed, the next build of the image cleans up
        aside = f"{path}.{os.urandom(4).hex()}.part"
        try:
            os.rename(one, aside)
        except OSError as error:
            return {"error": f"{one} cannot be removed: {error.strerror}."}
        with contextlib.suppress(OSError):
            os.unlink(of_file(one))
        images.remove(aside)
        removed.append(one)
    nodes = sorted({one["node"] for one in list_images(folder) if one.get("image") == name and "node" in one})
    return {"removed": removed, "nodes": nodes}


def find_used(images: Any, folder: str, name: str, paths: Iterable[str]) -> list[str]:
    """Return those paths that lead to an image of the folder, by whatever links."""
    path = os.path.join(folder, images.file_name(name))
    real = {os.path.realpath(path + kind) for kind in KINDS}
    return [one for one in paths if os.path.realpath(one) in real]


def _is_renewed(lock: str) -> bool:
    """Return whether a process holds a lock (``lock.py``). The lock file of a killed job stays, with its old time."""
    with contextlib.suppress(OSError):
        renewed = os.lstat(lock).st_mtime
        return abs(_file_time(os.path.dirname(lock)) - renewed) < _LOCK_TIMEOUT_S
    return False


def _file_time(folder: str) -> float:
    """Return the present time by the clock that sets the times of files in a folder, which is that of a file server."""
    path = os.path.join(folder, f".{os.urandom(8).hex()}.part")
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    except OSError:
        return time.time()
    try:
        return os.fstat(file).st_mtime
    finally:
        os.close(file)
        os.unlink(path)


def main() -> int:
    """Answer a request from stdin, so that no path can be taken for an option."""
    load = runpy.run_path(__file__[: -len("container/image_notes.py")] + "loader.py")["load"]
    images, asked = load("container.image_fetch"), json.load(sys.stdin)
    folder = images.folder_of(asked)
    if sys.argv[1:] == ["remove"]:
        answer: Any = remove(images, folder, asked["image"])
    elif sys.argv[1:] == ["used"]:
        answer = {"used": find_used(images, folder, asked["image"], asked["paths"])}
    else:
        shared = [one for place in asked.get("shared", ()) for one in of_site(os.path.expanduser(place))]
        answer = {"folder": folder, "images": [*list_images(folder), *shared][:_MAX_IMAGES]}
    json.dump(answer, sys.stdout)
    return 0


if __name__ == "__main__":
    sys.exit(main())
