"""Local folder as seen by rsync: its files and links, none of which is followed."""

from __future__ import annotations

import errno
import os
import shutil
import stat
from dataclasses import dataclass, field

from jupyter_slurm.domain import untrusted_files
from jupyter_slurm.domain.staging_rules import FileSignature, leads_out, names
from jupyter_slurm.errors import UsageError
from jupyter_slurm.services.slurm.client import printable

__all__ = ["FolderTree", "LocalFolder", "check_free_space", "check_source", "sign_status"]


@dataclass(frozen=True)
class LocalFolder:
    """Folder to stage; ``inode`` distinguishes it from a later folder of the same name."""

    path: str
    inode: int

    def check_apart(self, dest: str) -> None:
        """Refuse a destination inside or around the folder: on one machine a folder cannot be copied into itself."""
        ours, theirs = os.path.realpath(self.path), os.path.realpath(dest)
        if os.path.commonpath([ours, theirs]) in (ours, theirs):
            raise UsageError(
                f"{self.path} and {dest} contain one another, so they cannot be synchronised.",
                hint="Choose another destination, or leave stage= out if the nodes see the folder.",
            )


def check_source(path: str) -> LocalFolder:
    """Return a folder that can be staged.

    Raises
    ------
    UsageError
        The path is not a folder of the user.
    """
    path = os.path.normpath(path)
    try:
        found = os.stat(path)
    except OSError as error:
        hint = (
            "Write stage=DIR[:DEST]: DIR is a folder of this computer, DEST begins with /, ~/ or a "
            "variable of the cluster. Copy a folder of the cluster with `%slurm stage CLUSTER:FOLDER`."
        )
        raise UsageError(f"{path} cannot be staged: {error.strerror}.", hint=hint) from None
    if not stat.S_ISDIR(found.st_mode):
        raise UsageError(
            f"{path} is not a folder.", hint=f"Stage the folder that contains it: stage={os.path.dirname(path)}."
        )
    if _holds_home(path):
        raise UsageError(f"stage={path} would copy all of your files.", hint="Name the folder of the project.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise UsageError(
            f"You have no write permission in {path}, so results could not be copied back.",
            hint="Stage a folder of your own.",
        )
    return LocalFolder(path, found.st_ino)


def _holds_home(path: str) -> bool:
    """Return whether a folder is the home of the user, by any of its names, or contains it."""
    home = os.path.realpath(os.path.expanduser("~"))
    real = os.path.realpath(path)
    return os.path.commonpath([home, real]) == real


def check_free_space(path: str, needed: int) -> None:
    """Refuse a transfer that would fill the local disk.

    Raises
    ------
    UsageError
        The disk is too small.
    """
    free = shutil.disk_usage(path).free
    if needed > free:
        raise UsageError(
            f"{needed / 1000000.0:.1f} MB would be copied to {path}, but only {free / 1000000.0:.1f} MB are free.",
            hint=f"Free some space on this computer: `df {path}`.",
        )


