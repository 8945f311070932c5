"""Options in the ``--help`` text of a Slurm command, including those of a site's plugins.

The text is written for users. It omits hidden options, and is not always right about values (``--container`` is shown
without a value). It adds options that no table has, and descriptions. Source: spank(7).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["HelpEntry", "read_help"]

_LINE = re.compile(
    r"""\s{1,12}(?:-(?P<short>\w),?\s+)?     # the letter, with or without a comma
        --(?P<name>[A-Za-z0-9][\w.-]*)      # the long name
        (?P<value>\[=[^\]]*\]\S*|=\S*(?:[ ]\|[ ]\S+)*)?  # [=value], [=two words], =value, =[value], =name | number
        (?:\s+(?P<help>.*))?""",
    re.VERBOSE | re.ASCII,
)
_CONTINUED = re.compile(r"\s{16,}(\S.*)")
# A plugin's option is shown with "=" even if its value is optional; authors mark an optional value by brackets.
_OPTIONAL = re.compile(r"\[=.*|=\[[^\]]*\]")


class HelpEntry(NamedTuple):
    """An option in a help text.

    Attributes
    ----------
    name : str
        Long name without dashes.
    short : str
        The letter, or the empty string.
    takes : str
        ``"="`` a value, ``"?"`` an optional value, ``"."`` none.
    help : str
        The description, its lines joined.
    """

    name: str
    short: str
    takes: str
    help: str


def read_help(text: str) -> Iterator[HelpEntry]:
    """Yield the options that a ``--help`` text shows, in its order."""
    entry: re.Match[str] | None = None
    words: list[str] = []
    for line in text.splitlines():
        found = _LINE.fullmatch(line.rstrip())
        more = _CONTINUED.fullmatch(line.rstrip())
        if entry and more and not found:
            words.append(more[1])
            continue
        if entry:
            yield _entry(entry, words)
        entry, words = found, [(found["help"] or "").strip()] if found else []
    if entry:
        yield _entry(entry, words)


def _entry(match: re.Match[str], arguments: list[str]) -> HelpEntry:
    value = match["value"] or ""
    takes = "." if not value else "?" if _OPTIONAL.fullmatch(value) else "="
    return HelpEntry(match["name"], match["short"] or "", takes, " ".join(filter(None, arguments)))
