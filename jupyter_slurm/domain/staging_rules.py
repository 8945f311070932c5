"""File transfer before and after a job, from rsync's listings: files to copy, and files to leave unchanged.

Both directions compare with the state of both sides at the last synchronisation (the *base*). A file that changed on
one side since then is copied to the other. A file that changed on both sides is left unchanged, and reported. So a file
that the user edits during the job is not replaced by its older version. The start of the next job does not undo what a
job has written. Clocks of the two sides are never compared.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jupyter_slurm.errors import UsageError

__all__ = [
    "DIFF_ARGS",
    "NOT_COPIED_BACK",
    "STAGE_FOLDER_NAME",
    "TRANSFER_OPTIONS",
    "FileSignature",
    "FolderChange",
    "ResultChoice",
    "StagedFolder",
    "chosen",
    "is_inside",
    "leads_out",
    "names",
    "parse_age",
    "parse_listing",
    "parse_stage",
    "parse_sync",
]

STAGE_FOLDER_NAME: Final = ".jupyter-slurm-stage"
"""File in the directory on the cluster: the state of both sides at the last synchronisation."""

_EXCLUDED = (STAGE_FOLDER_NAME, ".git/", "__pycache__/", ".ipynb_checkpoints/", ".venv/", ".rsync-partial/")
# Files of these names are never copied back, whatever the remote host lists: this computer would execute a hook of git,
# or a Python. On a Mac, .GIT is the same folder.
NOT_COPIED_BACK: Final = frozenset(name.rstrip("/") for name in _EXCLUDED)
"""Names of files that are never copied."""

# Links stay links. Links that lead out of the folder are not sent, in either direction. Times are compared; of the
# permissions, only the executable bit is copied.
_COMMON_RSYNC_OPTIONS = ["--links", "--times", "--omit-dir-times", "--executability", "--safe-links"]
DIFF_ARGS: Final = [
    *("--dry-run", "--recursive", *_COMMON_RSYNC_OPTIONS, "--out-format=%i %l %M %n"),
    "--filter=dir-merge .rsync-filter",
    *(f"--exclude={name}" for name in _EXCLUDED),
]
"""Options of rsync that list the differences."""

TRANSFER_OPTIONS: Final = [*_COMMON_RSYNC_OPTIONS, "--partial-dir=.rsync-partial", "--files-from=-", "--from0"]
"""Options of rsync that transfer the files named on standard input."""

_LINE = re.compile(rb"[<>ch.]([fdLDS])[^ ]{9} +(\d+) (\d{4})/(\d\d)/(\d\d)-(\d\d):(\d\d):(\d\d) (.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\#([0-7]{3})")
_DEST = re.compile(r"(.+?)(?::([/~$].*))?", re.DOTALL)
_UNITS = {"hour": 3600, "day": 86_400, "week": 604_800}
_SYNC = ("checksum", "delete")


class FileSignature(NamedTuple):
    """Identity of a file's version: its size in bytes and its time in whole seconds (-1: a link)."""

    size: int
    mtime: int


class FolderChange(NamedTuple):
    """One line of rsync's listing: an entry to make equal to that on the sending side."""

    path: str
    sign: FileSignature
    is_folder: bool


class StagedFolder(NamedTuple):
    """A folder on the user's computer and, if given, its directory on the cluster."""

    source: str
    dest: str | None


