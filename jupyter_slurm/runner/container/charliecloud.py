"""Builders of Charliecloud: those of old versions, and the files that it reads.

Before ``ch-image`` and ``ch-convert``, it had ``ch-build``, ``ch-builder2tar`` and ``ch-tar2dir``.

Sources: ch-build(1), ch-builder2tar(1), ch-tar2dir(1). Python 3.8+, standard library only.
"""

from __future__ import annotations

import glob
import itertools
import os
import shutil
import tarfile
from typing import Any, Callable, Iterator

_PROGRAMS = ["ch-build", "ch-builder2tar", "ch-tar2dir"]
_NEW_PROGRAMS = ["ch-image", "ch-convert"]
_MAX_ARCHIVE_NAMES = 10_000  # names in an archive; those of `docker save` are few


def is_old() -> bool:
    """Return whether this node has only the old builders."""
    return not shutil.which(_NEW_PROGRAMS[0]) and bool(shutil.which(_PROGRAMS[0]))


def programs() -> list[str]:
    """Return the programs that make an image: the old ones if the node has only them."""
    return _PROGRAMS if is_old() else _NEW_PROGRAMS


def accepted(argv: list[str], help_text: str) -> list[str]:
    """Return a command line of ch-run without ``--home`` if ``ch-run --help`` lacks it: an old one binds the home."""
    end = argv.index("--")
    if not help_text or "--home" in help_text:
        return argv
    return [*(word for word in argv[:end] if word != "--home"), *argv[end:]]


def refusal(kind: str, origin: str) -> str:
    """Return the reason why an image of a daemon or of a file cannot be converted; empty if it can."""
    if is_old():
        return "from= needs ch-convert, which the old Charliecloud of this node does not have. It has only ch-build."
    if kind == "tar" and is_of_layers(origin):
        return f"{origin} was written by `docker save`. Charliecloud needs a file of `docker export`."
    return ""


def make(run: Callable[..., Any], tag: str, file: str, context: str, room: str, made: str) -> str:
    """Build an image and unpack it; return its path.

    Parameters
    ----------
    run : callable
        Runs a command line; raises an error if it fails. ``env`` is its environment.
    tag : str
        Name of the image in the store of the builder.
    file, context : str
        Paths of the Dockerfile and of the build context.
    room : str
        Folder for temporary files.
    made : str
        Path of the image, in a folder of its own.
    """
    store, packed, unpacked = os.path.join(room, "store"), os.path.join(room, "packed"), made + ".unpacked"
    env = {**os.environ, "CH_GROW_STORAGE": store}
    run(["ch-build", "-t", tag, "-f", file, context], env=env)
    os.mkdir(packed)
    os.mkdir(unpacked)
    run(["ch-builder2tar", tag, packed], env=env)
    run(["ch-tar2dir", *glob.glob(os.path.join(glob.escape(packed), "*.tar*")), unpacked], env=env)
    os.rename(os.path.join(unpacked, os.listdir(unpacked)[0]), made)
    return made


def pull(run: Callable[..., Any], image: str, room: str, made: str) -> str:
    """Fetch an image of a registry: build one that adds nothing to it. Return its path."""
    context = os.path.join(room, "context")
    os.mkdir(context, 0o700)
    file = os.path.join(context, "Dockerfile")
    with open(file, "w", encoding="ascii") as text:
        text.write(f"FROM {image}\n")
    # The builder cannot build an image on itself.
    return make(run, f"jupyter_slurm-{os.urandom(4).hex()}", file, context, room, made)


def is_of_layers(path: str) -> bool:
    """Return whether an archive is of `docker save`. One of `docker export` has no such file at its top."""
    try:
        with tarfile.open(path) as archive:
            return any(
                name in ("manifest.json", "index.json")
                for name in itertools.islice(_names(archive), _MAX_ARCHIVE_NAMES)
            )
    except (OSError, tarfile.TarError, EOFError):
        return False  # the program that unpacks it reports the error


def _names(archive: tarfile.TarFile) -> Iterator[str]:
    for member in archive:
        yield member.name
