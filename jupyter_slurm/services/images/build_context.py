"""Build context of a container image: the part of a local folder that a build needs, as one archive sent with the job.

The archive holds only files named by COPY, ADD or %files, without those excluded by .dockerignore. Links are never
followed out of the folder, and paths that lead out of it are refused. So a foreign Dockerfile cannot take other files
from this machine.
"""

from __future__ import annotations

import glob
import io
import os
import stat
import tarfile
from pathlib import Path

from jupyter_slurm.domain.containers.build_context import MAX_CONTEXT_BYTES, IgnoreRules
from jupyter_slurm.domain.containers.build_files import Kind, context_sources
from jupyter_slurm.domain.staging_rules import leads_out
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import printable

__all__ = ["ARCHIVE", "PackedContext", "packed"]

ARCHIVE = "context.tar"
"""File name in the job directory; ``runner/container/build.py`` unpacks the archive."""

_MAX_ENTRIES = 100_000  # files and folders
_MAX_SCANNED_ENTRIES = 500_000  # including excluded ones
_MAX_IGNORE_FILE_BYTES = 1 << 20  # bytes of a .dockerignore
_HINT = "Copy it into the folder, or use a directory on the cluster: context=DIR, with its path on the cluster."


class PackedContext:
    """Archive of a folder.

    Attributes
    ----------
    data : bytes
        Tar archive of paths below the folder.
    left : list of str
        Links out of the folder, which a definition file would have followed: not in the archive.
    """

    def __init__(self, folder: str, kind: Kind, name: str, largest: int) -> None:
        self.skipped: list[str] = []
        self._folder, self._name, self._largest = Path(folder), name, largest
        self._real = os.path.realpath(folder)
        self._follows = kind == "definition"  # %files copies the targets of links, COPY the links
        self._ignored = self._ignore() if kind == "dockerfile" else IgnoreRules()
        self._paths: dict[str, os.stat_result] = {}
        self._size = self._scanned = 0

    def _ignore(self) -> IgnoreRules:
        """Read the exclusions: those of this Dockerfile if it has a list of its own, else those of the folder."""
        for name in (f"{self._name}.dockerignore", ".dockerignore"):
            try:
                return IgnoreRules(_beginning(self._folder / name).decode("utf-8", "surrogateescape"))
            except FileNotFoundError:
                continue
            except OSError as error:
                raise UsageError(
                    printable(f"{self._folder / name} cannot be read: {error.strerror}."),
                    hint="Check the name and the permissions of the file.",
                ) from None
        return IgnoreRules()

    def add_source(self, source: str) -> None:
        """Add the files that match a path or a pattern, with all below them.

        Raises
        ------
        UsageError
            The path leads out of the folder, does not exist, or has too much content.
        """
        path = os.path.normpath(source.split("**")[0] or ".")  # several folders: all below the common one
        if os.path.isabs(path) or path.split("/")[0] == "..":
            raise UsageError(
                printable(f"{self._name} copies {source}, which lies outside of {self._folder}."), hint=_HINT
            )
        found = [path]
        if not os.path.lexists(self._folder / path):
            found = sorted(glob.glob(path, root_dir=self._folder, include_hidden=True))
        met = [self._add_named(one) for one in found]
        if path != "." and not any(self._has(one) for one in met):
            raise UsageError(
                printable(
                    f"{self._name} copies {source}, but {self._folder} has no such file, or .dockerignore excludes it."
                ),
                hint="Check the name of the file, and .dockerignore.",
            )

    def _has(self, path: str) -> bool:
        return path in self._paths or any(one.startswith(f"{path}/") for one in self._paths)

    def _add_named(self, path: str) -> str:
        """Add a named path with its links and their targets; return the final path."""
        place, parts = "", path.split("/")
        for count, part in enumerate(parts, 1):
            place = os.path.join(place, part)
            if os.path.islink(self._folder / place):
                self._add(place)
                if (met := self._within(place)) is None:
                    raise UsageError(
                        printable(
                            f"{self._name} copies {path}, but {place} is a link that leads out of {self._folder}."
                        ),
                        hint=_HINT,
                    )
                return self._add_named(os.path.join(met, *parts[count:]))
        self._add_tree(path)
        return path

    def _within(self, link: str) -> str | None:
        """Return the path below the folder to which a link leads; None: outside, or nowhere."""
        target, met = os.readlink(self._folder / link), os.path.realpath(self._folder / link)
        is_inside = met == self._real or met.startswith(self._real.rstrip("/") + "/")
        if leads_out(link, target) or not is_inside or not os.path.exists(met):
            return None
        return os.path.normpath(os.path.join(os.path.dirname(link), target))

    def _add_tree(self, path: str) -> None:
        """Add a file, or a folder with its content."""
        waiting = [path]
        while waiting:
            path = waiting.pop()
            is_out = path != "." and self._ignored.leaves_out(path)
            if path in self._paths or (is_out and not self._ignored.may_include_below(path)):
                continue
            found = self._add(path) if not is_out else self._scan_excluded(path)
            if stat.S_ISLNK(found.st_mode) and self._follows:
                self._follow(path)
            elif stat.S_ISDIR(found.st_mode):
                waiting += [os.path.normpath(os.path.join(path, name)) for name in self._listed(path)]

    def _scan_excluded(self, path: str) -> os.stat_result:
        """Visit an excluded folder; files below it may be included."""
        self._scanned += 1
        if self._scanned > _MAX_SCANNED_ENTRIES:
            raise UsageError(
                printable(f".dockerignore excludes more than {_MAX_SCANNED_ENTRIES:,} files of {self._folder}."),
                hint="A line with ! and a wildcard makes jupyter_slurm read all of them. Name the folder in "
                "that line (!data/*.csv instead of !**/*.csv), or give a smaller folder with "
                "context=FOLDER.",
            )
        return os.lstat(self._folder / path)

    def _follow(self, link: str) -> None:
        if (met := self._within(link)) is None:
            self.skipped.append(link)
            del self._paths[link]
        else:
            self._add_named(met)

    def _listed(self, path: str) -> list[str]:
        try:
            return sorted(os.listdir(self._folder / path))
        except OSError as error:
            raise UsageError(
                printable(f"{self._folder / path} cannot be read: {error.strerror}."),
                hint="Check its permissions, or exclude it in .dockerignore.",
            ) from None

    def _add(self, path: str) -> os.stat_result:
        """Add an included path; skip pipes, sockets and devices."""
        found = os.lstat(self._folder / path)
        if path == "." or path in self._paths or not _is_excluded_kept(found.st_mode):
            return found
        self._paths[path] = found
        self._size += found.st_size if stat.S_ISREG(found.st_mode) else 0
        if self._size > self._largest or len(self._paths) > _MAX_ENTRIES:
            many = f"{self._largest / 1e6:.0f} MB" if self._size > self._largest else f"{_MAX_ENTRIES:,} files"
            raise UsageError(
                printable(f"{self._name} copies more than {many} from {self._folder}."),
                hint="Exclude in .dockerignore what the image does not need, or use a directory on the "
                "cluster: context=DIR, with its path on the cluster.",
            )
        return found

    @property
    def data(self) -> bytes:  # noqa: D102
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(self._paths):
                self._add_entry(archive, path)
        return made.getvalue()

    def _add_entry(self, archive: tarfile.TarFile, path: str) -> None:
        found, member = self._paths[path], tarfile.TarInfo(path)
        member.mode, member.mtime = stat.S_IMODE(found.st_mode) & 0o777, int(found.st_mtime)
        try:
            if stat.S_ISLNK(found.st_mode):
                member.type, member.linkname = tarfile.SYMTYPE, os.readlink(self._folder / path)
                archive.addfile(member)
            elif stat.S_ISDIR(found.st_mode):
                member.type, member.mode = tarfile.DIRTYPE, member.mode | stat.S_IRWXU
                archive.addfile(member)
            else:
                content = _content(self._folder / path, found)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        except OSError as error:
            raise UsageError(
                printable(f"{self._folder / path} cannot be read: {error.strerror}."),
                hint="Check its permissions, or exclude it in .dockerignore.",
            ) from None


