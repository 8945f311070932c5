"""What a job needs and what it leaves, as rsync tells of it: which files travel, and which are better left.

Both directions go by what both sides were when they were synchronised last (the *base*): what changed on one side since
then goes to the other. What changed on both stays as it is, and is told. So a file that the person edits while the job
runs is not replaced by its older self, and what one job has written is not undone by the start of the next. No clock is
compared with another.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jupyter_slurm.errors import UsageError

__all__ = [
    "BASE",
    "COMPARED",
    "NOT_TAKEN",
    "TRANSFERRED",
    "FileSignature",
    "FolderChange",
    "ResultChoice",
    "StagedFolder",
    "chosen",
    "is_inside",
    "leads_out",
    "names",
    "parse_listing",
    "parse_words",
    "seconds_of",
    "sync_words",
]

BASE: Final = ".jupyter-slurm-stage"
"""File in the folder of the cluster: how things stood when both sides were synchronised last."""

_LEFT_OUT = (BASE, ".git/", "__pycache__/", ".ipynb_checkpoints/", ".venv/", ".rsync-partial/")
# Of them comes nothing back, whatever the other side lists: a hook of git, or a Python, would be run here. For a Mac,
# .GIT is the same folder.
NOT_TAKEN: Final = frozenset(name.rstrip("/") for name in _LEFT_OUT)
"""Names of what never travels."""

# Links stay links, unless they lead out of the folder: those are not sent, in neither direction. Times are compared;
# of the rights only the one to execute travels.
_ALIKE = ["--links", "--times", "--omit-dir-times", "--executability", "--safe-links"]
COMPARED: Final = [
    *("--dry-run", "--recursive", *_ALIKE, "--out-format=%i %l %M %n"),
    "--filter=dir-merge .rsync-filter",
    *(f"--exclude={name}" for name in _LEFT_OUT),
]
"""Options of rsync that list what differs."""

TRANSFERRED: Final = [*_ALIKE, "--partial-dir=.rsync-partial", "--files-from=-", "--from0"]
"""Options of rsync that transfer what is named on standard input."""

_LINE = re.compile(rb"[<>ch.]([fdLDS])[^ ]{9} +(\d+) (\d{4})/(\d\d)/(\d\d)-(\d\d):(\d\d):(\d\d) (.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\#([0-7]{3})")
_DEST = re.compile(r"(.+?)(?::([/~$].*))?", re.DOTALL)
_UNITS = {"hour": 3600, "day": 86_400, "week": 604_800}
_SYNC = ("checksum", "delete")


class FileSignature(NamedTuple):
    """By what a version of a file is known: its size in bytes and its time in whole seconds (-1: a link)."""

    size: int
    mtime: int


class FolderChange(NamedTuple):
    """One line of rsync's list: what is to be made the same as on the side that sends."""

    path: str
    sign: FileSignature
    is_folder: bool


class StagedFolder(NamedTuple):
    """A folder of the person's machine and, where it was said, its place on the cluster."""

    source: str
    dest: str | None


@dataclass(frozen=True)
class ResultChoice:
    """What of a list travels, and what is left because both sides changed it.

    Attributes
    ----------
    taken : list of FolderChange
    left : list of str
        Paths.
    """

    taken: list[FolderChange] = field(default_factory=list)
    left: list[str] = field(default_factory=list)

    @property
    def total(self) -> int:
        """Bytes of the files that travel."""
        return sum(change.sign.size for change in self.taken if not change.is_folder)

    @property
    def files(self) -> int:
        """How many files travel."""
        return sum(not change.is_folder for change in self.taken)


def parse_words(text: str) -> list[StagedFolder]:
    """Take ``stage=DIR[:DEST],…`` apart.

    Raises
    ------
    UsageError
        A folder is missing, or named twice.
    """
    found = []
    for part in text.split(","):
        match = _DEST.fullmatch(part)
        if match is None:
            raise UsageError(
                f"stage={text}: a folder is missing there.",
                hint="stage=DIR, stage=DIR:DEST, stage=code,data:/scratch/me/data; a folder with a comma in its name "
                "can be staged as a part of the one above.",
            )
        found.append(StagedFolder(match[1], match[2]))
    if len({folder.source for folder in found}) < len(found):
        raise UsageError(f"stage={text} names a folder twice.", hint="Name each once.")
    return found


def sync_words(text: str) -> dict[str, bool]:
    """Take ``sync=checksum,delete`` apart.

    Raises
    ------
    UsageError
        There is another word.
    """
    words = text.split(",")
    if unknown := [word for word in words if word not in _SYNC]:
        raise UsageError(
            f"sync={text}: {unknown[0]!r} is no way to synchronise.",
            hint="checksum compares what is in files, instead of size and time; delete takes away on the cluster what "
            "is gone here.",
        )
    return {word: word in words for word in _SYNC}


def parse_listing(raw: bytes) -> list[FolderChange]:
    """Read what rsync prints with the options :data:`COMPARED`; what is neither file, link nor folder is left out."""
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
    """Return the seconds of a day (UTC) since the epoch; clocks may be set to years that ``datetime`` refuses."""
    years = year - (month <= 2)
    era, rest = divmod(years, 400)
    of_year = (153 * (month + (-3 if month > 2 else 9)) + 2) // 5 + day - 1
    return (era * 146_097 + rest * 365 + rest // 4 - rest // 100 + of_year - 719_468) * 86_400


def chosen(
    changes: list[FolderChange],
    base: Mapping[str, FileSignature],
    sign_of: Callable[[str], FileSignature | None],
    *,
    is_pull: bool,
) -> ResultChoice:
    """Choose what travels.

    Parameters
    ----------
    changes : list of FolderChange
        What differs, as the side has it that sends.
    base : mapping
        How each file was when both sides had it alike.
    sign_of : callable
        Returns how a file is here; None: it is not there. OSError: it lies behind a link, or what is there is no file.
    is_pull : bool
        Whether the other side sends.
    """
    choice = ResultChoice()
    for change in changes:
        known = base.get(change.path)
        if not is_inside(change.path):
            choice.left.append(change.path)
        elif known is not None and change.sign == known:
            continue  # it is the other side that has changed it
        elif is_pull and not NOT_TAKEN.isdisjoint(change.path.lower().split("/")):
            choice.left.append(change.path)
        elif not is_pull or _may_be_written(change, known, sign_of):
            choice.taken.append(change)  # of both sides that of the person counts, where it sends
        else:
            choice.left.append(change.path)
    return choice


def _may_be_written(
    change: FolderChange, known: FileSignature | None, sign_of: Callable[[str], FileSignature | None]
) -> bool:
    """Tell whether what is here may be replaced by what has come: it is not there, or as it was."""
    try:
        here = sign_of(change.path)
    except OSError:
        return False
    return here is None or (here == known and not change.is_folder)


def is_inside(path: str) -> bool:
    """Tell whether a name that the other side has told stays inside of the folder."""
    return bool(path) and not path.startswith("/") and ".." not in path.split("/") and "\0" not in path


def leads_out(path: str, target: str) -> bool:
    """Tell whether a link at ``path`` (below the folder) leads out of the folder: rsync does not send it then."""
    if target.startswith("/"):
        return True
    met = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
    return met == ".." or met.startswith("../")


def seconds_of(expires: str) -> int:
    """Return how long ``60 days`` is."""
    number, _, unit = expires.partition(" ")
    return int(number) * _UNITS[unit.removesuffix("s")]


def names(paths: Sequence[str]) -> str:
    """Return paths as they are told: the first few, and how many more there are."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(paths[:3]) + more
