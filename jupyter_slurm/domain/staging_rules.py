"""File transfer before and after a job, from rsync's listings: files to copy, and files to leave unchanged.

Both directions compare with the state of both sides at the last synchronisation (the *base*). A file that changed on
one side since then is copied to the other. A file that changed on both sides is left unchanged, and reported. So a file
that the user edits during the job is not replaced by its older version. The start of the next job does not undo what a
job has written. Clocks of the two sides are never compared.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from jupyter_slurm.domain import untrusted_files
from jupyter_slurm.errors import UsageError

__all__ = [
    "PARTIAL_FOLDER_NAME",
    "STAGE_FOLDER_NAME",
    "TEMPORARY_FOLDER",
    "TRANSFER_OPTIONS",
    "FileSignature",
    "FolderChange",
    "LocalSide",
    "ResultChoice",
    "StagedFolder",
    "chosen",
    "difference_options",
    "is_inside",
    "leads_out",
    "names",
    "parse_age",
    "parse_equal",
    "parse_listing",
    "parse_stage",
    "parse_sync",
    "with_local_sources",
]

STAGE_FOLDER_NAME: Final = ".jupyter-slurm-stage"
"""File in the directory on the cluster: the state of both sides at the last synchronisation."""

# Links stay links. Links that lead out of the folder are not sent, in either direction. Times are compared; of the
# permissions, only the executable bit is copied.
_COMMON_RSYNC_OPTIONS = ["--links", "--times", "--omit-dir-times", "--executability", "--safe-links"]
PARTIAL_FOLDER_NAME: Final = ".rsync-partial"
"""Directory in each directory that receives files: the beginnings of files whose transfer was cut."""
TEMPORARY_FOLDER: Final = f"{PARTIAL_FOLDER_NAME}/temporary"
"""Directory in the receiving directory: the files that rsync is receiving. One that is cut may leave some."""
TRANSFER_OPTIONS: Final = [
    *_COMMON_RSYNC_OPTIONS,
    *(f"--partial-dir={PARTIAL_FOLDER_NAME}", f"--temp-dir={TEMPORARY_FOLDER}", "--files-from=-", "--from0"),
]
"""Options of rsync that transfer the files named on standard input."""

_LINE = re.compile(rb"[<>ch.]([fdLDS])[^ ]{9} +(\d{1,19}) (\d{4})/(\d\d)/(\d\d)-(\d\d):(\d\d):(\d\d) (.*)", re.DOTALL)
_EQUAL = re.compile(rb"\.[fL] {9} +(\d{1,19}) [^ ]+ (.*)", re.DOTALL)
_ESCAPED = re.compile(rb"\\#([0-7]{3})")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b-\u200f\u2028-\u202e\u2060-\u2069]")
_DEST = re.compile(r"(.+?)(?::([/~$].*))?", re.DOTALL)
_UNITS = {"hour": 3600, "day": 86_400, "week": 604_800}
_SYNC = ("checksum", "delete")


class FileSignature(NamedTuple):
    """Identity of a file's version: its size in bytes and its time in whole seconds (-1: a link)."""

    size: int
    mtime: int


class FolderChange(NamedTuple):
    """One line of rsync's listing: an entry to make equal to that on the sending side; ``target``: of a link."""

    path: str
    sign: FileSignature
    is_folder: bool
    target: str | None = None


class StagedFolder(NamedTuple):
    """A folder on the user's computer and, if given, its directory on the cluster."""

    source: str
    dest: str | None


@dataclass(frozen=True)
class ResultChoice:
    """Entries of a listing to copy, and paths that are not copied.

    Attributes
    ----------
    copied : list of FolderChange
        Entries to copy.
    omitted : list of str
        Both sides changed them.
    held : list of str
        They run by themselves on this computer, so the user has to name them first.
    refused : list of str
        They are never copied back: they lead out of the folder, belong to git or to an environment, or are not what
        the cluster had listed.
    """

    copied: list[FolderChange] = field(default_factory=list)
    omitted: list[str] = field(default_factory=list)
    held: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)

    def __add__(self, other: ResultChoice) -> ResultChoice:
        return ResultChoice(
            self.copied + other.copied,
            self.omitted + other.omitted,
            self.held + other.held,
            self.refused + other.refused,
        )

    @property
    def total(self) -> int:
        """Return the bytes of the files to copy."""
        return sum(change.sign.size for change in self.copied if not change.is_folder)

    @property
    def files(self) -> int:
        """Return the number of files to copy."""
        return sum(not change.is_folder for change in self.copied)


@dataclass(frozen=True)
class LocalSide:
    """State of the folder on this computer that a choice depends on.

    Attributes
    ----------
    environments : set of str
        Virtual environments in the folder.
    is_safe_link : callable
        Returns whether a link at a path to a target stays in the folder.
    accepted : frozenset of str
        Paths of files to copy back although they run by themselves.
    """

    environments: frozenset[str] = frozenset()
    is_safe_link: Callable[[str, str], bool] = lambda path, target: not leads_out(path, target)
    accepted: frozenset[str] = frozenset()


def difference_options(environments: Iterable[str]) -> list[str]:
    """Return the options of rsync that list the differences, without environments and what is never copied.

    Of all rules of rsync the first that matches counts. So the exclusions stand before the filter of the folder.
    """
    anywhere = ["".join(_either_case(char) for char in name) for name in untrusted_files.NEVER_COPIED]
    exact = ["/" + _escaped(path) for path in sorted(environments)]
    return [
        *("--dry-run", "--recursive", *_COMMON_RSYNC_OPTIONS, "-ii", "--out-format=%i %l %M %n%L"),
        *(f"--exclude={pattern}" for pattern in (*anywhere, *exact)),
        f"--filter=dir-merge {untrusted_files.FILTER_NAME}",
    ]


