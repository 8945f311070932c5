"""Values in Slurm's notation: time limits, memory, trackable resources (TRES), generic resources (GRES).

Sources: sbatch(1) ``--time``, ``--mem``, ``--gres``; sacct(1) ``ReqTRES``; ``time_str2secs()`` and ``str_to_mbytes()``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from jupyter_slurm.errors import UsageError

__all__ = [
    "NO_LIMIT_S",
    "Gres",
    "counted",
    "duration_words",
    "format_duration",
    "format_memory",
    "format_time_limit",
    "parse_count",
    "parse_duration",
    "parse_epoch",
    "parse_exit",
    "parse_gres",
    "parse_memory",
    "parse_time_limit",
    "parse_tres",
    "present",
    "read_time_limit",
    "split_outside_brackets",
]

NO_LIMIT_S: Final = 365 * 86400
"""Time limit that Slurm gives a job without one: a year."""

_TIME = re.compile(
    r"(?:(?P<days>\d{1,9})-(?P<dh>\d{1,9})(?::(?P<dm>\d{1,9})(?::(?P<ds>\d{1,9}))?)?"
    r"|(?P<hours>\d{1,9}):(?P<hm>\d{1,9}):(?P<hs>\d{1,9})"
    r"|(?P<minutes>\d{1,9})(?::(?P<seconds>\d{1,9}))?)",
    re.ASCII,
)
_UNLIMITED: Final = frozenset({"UNLIMITED", "INFINITE", "-1"})

# Units of a time as people write it, in English and Portuguese: labextension/src/common/time_limit.ts has the same.
_TIME_UNITS: Final = {
    1: ("s", "sec", "secs", "second", "seconds", "seg", "segundo", "segundos"),
    60: ("m", "min", "mins", "minute", "minutes", "minuto", "minutos"),
    3600: ("h", "hr", "hrs", "hour", "hours", "hora", "horas"),
    86_400: ("d", "day", "days", "dia", "dias"),
    604_800: ("w", "week", "weeks", "semana", "semanas"),
}
_SECONDS_OF: Final = {word: seconds for seconds, words in _TIME_UNITS.items() for word in words}
_TIME_PART = re.compile(r"(\d{1,6}(?:[.,]\d{1,3})?) ?([a-z]+)(?: |,|\band\b|\be\b)*", re.ASCII)
_TIME_REST = re.compile(r"(?<=h)(\d{1,2})$", re.ASCII)  # 1h30

# sacct wrote "4Gn" (for a node) and "4Gc" (for a CPU) until 21.08.
_MEMORY = re.compile(r"(\d{1,18}(?:\.\d{1,9})?)([KMGTPE]?)(?:I?B)?([NC]?)", re.ASCII | re.IGNORECASE)
_UNITS: Final = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50, "E": 1 << 60}

# Slurm's texts for a missing value.
_NOTHING: Final = frozenset({"", "(null)", "N/A", "n/a", "None", "NONE", "NULL", "UNKNOWN"})

_MAX_INDICES: Final = 4096
_GRES = re.compile(r"(?P<body>[^()]*|[^()]*\(null\)[^()]*)(?P<extras>(?:\([^()]*\))*)")
_INDICES = re.compile(r"\(IDX:([0-9,-]+)\)", re.ASCII)
_PARTS = re.compile(r"(\d{1,9})/\d{1,9}", re.ASCII)


def counted(number: int, plural: str) -> str:
    """Return a number with its noun: ``1 tunnel``, ``2 tunnels``. The plural ends with -s."""
    return f"{number} {plural.removesuffix('s') if number == 1 else plural}"


def parse_time_limit(text: str) -> int | None:
    """Parse a time limit in any of Slurm's forms.

    Parameters
    ----------
    text : str
        ``minutes``, ``minutes:seconds``, ``hours:minutes:seconds``, ``days-hours``, ``days-hours:minutes``,
        ``days-hours:minutes:seconds``, ``UNLIMITED`` or ``INFINITE``.

    Returns
    -------
    int or None
        Seconds; ``None`` for no limit.

    Raises
    ------
    UsageError
        The text has none of these forms.
    """
    stripped = text.strip()
    if stripped.upper() in _UNLIMITED:
        return None
    match = _TIME.fullmatch(stripped)
    if not match:
        raise UsageError(
            f"{text[:80]!r} is not a time limit.",
            hint="Write minutes, minutes:seconds, hours:minutes:seconds, days-hours or days-hours:minutes.",
        )
    part = {name: int(value) for name, value in match.groupdict().items() if value}
    days, hours = part.get("days", 0), part.get("dh", part.get("hours", 0))
    minutes = part.get("dm", part.get("hm", part.get("minutes", 0)))
    seconds = part.get("ds", part.get("hs", part.get("seconds", 0)))
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_duration(text: str) -> int | None:
    """Parse a time as people write it, or in any of Slurm's forms.

    Parameters
    ----------
    text : str
        ``4h``, ``4 hours``, ``30 min``, ``1d 2h``, ``1h30``, ``1.5 h``, in Portuguese, too; or as for
        :func:`parse_time_limit`: a number without a unit means minutes.

    Returns
    -------
    int or None
        Seconds; ``None`` for no limit.

    Raises
    ------
    UsageError
        The text is not a time.
    """
    rest = _TIME_REST.sub(r"\1m", " ".join(text.lower().split()))
    total = 0.0
    while found := _TIME_PART.match(rest):
        if found[2] not in _SECONDS_OF:
            break
        total += float(found[1].replace(",", ".")) * _SECONDS_OF[found[2]]
        rest = rest[found.end() :]
    if total and not rest:
        return round(total)
    try:
        return parse_time_limit(text)
    except UsageError:
        raise UsageError(
            f"{text[:80]!r} is not a time.", hint="Write for example 4h, 90 min, 1d 12h, 4:00:00 or 1-12:00:00."
        ) from None


def duration_words(seconds: float) -> str:
    """Return a time with its units: ``90 min``, ``24 h``, ``2 d 4 h``."""
    total = round(seconds)
    if 0 < total < 7200 and total % 60 == 0 and total % 3600:
        return f"{total // 60} min"
    if 0 < total < 172_800 and total % 3600 == 0:
        return f"{total // 3600} h"
    sizes = {"d": 86_400, "h": 3600, "min": 60, "s": 1}
    parts = []
    for unit, size in sizes.items():
        count, total = divmod(total, size)
        parts += [f"{count} {unit}"] if count else []
    return " ".join(parts) or "0 min"


def format_duration(seconds: float) -> str:
    """Format a length of time as squeue does: ``1-02:03:04``, ``2:03:04``, ``3:04``; ``--time`` reads all of them."""
    minutes, second = divmod(max(0, int(seconds)), 60)
    hours, minute = divmod(minutes, 60)
    days, hour = divmod(hours, 24)
    if days:
        return f"{days}-{hour:02}:{minute:02}:{second:02}"
    return f"{hour}:{minute:02}:{second:02}" if hour else f"{minute}:{second:02}"


def format_time_limit(seconds: float | None) -> str:
    """Format a time limit: as a duration, or ``UNLIMITED`` where there is none."""
    return "UNLIMITED" if seconds is None else format_duration(seconds)


def parse_memory(text: str, default_unit: str = "M") -> int:
    """Parse an amount of memory, in bytes.

    Parameters
    ----------
    text : str
        ``4G``, ``1500``, ``62.50G``, ``4Gn`` …
    default_unit : str
        Unit of a number without one: ``M`` as in ``--mem`` and ``scontrol``, or empty for bytes.

    Raises
    ------
    UsageError
        The text is not an amount of memory.
    """
    match = _MEMORY.fullmatch(text.strip())
    if not match:
        raise UsageError(
            f"{text[:80]!r} is not an amount of memory.", hint="Write a number and K, M, G or T, for example 4G."
        )
    return _times_unit(match[1], match[2] or default_unit)


def _times_unit(number: str, unit: str) -> int:
    whole, _, fraction = number.partition(".")
    factor = _UNITS.get(unit.upper(), 1)
    return int(whole) * factor + int(fraction or 0) * factor // int(10 ** len(fraction))


def format_memory(size: int) -> str:
    """Format bytes for Slurm: in the largest exact unit, at least kibibytes (rounded up)."""
    kibibytes = -(-size // 1024)
    for unit in "KMGTP":
        if kibibytes % 1024 or not kibibytes or unit == "P":
            return f"{kibibytes}{unit}"
        kibibytes //= 1024
    raise AssertionError("unreachable")


def parse_count(text: str) -> int | None:
    """Parse a number in Slurm's notation: ``8``, ``1.50K``; ``None`` if the text is not a number."""
    if text.isascii() and text.isdecimal() and len(text) <= 18:
        return int(text)
    match = _MEMORY.fullmatch(text.strip())
    return _times_unit(match[1], match[2]) if match else None


