"""Outputs for readers: without the names, numbers, paths and colors of a test."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence

__all__ = ["FIRST_JOB", "PERSON", "Neutral", "plain"]

PERSON = "ana"
"""The user in all examples of the documentation."""

FIRST_JOB = 1201
"""Number of a page's first job."""

_MAX_JOBS = 1000
_ESCAPES = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[=>]")
_SECRET = re.compile(r"(?<=token=)[0-9a-f]{8,}|(?<=SHA256:)[A-Za-z0-9+/]{43}")


def plain(text: str) -> str:
    """Return a text as a terminal shows it in the end: without colors, and without what was written over."""
    lines = _ESCAPES.sub("", text).replace("\r\n", "\n").split("\n")
    return "\n".join(line.rstrip("\r").rpartition("\r")[2].rstrip() for line in lines).strip("\n")


class Neutral:
    """Replaces what belongs to one run; columns of tables stay aligned.

    Parameters
    ----------
    users : iterable of str
        Login names; each becomes ``ana``.
    words : mapping
        Other texts, such as paths and host names, and their replacements.
    first_job : int
        Number of the first job of the run, which becomes :data:`FIRST_JOB`; 0 keeps all numbers.
    remarks : sequence of pairs
        Regular expressions of lines that are true of the test's machine alone, and their replacements.
    """

    def __init__(
        self,
        users: Iterable[str],
        words: Mapping[str, str],
        first_job: int = 0,
        remarks: Sequence[tuple[str, str]] = (),
    ) -> None:
        names = "|".join(_cut_names(user) for user in users)
        self._user = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
        self._words = sorted(words.items(), key=lambda pair: -len(pair[0]))
        self._first_job, self._remarks = first_job, remarks

    def __call__(self, text: str) -> str:
        """Return a text for readers."""
        text = plain(text)
        for word, instead in self._words:
            text = re.sub(rf"(?<!\w){re.escape(word)}(?![\w-])", lambda match, instead=instead: instead, text)
        for remark, instead in self._remarks:
            text = re.sub(remark, instead, text, flags=re.MULTILINE)
        text = _replace_aligned(_SECRET.sub("…", text), self._user, r"user(?:name)?", lambda name: PERSON)
        if self._first_job:
            text = _replace_aligned(text, re.compile(r"(?<![\w.-])\d{4,}(?!\w)"), r"job(?:_?id)?", self._job)
        return text

    def _job(self, number: str) -> str:
        place = int(number) - self._first_job
        return str(FIRST_JOB + place) if 0 <= place < _MAX_JOBS else number


def _cut_names(user: str) -> str:
    """Return an expression for a name, also as Slurm cuts it at a column's width: squeue without a sign, sacct with."""
    name = "(?<!/)root" if user == "root" else re.escape(user)
    return rf"{name}|{re.escape(user[:8])}|{re.escape(user[:6])}\w*\+" if len(user) > 8 else name


def _replace_aligned(text: str, words: re.Pattern[str], heading: str, replaced: Callable[[str], str]) -> str:
    """Replace words; below a heading that begins or ends in the same column, the width is kept."""
    lines, column = [], None
    for line in text.split("\n"):

        def replace(match: re.Match[str], column: re.Match[str] | None = column) -> str:
            word, width = replaced(match[0]), len(match[0])
            around = (
                match.string[max(0, match.start() - 1) : match.start()] + match.string[match.end() : match.end() + 1]
            )
            if column is None or around.strip():  # within other text, not in a column
                return word
            if match.start() == column.start():
                return word.ljust(width)
            return word.rjust(width) if match.end() == column.end() else word

        lines.append(words.sub(replace, line).rstrip())
        column = re.search(rf"(?<!\S){heading}(?!\S)", line, re.IGNORECASE) or column
    return "\n".join(lines)