def _either_case(char: str) -> str:
    return f"[{char.lower()}{char.upper()}]" if char.isalpha() else char


def _escaped(path: str) -> str:
    """Return a pattern of rsync for one path. A backslash is an escape only in a pattern with wildcards."""
    return re.sub(r"([][*?\\])", r"\\\1", path) if re.search(r"[][*?]", path) else path


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


def with_local_sources(text: str, local: str) -> str:
    """Return a value of ``stage=`` whose folders are those of another reading of it, with this computer's variables."""
    folders, own = parse_stage(text), parse_stage(local)
    if len(folders) != len(own):  # a variable with a comma
        return local
    both = zip(folders, own, strict=True)
    return ",".join(mine.source + (f":{folder.dest}" if folder.dest else "") for folder, mine in both)


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
    """Parse the differences in rsync's output (:func:`difference_options`), of files, links and folders."""
    found = []
    for line in raw.split(b"\n"):
        match = _LINE.fullmatch(line)
        if match is None or match[1] in b"DS" or (match[1] == b"d" and not line.startswith(b"c")):
            continue
        year, month, day, hour, minute, second = (int(number) for number in match.groups()[2:8])
        mtime = _epoch(year, month, day) + hour * 3600 + minute * 60 + second
        name, target = _unescaped(match[9]), None
        sign = FileSignature(int(match[2]), -1 if match[1] == b"L" else mtime)
        if match[1] == b"L":
            name, target = _link(name, sign.size)
        else:
            name = name.rstrip("/")
        found.append(FolderChange(name, sign, match[1] == b"d", target))
    return found


def parse_equal(raw: bytes) -> set[str]:
    """Parse the files and links in rsync's output that are equal on both sides; those left out by a filter are not."""
    found = (_EQUAL.fullmatch(line) for line in raw.split(b"\n"))
    named = ((match[0], _unescaped(match[2]), int(match[1])) for match in found if match)
    return {_link(name, size)[0] if line.startswith(b".L") else name for line, name, size in named}


def _link(text: str, size: int) -> tuple[str, str | None]:
    """Return name and target of a link; both may contain the arrow, so the size of the target decides."""
    raw, arrow = text.encode("utf-8", "surrogateescape"), b" -> "
    at = -size - len(arrow)
    name, found, target = (raw[:at], arrow, raw[-size:]) if raw[at:-size] == arrow else raw.partition(arrow)
    told = target.decode("utf-8", "surrogateescape") if found else None
    return name.decode("utf-8", "surrogateescape"), told


def _unescaped(text: bytes) -> str:
    return _ESCAPED.sub(lambda octal: bytes([int(octal[1], 8) & 0xFF]), text).decode("utf-8", "surrogateescape")


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
    local: LocalSide | None = None,
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
    local : LocalSide, optional
        State of the local folder.
    """
    choice, side = ResultChoice(), local or LocalSide()
    if is_pull:
        found = untrusted_files.environment_folders(change.path for change in changes)
        side = replace(side, environments=side.environments | found)
    for change in changes:
        known = base.get(change.path)
        if not is_inside(change.path):
            choice.refused.append(change.path)
        elif not is_pull:
            if _is_sent(change, known, side):
                choice.copied.append(change)  # when this side sends, the user's version takes precedence
        elif change.sign != known:  # else this side has changed the file
            _choose_result(choice, change, known, side, file_signature)
    return choice


def _is_sent(change: FolderChange, known: FileSignature | None, side: LocalSide) -> bool:
    if untrusted_files.is_never_copied(change.path):
        return False
    if untrusted_files.environment_of(change.path, side.environments) is not None:
        return False
    # A filter never comes back: that of this computer also replaces one that a job has changed.
    is_filter = posixpath.basename(change.path) == untrusted_files.FILTER_NAME
    return change.sign != known or is_filter


def _choose_result(
    choice: ResultChoice,
    change: FolderChange,
    recorded: FileSignature | None,
    side: LocalSide,
    file_signature: Callable[[str], FileSignature | None],
) -> None:
    """Add an entry that the remote host has changed to one of the lists of a choice."""
    path = change.path
    environment = untrusted_files.environment_of(path, side.environments)
    is_link = change.target is not None or change.sign.mtime == -1
    is_unsafe_link = is_link and (change.target is None or not side.is_safe_link(path, change.target))
    if environment is not None or untrusted_files.is_never_copied_back(path) or is_unsafe_link:
        if (named := environment or path) not in choice.refused[-1:]:
            choice.refused.append(named)
        return
    try:
        here = file_signature(path)
    except OSError:
        choice.omitted.append(path)
        return
    if path not in side.accepted and untrusted_files.runs_by_itself(path, is_new=here is None):
        if not change.is_folder:
            choice.held.append(path)
    elif here is None or (here == recorded and not change.is_folder):
        choice.copied.append(change)  # it does not exist on this computer, or is unchanged
    else:
        choice.omitted.append(path)


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
    """Return paths as text: the first few, and the number of the others. Control characters are shown as escapes."""
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return ", ".join(_CONTROL.sub(lambda char: f"\\x{ord(char[0]):02x}", path) for path in paths[:3]) + more