def parse_epoch(text: str) -> int | None:
    """Parse a time printed with ``SLURM_TIME_FORMAT=%s``; ``None`` for ``N/A``, ``Unknown``, ``NONE`` …"""
    stripped = text.strip()
    if not re.fullmatch(r"\d{1,12}", stripped, re.ASCII):
        return None
    # Zero means "not set" to Slurm.
    return int(stripped) or None


def parse_exit(text: str) -> tuple[int | None, int | None]:
    """Parse the exit of a job's script.

    Parameters
    ----------
    text : str
        ``3:0``, ``0:9`` as sacct, scontrol and newer versions of squeue write it, or the number of wait(2) that
        ``squeue -O exit_code`` printed until 22.05.

    Returns
    -------
    exit_code, signal : int or None
        With a signal, the exit code is 0, as Slurm shows it. Both are ``None`` if the text has neither form.
    """
    first, colon, second = text.strip().partition(":")
    if not (first.isascii() and first.isdecimal()) or (colon and not (second.isascii() and second.isdecimal())):
        return None, None
    if colon:
        return parse_count(first), parse_count(second)
    status = parse_count(first)
    if status is None or status > 0xFFFF:
        # NO_VAL
        return None, None
    signal = status & 0x7F
    return (0, signal) if signal else (status >> 8, 0)