@dataclass
class FolderTree:
    """Files and links below a folder by path, links that lead out, and folders that are left out.

    These are virtual environments, and folders that the user may not read.
    """

    path: str
    files: dict[str, FileSignature] = field(default_factory=dict)
    leading_out: list[str] = field(default_factory=list)
    environments: set[str] = field(default_factory=set)
    unreadable: set[str] = field(default_factory=set)

    @classmethod
    def read(cls, path: str) -> FolderTree:
        """Read the whole tree."""
        tree = cls(path)
        tree._read("")
        return tree

    def _read(self, below: str) -> None:
        folders = [below]
        while folders:
            below = folders.pop()
            items = self._scan(below)
            if untrusted_files.environment_folders(f"x/{item.name}" for item in items):
                if below:
                    self.environments.add(below)
                    continue
                named = {item.name for item in items}
                self.environments |= {name for name in named if name.lower() in untrusted_files.ENVIRONMENT_PARTS}
            for item in items:
                name = os.path.join(below, item.name)
                if name in self.environments or untrusted_files.is_never_copied(item.name):
                    continue
                if item.is_dir(follow_symlinks=False):
                    folders.append(name)
                elif item.is_symlink() or item.is_file(follow_symlinks=False):
                    self._add(name, item)

    def _scan(self, below: str) -> list[os.DirEntry[str]]:
        """Return the entries of a folder; none if it was removed meanwhile, or the user may not read it."""
        path = os.path.join(self.path, below)
        try:
            with os.scandir(path) as found:
                if not os.access(path, os.X_OK):
                    raise PermissionError(errno.EACCES, "its files may not be read", path)
                return list(found)
        except (FileNotFoundError, NotADirectoryError, PermissionError) as error:
            if not below:
                raise
            if isinstance(error, PermissionError):
                self.unreadable.add(below)
            return []

    @property
    def excluded(self) -> frozenset[str]:
        """Return the folders that are not copied."""
        return frozenset(self.environments | self.unreadable)

    def warnings(self) -> list[str]:
        """Return what of the folder is not copied, for the user."""
        said = (
            (f"Links that lead out of {self.path} were not copied: ", self.leading_out, "."),
            ("Virtual environments were not copied: ", self.environments, ". They work on this computer only."),
            (f"Folders in {self.path} that you may not read were not copied: ", self.unreadable, "."),
        )
        return [f"{begin}{printable(names(sorted(paths)))}{end}" for begin, paths, end in said if paths]

    def is_safe_link(self, name: str, target: str) -> bool:
        """Return whether a new link would stay in the folder, also if the links on its way are followed.

        A link to a file that is never copied, such as a hook of git, is not safe either: who writes the results of the
        next job through it writes that file.
        """
        *_, last = [index for index, part in enumerate(target.split("/")) if part == ".."] or [-1]
        if leads_out(name, target) or last >= target.split("/").count(".."):
            return False  # a/../.. means another place if a is a link
        top = os.path.realpath(self.path)
        met = os.path.relpath(os.path.realpath(os.path.join(top, os.path.dirname(name), target)), top)
        is_inside = met != ".." and not met.startswith("../")
        return is_inside and not untrusted_files.is_never_copied_back(met) and not self.leaves_out(met)

    def leaves_out(self, path: str) -> bool:
        """Return whether a path lies in a folder that is not copied."""
        return untrusted_files.environment_of(path, self.excluded) is not None

    def _add(self, name: str, item: os.DirEntry[str]) -> None:
        try:
            if item.is_symlink() and leads_out(name, os.readlink(item.path)):
                self.leading_out.append(name)
                return
            self.files[name] = sign_status(item.stat(follow_symlinks=False))
        except FileNotFoundError:
            pass  # removed meanwhile

    def file_signature(self, name: str) -> FileSignature | None:
        """Return the present state of a file; None: there is no such file.

        Raises
        ------
        OSError
            The path leads through a link, or is not a file.
        """
        path = self.path
        *parents, last = name.split("/")
        for parent in parents:
            path = os.path.join(path, parent)
            try:
                if not stat.S_ISDIR(os.lstat(path).st_mode):
                    raise OSError(errno.ELOOP, "it lies behind a link", path)
            except FileNotFoundError:
                return None
        try:
            return sign_status(os.lstat(os.path.join(path, last)))
        except FileNotFoundError:
            return None


def sign_status(status: os.stat_result) -> FileSignature:
    """Return the signature of a file or link.

    Raises
    ------
    OSError
        It is another thing.
    """
    if stat.S_ISLNK(status.st_mode):
        return FileSignature(status.st_size, -1)
    if not stat.S_ISREG(status.st_mode):
        raise OSError(errno.EEXIST, "it is not a file")
    return FileSignature(status.st_size, int(status.st_mtime))
