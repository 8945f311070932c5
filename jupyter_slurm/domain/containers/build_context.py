"""Files of a folder that a Dockerfile or a definition file uses, and the rules of .dockerignore.

Sources: the reference of Dockerfiles (docs.docker.com/reference/dockerfile: parser directives, COPY, ADD, RUN --mount,
here-documents), "Build context" (docs.docker.com/build/concepts/context: .dockerignore), apptainer.org/docs,
"Definition Files" (%files).
"""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections import deque
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Final

from jupyter_slurm.errors import UsageError

__all__ = ["MAX_CONTEXT_BYTES", "IgnoreRules", "definition_sources", "dockerfile_sources", "has_add"]

MAX_CONTEXT_BYTES: Final = 256 << 20
"""Bytes of the largest build context that is copied from the user's computer."""

WHOLE_FOLDER: Final = "."

_DIRECTIVE = re.compile(r"#\s*(\w+)\s*=\s*(\S+)\s*")
_INSTRUCTION = re.compile(r"\s*([A-Za-z]+)\s+(.*)", re.DOTALL)
_FLAG = re.compile(r"\s*--(\w[\w-]*)(?:=(\S*))?")
_HERE_DOCUMENT = re.compile(r"(?<!\S)<<-?([\"']?)([A-Za-z_][\w.]*)\1(?!\S)")
_REMOTE_SOURCE = re.compile(r"[a-z][a-z0-9+.-]*://|git@", re.IGNORECASE)
_SECTION = re.compile(r"\s*%(\w+)\s*(.*)")

_IN_A_NAME, _ANYTHING, _FOLDERS = _WILD = "[^/]*", ".*", "(?:.*/)?"
_MAX_WILDCARDS = 2  # in a pattern that becomes a regular expression
_PATTERN_CHARACTERS = frozenset("*?[\\")


def dockerfile_sources(text: str) -> list[str]:
    """Return the sources of COPY, ADD and mounts of RUN: paths below the folder, and patterns; ``.`` is all of it."""
    found: list[str] = []
    for name, words in _instructions(text):
        flags, rest = _flags(words)
        if name == "RUN":
            found += [mount for value in flags.get("mount", []) if (mount := _mount_source(value))]
        elif name in ("COPY", "ADD") and "from" not in flags:
            found += [_plain(source) for source in _operands(rest)[:-1] if not _is_remote_source(source)]
    return list(dict.fromkeys(found))


def has_add(text: str) -> bool:
    """Return whether a Dockerfile has an ADD instruction, which not every builder supports."""
    return any(name == "ADD" for name, _ in _instructions(text))


def definition_sources(text: str) -> list[str]:
    """Return the sources of %files as written: paths and patterns, without those of a build stage."""
    found, is_files = list[str](), False
    for line in text.splitlines():
        if section := _SECTION.match(line):
            is_files = section[1].lower() == "files" and section[2].split()[:1] != ["from"]
        elif is_files and line.strip() and not line.strip().startswith("#"):
            source = _split_words(line)[0]
            found.append(WHOLE_FOLDER if set(source) & set("${`") else source)  # a shell on the node expands the name
    return list(dict.fromkeys(found))


def _split_words(line: str) -> list[str]:
    try:
        return shlex.split(line) or [WHOLE_FOLDER]
    except ValueError:
        return line.split()


# -- Dockerfiles


def _instructions(text: str) -> Iterator[tuple[str, str]]:
    """Return each instruction and its text, without comments and without the text of here-documents."""
    escape, lines = _escape(text), deque(text.lstrip("\ufeff").splitlines())
    while lines:
        whole = _joined(lines.popleft(), lines, escape)
        if match := _INSTRUCTION.fullmatch(whole):
            for _, end in _HERE_DOCUMENT.findall(match[2]):
                if end in (line.lstrip("\t") for line in lines):
                    while lines.popleft().lstrip("\t") != end:
                        pass
            yield match[1].upper(), match[2]


def _escape(text: str) -> str:
    for line in text.lstrip("\ufeff").splitlines():
        if not (match := _DIRECTIVE.fullmatch(line)):
            break
        if match[1].lower() == "escape":
            return match[2]
    return "\\"


def _joined(line: str, lines: deque[str], escape: str) -> str:
    """Join the lines of an instruction. Comments and empty lines between its parts do not end it."""
    if line.lstrip().startswith("#"):
        return ""
    whole = line
    while whole.rstrip().endswith(escape):
        whole = whole.rstrip()[: -len(escape)]
        while lines and (not lines[0].strip() or lines[0].lstrip().startswith("#")):
            lines.popleft()
        whole += lines.popleft() if lines else ""
    return whole


def _flags(words: str) -> tuple[dict[str, list[str]], str]:
    flags: dict[str, list[str]] = {}
    while match := _FLAG.match(words):
        flags.setdefault(match[1].lower(), []).append(match[2] or "")
        words = words[match.end() :]
    return flags, words.strip()


def _operands(rest: str) -> list[str]:
    """Return sources and destination, given as a JSON list or as words."""
    if rest.startswith("["):
        try:
            return [str(word) for word in json.loads(rest)]
        except ValueError:
            pass  # Docker also reads the text as words then
    return [word.strip("\"'") for word in rest.split()]