def present(value: str) -> str:
    """Return the text, or an empty string if Slurm printed a word for a missing value."""
    return "" if value in _NOTHING else value


@lru_cache(maxsize=256)
def read_time_limit(text: str) -> int | None:
    """Parse a time limit in Slurm's output, in seconds; ``None`` for UNLIMITED, NOT_SET, INVALID or Partition_Limit."""
    try:
        return parse_time_limit(text)
    except UsageError:
        return None


def split_outside_brackets(text: str, separator: str = ",") -> Iterator[str]:
    """Split at a separator outside brackets and parentheses: ``n[1,3],m`` gives ``n[1,3]`` and ``m``."""
    depth, start = 0, 0
    for position, character in enumerate(text):
        if character in "([":
            depth += 1
        elif character in ")]":
            depth = max(0, depth - 1)
        elif character == separator and not depth:
            yield text[start:position]
            start = position + 1
    yield text[start:]


def parse_tres(text: str) -> dict[str, int]:
    """Parse trackable resources.

    Parameters
    ----------
    text : str
        ``cpu=4,mem=8G,node=1,billing=4,gres/gpu:a100=2``; also the ``gres:gpu:a100:2`` of ``--tres-per-node``.

    Returns
    -------
    dict
        Name to number. Memory (``mem``, ``vmem``, ``bb/…``, ``fs/…``) is in bytes. Resources without a number are left
        out.
    """
    found: dict[str, int] = {}
    for item in split_outside_brackets(text.strip()):
        name, equals, value = item.strip().partition("=")
        if not equals:
            # gres:gpu:a100:2, gres/gpu:2: the last part is the number; without a number, it is one.
            head, _, value = name.rpartition(":")
            if not head.startswith("gres") or parse_count(value) is None:
                head, value = name, "1"
            if not head.startswith("gres"):
                continue
            name = head.replace("gres:", "gres/", 1)
        if not name:
            continue
        number = _tres_number(name, value)
        if number is not None:
            found[name] = number
    return found


def _tres_number(name: str, value: str) -> int | None:
    if name.startswith(("mem", "vmem", "bb/", "fs/")):
        try:
            return parse_memory(value)
        except UsageError:
            return None
    return parse_count(value)


@dataclass(frozen=True)
class Gres:
    """A generic resource: ``gpu:a100:2(IDX:0-1)``.

    Parameters
    ----------
    name : str
        ``gpu``, ``shard``, ``mps``, ``craynetwork`` …
    type : str or None
    count : int
        One, if no count is given.
    indices : tuple of int
        Indices on the node (``IDX``), if Slurm printed them.
    devices_in_use : int
        Number of GPUs with parts in use, if Slurm printed the parts of each (``(2/4,1/4,0/4)``); else 0.
    """

    name: str
    type: str | None = None
    count: int = 1
    indices: tuple[int, ...] = ()
    devices_in_use: int = 0

    def __str__(self) -> str:
        return ":".join([self.name, *([self.type] if self.type else []), str(self.count)])


def parse_gres(text: str) -> list[Gres]:
    """Parse a list of generic resources, in the form of ``--gres``, ``sinfo`` or ``scontrol``.

    Unreadable parts are left out; nothing raises. ``gres/gpu:a100=2`` and ``gres:gpu:a100:2`` are understood too.
    """
    if text.strip() in _NOTHING:
        return []
    parsed = (_parse_one_gres(item.strip()) for item in split_outside_brackets(text.strip()))
    return [gres for gres in parsed if gres is not None]


def _parse_one_gres(item: str) -> Gres | None:
    match = _GRES.fullmatch(item)
    if not match:
        return None
    body, extras = match["body"], match["extras"]
    body = body.replace("gres/", "", 1).removeprefix("gres:").replace("=", ":")
    # "no_consume" is a flag of the node's configuration, "(null)" the type of a resource without types.
    words = [word for word in body.split(":") if word not in ("no_consume", "(null)")]
    count = parse_count(words[-1]) if len(words) > 1 else None
    if count is not None:
        words.pop()
    if not words[0]:
        return None
    kind = ":".join(words[1:]) or None
    in_use = sum(int(used) > 0 for used in _PARTS.findall(extras))
    return Gres(words[0], kind, 1 if count is None else count, _indices(extras), in_use)


def _indices(extras: str) -> tuple[int, ...]:
    match = _INDICES.search(extras)
    found: list[int] = []
    for piece in match[1].split(",") if match else ():
        text, dash, end = piece.partition("-")
        first, last = parse_count(text), parse_count(end if dash else text)
        if first is None or last is None:
            continue
        if last + 1 - first > _MAX_INDICES - len(found):
            return ()
        found.extend(range(first, last + 1))
    return tuple(found)
