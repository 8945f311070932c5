"""Frames in Slurm's output that no name, comment or reason can imitate.

Slurm's text formats have no quoting: a job name may contain any separator, a newline, or text that looks like a whole
row. So each query has a fresh random mark, chosen by the caller after the jobs got their names. The mark ends every
field and record. Newlines then have no meaning.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jupyter_slurm.errors import ParseError

__all__ = ["check_mark", "decode", "delimited_records", "field_end", "framed_records", "long_format", "record_end"]

_MARK = re.compile(r"[0-9a-f]{8,64}", re.ASCII)


def check_mark(mark: str) -> str:
    """Return the mark if it has 8 to 64 lower-case hexadecimal digits.

    Upper case is excluded: a ``C`` anywhere in ``squeue -o`` makes the controller send details of each job
    (``SHOW_DETAIL``).

    Raises
    ------
    ValueError
        The mark is not valid: an error of the caller.
    """
    if not _MARK.fullmatch(mark):
        raise ValueError("a mark is 8 to 64 lower-case hexadecimal digits")
    return mark


def decode(output: bytes) -> str:
    """Decode the output of a command: UTF-8, other bytes as surrogate escapes, so that nothing is lost."""
    return output.decode("utf-8", "surrogateescape")


def field_end(mark: str) -> str:
    """Return the end of each field but the last. It does not begin with a digit, because a width precedes it."""
    return f"~{mark}~"


def record_end(mark: str) -> str:
    """Return the end of a record's last field."""
    return f"~{mark};"


def long_format(fields: Sequence[str], mark: str) -> str:
    """Return the value of ``-O``/``--Format`` of squeue and sinfo: each field at any width, ended by the mark."""
    check_mark(mark)
    ends = [field_end(mark)] * (len(fields) - 1) + [record_end(mark)]
    return ",".join(f"{field}:0{end}" for field, end in zip(fields, ends, strict=True))


def framed_records(output: bytes, mark: str, width: int) -> list[list[str]]:
    """Split output printed with :func:`long_format`, or with the same ends in a short format.

    Lines before the first record (a banner) and text after the last record are dropped.

    Raises
    ------
    ParseError
        A record does not have `width` fields, or the text stops within a record.
    """
    check_mark(mark)
    *rows, rest = decode(output).split(record_end(mark))
    if field_end(mark) in rest:
        raise ParseError("The answer of Slurm ends in the middle of a record.")
    records = []
    for row in rows:
        fields = row.split(field_end(mark))
        if len(fields) != width:
            raise ParseError(f"A record of Slurm has {len(fields)} fields, not {width}.")
        # The newline of the previous record, or lines that Slurm did not print.
        fields[0] = fields[0].rpartition("\n")[2]
        records.append(fields)
    return records


def delimited_records(output: bytes, mark: str, width: int) -> list[list[str]]:
    """Split output of ``sacct -p --delimiter=…``: a delimiter follows every field, including the last.

    Raises
    ------
    ParseError
        The number of fields is not a multiple of `width`.
    """
    check_mark(mark)
    *fields, _ = decode(output).split(field_end(mark))
    if len(fields) % width:
        raise ParseError(f"The answer of Slurm has {len(fields)} fields, which is not a multiple of {width}.")
    records = [fields[start : start + width] for start in range(0, len(fields), width)]
    for record in records:
        record[0] = record[0].rpartition("\n")[2]
    return records