@dataclass(frozen=True)
class ResultChoice:
    """Entries of a listing to copy, and those left unchanged because both sides changed them.

    Attributes
    ----------
    taken : list of FolderChange
    left : list of str
        Paths.
    """

    copied: list[FolderChange] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Return the bytes of the files to copy."""
        return sum(change.sign.size for change in self.copied if not change.is_folder)

    @property
    def files(self) -> int:
        """Return the number of files to copy."""
        return sum(not change.is_folder for change in self.copied)


def parse_stage(text: str) -> list[StagedFolder]:
    """Parse ``stage=DIR[:DEST],…``.

    Raises
    ------
    UsageError
        A folder is missing, or given twice.
    """
    found = []
    for part in text.split(","):
        match = _DEST.fullmatch(part)
        if match is None:
            raise UsageError(
                f"stage={text}: a folder is missing.",
                hint="Write stage=DIR, stage=DIR:DEST or stage=code,data:/scratch/me/data. If the name of a "
                "folder has a comma, stage the folder above it.",
            )
        found.append(StagedFolder(match[1], match[2]))
    if len({folder.source for folder in found}) < len(found):
        raise UsageError(f"stage={text} names a folder twice.", hint="Name each folder once.")
    return found


def parse_sync(text: str) -> dict[str, bool]:
    """Parse ``sync=checksum,delete``.

    Raises
    ------
    UsageError
        Another word is given.
    """
    words = text.split(",")
    if unknown := [word for word in words if word not in _SYNC]:
        raise UsageError(
            f"sync={text}: {unknown[0]!r} is not a way to synchronise.",
            hint="Use checksum (compare contents instead of size and time) or delete (delete files on the "
            "cluster that were deleted on this computer).",
        )
    return {word: word in words for word in _SYNC}


def parse_listing(raw: bytes) -> list[FolderChange]:
    """Parse rsync's output with the options :data:`DIFF_ARGS`, leaving out all but files, links and folders."""
    found = []
    for line in raw.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] in b"DS" or (match[1] == b"d" and not line.startswith(b"c")):
            continue
        year, month, day, hour, minute, second = (int(number) for number in match.groups()[2:8])
        mtime = _epoch(year, month, day) + hour * 3600 + minute * 60 + second
        name = _ESCAPED.sub(lambda octal: bytes([int(octal[1], 8) & 0xFF]), match[9]).rstrip(b"/")
        sign = FileSignature(int(match[2]), -1 if match[1] == b"L" else mtime)
        found.append(FolderChange(name.decode("utf-8", "surrogateescape"), sign, match[1] == b"d"))
    return found


def _epoch(year: int, month: int, day: int) -> int:
    """Return the seconds from the epoch to a day (UTC). Clocks may be set to years that ``datetime`` refuses."""
    years = year - (month <= 2)
    era, rest = divmod(years, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return (era * 146_097 + rest * 365 + rest // 4 - rest // 100 + of_year - 719_468) * 86_400


def chosen(
    changes: list[FolderChange],
    base: Mapping[str, FileSignature],
    file_signature: Callable[[str], FileSignature | None],
    *,
    is_pull: bool,
) -> ResultChoice:
    """Choose the entries to copy.

    Parameters
    ----------
    changes : list of FolderChange
        Differences, with the state of the sending side.
    base : mapping
        Signature of each file when both sides were equal.
    file_signature : callable
        Returns the signature of a local file; None: no such file. OSError: the path leads through a link, or is not a
        file.
    is_pull : bool
        Whether the remote host sends.
    """
    choice = ResultChoice()
    for change in changes:
        known = base.get(change.path)
        if not is_inside(change.path):
            choice.omitted.append(change.path)
        elif known is not None and change.sign == known:
            continue  # the other side has changed the file
        elif is_pull and not NOT_COPIED_BACK.isdisjoint(change.path.lower().split("/")):
            choice.omitted.append(change.path)
        elif not is_pull or _may_be_written(change, known, file_signature):
            choice.copied.append(change)  # when this side sends, the user's version takes precedence
        else:
            choice.omitted.append(change.path)
    return choice


def _may_be_written(
    change: FolderChange, recorded: FileSignature | None, file_signature: Callable[[str], FileSignature | None]
) -> bool:
    """Return whether the local file may be replaced: it does not exist, or is unchanged."""
    try:
        here = file_signature(change.path)
    except OSError:
        return False
    return here is None or (here == recorded and not change.is_folder)


def is_inside(path: str) -> bool:
    """Return whether a name from the remote host stays inside the folder."""
    return bool(path) and not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


def leads_out(path: str, target: str) -> bool:
    """Return whether a link at ``path`` (below the folder) leads out of the folder. rsync does not send such a link."""
    if target.startswith("/"):
        return True
    met = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return met == ".." or met.startswith("../")


def parse_age(expires: str) -> int:
    """Return the seconds of ``60 days``."""
    number, _, unit = expires.partition(" ")
    return int(number) * _UNITS[unit.removesuffix("s")]


def names(paths: Sequence[str]) -> str:
    """Return paths as text: the first few, and the number of the others."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more