def _mount_source(value: str) -> str | None:
    """Return the source of a mount of RUN; None if it is not in the folder."""
    told = dict(word.partition("=")[::2] for word in value.split(","))
    if told.get("type", "bind") != "bind" or "from" in told:
        return None
    return _plain(told.get("source") or told.get("src") or WHOLE_FOLDER)


def _is_remote_source(source: str) -> bool:
    return bool(_REMOTE_SOURCE.match(source)) or source.startswith("<<")


def _plain(source: str) -> str:
    """Return a path below the folder. A variable may have any value."""
    return WHOLE_FOLDER if "$" in source else source.lstrip("/") or WHOLE_FOLDER


# -- .dockerignore


class IgnoreRules:
    """Exclusion rules of a .dockerignore file.

    Parameters
    ----------
    text : str
        Text of the file.

    Raises
    ------
    UsageError
        A line is not a valid pattern.
    """

    def __init__(self, text: str = "") -> None:
        self._rules: list[tuple[bool, Callable[[str], object]]] = []  # (is an exception, match function) for each rule
        self._exceptions: list[list[str]] = []  # for each exception, the folders before its first wildcard
        for line in text.lstrip("\ufeff").splitlines():
            said = line.strip()
            if not said or line.startswith("#"):
                continue
            is_exception, said = said.startswith("!"), said.removeprefix("!").strip()
            cleaned = posixpath.normpath(said).lstrip("/")
            if cleaned in ("", WHOLE_FOLDER):
                continue
            self._rules.append((is_exception, _pattern(cleaned, line)))
            if is_exception:
                self._exceptions.append(
                    list(takewhile(lambda part: not _PATTERN_CHARACTERS & set(part), cleaned.split("/")))
                )

    def may_include_below(self, path: str) -> bool:
        """Return whether a file below an excluded folder may be kept."""
        parts = path.split("/")
        return any(all(one == other for one, other in zip(kept, parts, strict=False)) for kept in self._exceptions)

    def leaves_out(self, path: str) -> bool:
        """Return whether a path is excluded. The last rule that matches the path, or a folder above it, decides."""
        parts, is_out = path.split("/"), False
        above = ["/".join(parts[:count]) for count in range(1, len(parts) + 1)]
        for is_exception, fits in self._rules:
            if is_out == is_exception and any(fits(one) for one in above):
                is_out = not is_exception
        return is_out


def _pattern(glob: str, line: str) -> Callable[[str], object]:
    """Return the match function of a pattern: ``**`` is any number of folders, ``*`` and ``?`` stay in one name."""
    parts, place = list[str](), 0
    while place < len(glob):
        if glob.startswith("**", place):
            place += 2
            parts.append(_ANYTHING)
            if glob.startswith("/", place):
                place, parts[-1] = place + 1, _FOLDERS
            continue
        sign = glob[place]
        if sign == "[" and (match := re.compile(r"\[\^?(?:\\.|[^\]\\])+\]").match(glob, place)):
            place = match.end()
            parts.append(match[0].replace("[[", "[\\["))
            continue
        if sign == "\\" and place + 1 < len(glob):
            place, sign = place + 1, glob[place + 1]
            parts.append(re.escape(sign))
        else:
            parts.append({"*": _IN_A_NAME, "?": "[^/]"}.get(sign) or re.escape(sign))
        place += 1
    parts = [part for at, part in enumerate(parts) if part not in _WILD or parts[at - 1 : at] != [part]]
    try:
        if sum(part in _WILD for part in parts) > _MAX_WILDCARDS:
            return _Steps(parts).fits
        return re.compile("".join(parts), re.DOTALL).fullmatch
    except re.error:
        raise UsageError(
            f".dockerignore: {line!r} is not a valid pattern.", hint="Correct that line of .dockerignore."
        ) from None


class _Steps:
    """Pattern matcher whose time is bounded by the pattern's length.

    A regular expression with many wildcards may take too long.
    """

    def __init__(self, parts: list[str]) -> None:
        self._parts, self._end = parts, len(parts)
        self._signs = [None if part in _WILD else re.compile(part, re.DOTALL) for part in parts]
        self._from: list[set[int]] = [{self._end}]  # a part that may be empty can be skipped
        for at in range(self._end - 1, -1, -1):
            self._from.insert(0, {at} | (self._from[0] if parts[at] in _WILD else set()))

    def fits(self, text: str) -> bool:
        """Return whether the whole text matches."""
        met = self._from[0]
        for sign in text:
            met = set[int]().union(*(self._next(at, sign) for at in met if at < self._end))
        return self._end in met

    def _next(self, at: int, sign: str) -> set[int]:
        part, expected = self._parts[at], self._signs[at]
        if expected is not None:
            return self._from[at + 1] if expected.fullmatch(sign) else set()
        if part == _FOLDERS:
            return {at} | self._from[at + 1] if sign == "/" else {at}
        return set() if part == _IN_A_NAME and sign == "/" else self._from[at]
