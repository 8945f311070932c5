"""Runner files in the folder of a cluster, and their digest."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from jupyter_slurm.transport.base import Transport

__all__ = ["RUNNER", "find_files", "install", "runner_digest", "shipped"]

_STARTED_BY_DEFAULT = "cell/run.py"
_SENT_AS_TEXT = frozenset(
    {
        "login_node/files.py",  # sent to a login node
        "login_node/starter.py",  # sent to the shell of a login node
        *(f"variables/{name}.py" for name in ("definitions", "packing", "transit")),  # sent to a kernel
    }
)
_ONLY_FOR_TYPES = frozenset({"job_document.py"})


def find_files(package: Traversable) -> tuple[str, ...]:
    """Return the modules of a package that a job may need, the usual entry point first."""
    found = set(_modules(package, "")) - _SENT_AS_TEXT - _ONLY_FOR_TYPES
    return tuple(sorted(found, key=lambda name: (name != _STARTED_BY_DEFAULT, name)))


def _modules(folder: Traversable, prefix: str) -> Iterator[str]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _modules(entry, f"{prefix}{entry.name}/")
        elif entry.name.endswith(".py") and entry.name != "__init__.py":
            yield prefix + entry.name


_PACKAGE = resources.files("jupyter_slurm.runner")
RUNNER = find_files(_PACKAGE)
"""Files of the runner; a job starts one of them, and finds the others in the same folder."""


@functools.cache  # once: the package may be updated while an agent runs
def shipped(name: str) -> bytes:
    """Return the content of a packaged runner file."""
    return _PACKAGE.joinpath(name).read_bytes()


@functools.cache
def runner_digest() -> str:
    """Return the digest of the runner's files, which keeps versions apart."""
    return hashlib.sha256(b"\0".join(shipped(name) for name in RUNNER)).hexdigest()[:8]


async def install(transport: Transport, paths: Mapping[str, str]) -> None:
    """Write the runner's files, by name, to paths that contain the digest; those of an earlier agent stay.

    Raises
    ------
    TransportError
        A file cannot be written.
    """
    there = await transport.stat_all([*paths.values()])
    for name in reversed([*paths]):  # the entry point comes last
        path, content = paths[name], shipped(name)
        if path not in there or there[path].size != len(content):
            await transport.write(path, content)
