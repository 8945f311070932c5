"""Runner files in the folder of a cluster, and their digest."""

from __future__ import annotations

import functools
import hashlib
import posixpath
import time
from collections.abc import Callable, Iterator, Mapping
from importlib import resources
from importlib.resources.abc import Traversable

from jupyter_slurm.services.jobdir.job_directory import ClusterFolder, dump
from jupyter_slurm.services.jobdir.ownership import make_owned_folder
from jupyter_slurm.transport.base import Transport

__all__ = ["RUNNER", "RunnerInstallation", "find_files", "install", "runner_digest", "shipped"]

_CHECK_INTERVAL_S = 600.0  # seconds until the files are checked again: a site or the user may have removed them

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


class RunnerInstallation:
    """Folder of a cluster with the runner's files.

    Parameters
    ----------
    transport : Transport
        Transport to the host.
    folder : ClusterFolder
        The folder.
    load_cluster_data : callable
        Returns the content of cluster.json.
    is_remote : bool
        Whether other users of the host could make the folder after it was removed.
    clock : callable, optional
        Monotonic seconds.
    """

    def __init__(
        self,
        transport: Transport,
        folder: ClusterFolder,
        load_cluster_data: Callable[[], Mapping[str, object]],
        *,
        is_remote: bool,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._transport, self._folder, self._cluster_data = transport, folder, load_cluster_data
        self._cluster_file = posixpath.join(folder.path, "cluster.json")
        self._is_remote, self._clock = is_remote, clock
        self._checked_at: float | None = None

    def path(self, name: str) -> str:
        """Return the path of a runner file."""
        return posixpath.join(self._folder.path, f"runner-{runner_digest()}-{name.replace('/', '-')}")

    async def prepare(self, *, is_removed: bool = False) -> None:
        """Install what is missing, if not checked a moment ago; ``is_removed``: it is known that something is missing.

        Raises
        ------
        ConfigError, TransportError
            Other users can write to the folder, or it cannot be made.
        """
        if self._checked_at is not None:
            if not is_removed and self._clock() - self._checked_at < _CHECK_INTERVAL_S:
                return
            if not is_removed and await self._is_complete():
                self._checked_at = self._clock()
                return
            if self._is_remote:  # as after the login
                await make_owned_folder(self._transport, self._folder.path)
        await self._transport.make_dir(self._folder.events)
        await install(self._transport, {name: self.path(name) for name in RUNNER})
        await self._transport.write(self._cluster_file, dump(self._cluster_data()))
        self._checked_at = self._clock()

    async def _is_complete(self) -> bool:
        """Return whether all is installed, with one query."""
        sizes = {self.path(name): len(shipped(name)) for name in RUNNER}
        found = await self._transport.stat_all([*sizes, self._folder.events, self._cluster_file])
        has_others = self._folder.events in found and self._cluster_file in found
        return has_others and all(path in found and found[path].size == size for path, size in sizes.items())