def _is_excluded_kept(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)


def _beginning(path: Path) -> bytes:
    """Read the start of a path that need not be a file: a pipe would block, a device has no end."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(0, "it is not a file")
        return file.read(_MAX_IGNORE_FILE_BYTES)


def _content(path: Path, status: os.stat_result) -> bytes:
    """Read the file that was found, and no file or link that has replaced it since: a link could lead anywhere."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
        now = os.fstat(file.fileno())
        if (now.st_dev, now.st_ino) != (status.st_dev, status.st_ino):
            raise OSError(0, "it has changed meanwhile")
        return file.read(status.st_size)


def packed(folder: str, kind: Kind, name: str, text: str, largest: int = MAX_CONTEXT_BYTES) -> PackedContext:
    """Return the files of a local folder that an image definition needs.

    Parameters
    ----------
    folder : str
        Absolute path.
    kind : str
        ``dockerfile`` or ``definition``.
    name, text : str
        Of the definition.
    largest : int
        Maximum size of all files, in bytes.

    Raises
    ------
    UsageError
        The files cannot be sent.
    """
    if not os.path.isdir(folder):
        raise UsageError(
            printable(f"The folder {folder} does not exist on this computer."), hint="Check the value of context=."
        )
    made = PackedContext(folder, kind, name, largest)
    for source in context_sources(kind, text):
        made.add_source(source)
    return made
