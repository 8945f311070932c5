"""Frames that no name, comment or reason can fake.

Slurm's text formats have no quoting: a job name may hold any separator, a newline, or text that looks like a whole
row. So each question carries a fresh random mark, chosen by the caller after the jobs got their names, and the ends of
fields and records are written with it. Newlines then mean nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jupyter_slurm.errors import ParseError

__all__ = ["check_mark", "decode", "delimited_records", "field_end", "framed_records", "long_format", "record_end"]

_MARK = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def check_mark(mark: str) -> str:
    """Return the mark if it is 8 to 64 lower-case hexadecimal digits.

    No upper case: a ``C`` anywhere in ``squeue -o`` makes the controller send details of each job (``SHOW_DETAIL``).

    Raises
    ------
    ValueError
        It is not: a fault of the caller.
    """
    if not _MARK.fullmatch(mark):
        raise ValueError("a mark is 8 to 64 lower-case hexadecimal digits")
    return mark


def decode(output: bytes) -> str:
    """Decode what a command printed: UTF-8, other bytes as surrogate escapes, so that nothing is lost."""
    return output.decode("utf-8", "surrogateescape")


def field_end(mark: str) -> str:
    """What ends each field but the last. Its first character is no digit: a field's width stands before it."""
    return f"~{mark}~"


def record_end(mark: str) -> str:
    """What ends the last field of a record."""
    return f"~{mark};"


def long_format(fields: Sequence[str], mark: str) -> str:
    """Return the value of ``-O``/``--Format`` of squeue and sinfo: each field at any width, ended by the mark."""
    check_mark(mark)
    ends = [field_end(mark)] * (len(fields) - 1) + [record_end(mark)]
    return ",".join(f"{field}:0{end}" for field, end in zip(fields, ends, strict=True))


def framed_records(output: bytes, mark: str, width: int) -> list[list[str]]:
    """Split what was printed with :func:`long_format` (or the same ends in a short format).

    What stands before the first record on other lines (a banner) and after the last one is dropped.

    Raises
    ------
    ParseError
        A record has more or fewer than `width` fields, or the text stops within one.
    """
    check_mark(mark)
    *rows, rest = decode(output).split(record_end(mark))
    if field_end(mark) in rest:
        raise ParseError("The answer of Slurm stops in the middle of a record.")
    records = []
    for row in rows:
        fields = row.split(field_end(mark))
        if len(fields) != width:
            raise ParseError(f"A record of Slurm has {len(fields)} fields, not {width}.")
        # The newline of the record before, or lines that are not Slurm's.
        fields[0] = fields[0].rpartition("\n")[2]
        records.append(fields)
    return records


def delimited_records(output: bytes, mark: str, width: int) -> list[list[str]]:
    """Split what ``sacct -p --delimiter=…`` printed: a delimiter after every field, the last one too.

    Raises
    ------
    ParseError
        The number of fields is no multiple of `width`.
    """
    check_mark(mark)
    *fields, _ = decode(output).split(field_end(mark))
    if len(fields) % width:
        raise ParseError(f"The answer of Slurm has {len(fields)} fields, which is no multiple of {width}.")
    records = [fields[start : start + width] for start in range(0, len(fields), width)]
    for record in records:
        record[0] = record[0].rpartition("\n")[2]
    return records
