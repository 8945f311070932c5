"""Untrusted files of a job directory: a job can write anything, of any size."""

from __future__ import annotations

import math
import re
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, NoReturn, TypeVar

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport
from jupyter_slurm.transport.owned_files import ENTER_OWNED_FOLDER, UNTRUSTED, untrusted_file

__all__ = ["parse_record", "parse_untrusted", "read_files", "read_time", "read_untrusted", "read_whole"]

_T = TypeVar("_T")

_MAX_FILE_BYTES = 16 << 20  # bytes; a sparse file of a terabyte takes no disk space
_MAX_OWN_FILE_BYTES = (
    64 << 20
)  # bytes of files written by jupyter_slurm, without values: a script has 4 MiB, up to six times as much as JSON
_MAX_NUMBER_DIGITS = 18
_MAX_INODE_DIGITS = 20
_MAX_TIME = 1 << 37  # seconds since the epoch

# The folder itself comes first: its owner is that of all files which are believed.
_TAR = ENTER_OWNED_FOLDER + 'js_enter "$1" || exit\nexec tar --no-recursion -cf - . -T -'
_BLOCK_BYTES = 512  # of tar
_MAX_PAX_BYTES = 10_000
_PAX_UID = re.compile(rb" uid=([0-9]{1,10})\n")


async def read_untrusted(transport: Transport, path: str, limit: int = _MAX_FILE_BYTES) -> Any:
    """Read a JSON file of the job directory.

    Raises
    ------
    FileNotFoundError, TransportError
        The file does not exist, or cannot be read, or another user can have written it.
    ValueError
        The file is not JSON, or has NaN or infinite numbers, which browsers reject.
    """
    return await call_off_loop(parse_untrusted, await transport.read_owned(path, 0, limit))


async def read_whole(transport: Transport, path: str, limit: int = _MAX_OWN_FILE_BYTES) -> bytes:
    """Read a file that jupyter_slurm wrote and the job may have changed.

    Raises
    ------
    FileNotFoundError, TransportError
        The file does not exist, or cannot be read, or another user can have written it.
    UsageError
        The file is longer than ``limit`` bytes, so the job has changed it.
    """
    raw = await transport.read_owned(path, 0, limit + 1)
    if len(raw) > limit:
        raise UsageError(
            f"{path} was not read, because it is larger than {limit / 1000000.0:.0f} MB.",
            hint="Check the file: after the submission, only the job or you can have written to it.",
        )
    return raw


async def read_files(
    transport: Transport,
    folder: str,
    names: Sequence[str],
    limits: tuple[int, int],
    parse: Callable[[bytes], _T],
) -> dict[str, _T]:
    """Return the parsed contents of many small files, read with one command; missing files are left out.

    The command also checks the folder: see :mod:`jupyter_slurm.transport.owned_files`. ``limits`` are the bytes of one
    file and of all of them; what exceeds them is left out.
    """
    if not names:
        return {}
    listed = "".join(f"{name}\n" for name in names).encode()
    done = await transport.run(["/bin/sh", "-c", _TAR, "sh", folder], stdin=listed)
    if done.exit_code == UNTRUSTED:
        raise untrusted_file(folder, printable(done.stderr.decode("utf-8", "replace").strip()))

    def read(archive: bytes) -> dict[str, _T]:
        return {name: parse(content) for name, content in _members(archive, set(names), limits)}

    return await call_off_loop(read, done.stdout)


def _members(archive: bytes, names: set[str], limits: tuple[int, int]) -> Iterator[tuple[str, bytes]]:
    """Yield the requested files of an archive that a cluster sent.

    ``tarfile.open`` is not for such an archive: it expands sparse files, and its patterns for extended headers take
    quadratic time.
    """
    place, room, uid, folder = 0, limits[1], None, None
    while place < len(archive) and archive[place] != 0:
        try:
            member = tarfile.TarInfo.frombuf(archive[place : place + _BLOCK_BYTES], "utf-8", "surrogateescape")
        except tarfile.TarError as error:
            raise _torn(error) from error
        begin = place + _BLOCK_BYTES
        place = begin + -(-member.size // _BLOCK_BYTES) * _BLOCK_BYTES
        if member.size < 0 or begin + member.size > len(archive):
            raise _torn("the archive ends within a file")
        if member.type == tarfile.XHDTYPE:  # an ID of a user may have more digits than the header has room for
            found = _PAX_UID.search(archive, begin, begin + min(member.size, _MAX_PAX_BYTES))
            uid = int(found[1]) if found else None
            continue
        member.uid, uid = member.uid if uid is None else uid, None
        if folder is None:
            folder = member  # the checked one
            continue
        is_others = member.uid != folder.uid or member.mode & (folder.mode & 0o011) << 1
        is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.name in names
        if is_file and not is_others and member.size <= min(room, limits[0]):
            names.discard(member.name)
            room -= member.size
            yield member.name, archive[begin : begin + member.size]
    if folder is None:
        raise _torn("the answer is empty")


def _torn(why: object) -> TransportError:
    return TransportError(
        f"The files of the tasks could not be read: {why}.", hint="Try again when the connection is back."
    )


def parse_untrusted(raw: bytes) -> Any:
    """Parse the content; see :func:`read_untrusted`."""
    return parse_json(raw, parse_constant=_refuse, parse_float=_finite, parse_int=partial(_whole, _MAX_NUMBER_DIGITS))


def parse_record(raw: bytes) -> Any:
    """Parse job.json, which has inodes of 64 bits, and paths that are not UTF-8; see :func:`read_untrusted`."""
    whole = partial(_whole, _MAX_INODE_DIGITS)
    return parse_json(raw, errors="surrogateescape", parse_constant=_refuse, parse_float=_finite, parse_int=whole)


def _whole(max_digits: int, text: str) -> int:
    if len(text.lstrip("-")) > max_digits:
        raise ValueError(f"{text[:20]} is too large for a number")
    return int(text)


def read_time(value: object) -> float:
    """Return a time of such a file in seconds since the epoch.

    Raises
    ------
    TypeError
        The value is not a number, or not a time that a calendar has.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _MAX_TIME:
        raise TypeError("a time is not a number of seconds since 1970")
    return value


def _refuse(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    if math.isinf(number := float(text)):
        raise ValueError(f"{text[:20]} is too large for a number")
    return number
