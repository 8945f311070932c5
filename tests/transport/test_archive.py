"""Tests of what a hostile host may send as a tar archive."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.domain.storage.transfer_rules import FILE, Entry
from jupyter_slurm.errors import CommandError
from jupyter_slurm.transport.archive import Archive


class Host:
    """A host that sends these bytes, whatever it is asked for, and then the end of the command."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pipe(self, argv: Sequence[str], *_: Any) -> Host:
        self._file = io.BytesIO(b"\n" + self._data + bytes(10_240) + argv[-1].encode("ascii"))
        return self

    def recv(self, size: int) -> bytes:
        """Return data up to the end of a word, as a connection may."""
        data = self._file.read(size)
        at = data.find(b"jupyter-slurm-end") + len(b"jupyter-slurm-end")
        if at >= len(b"jupyter-slurm-end"):
            self._file.seek(at - len(data), os.SEEK_CUR)
            data = data[:at]
        return data

    def sendall(self, data: bytes) -> None:
        pass

    def shutdown_write(self) -> None:
        pass

    def close(self) -> None:
        pass


def member(name: str, kind: bytes, content: bytes = b"", **fields: bytes) -> bytes:
    """Return a header with its content; ``fields`` are raw: ``size`` and ``mtime`` of 12 bytes."""
    about = tarfile.TarInfo(name)
    about.type, about.size = kind, len(content)
    head = bytearray(about.tobuf(tarfile.USTAR_FORMAT))
    for field, raw in fields.items():
        at = {"size": 124, "mtime": 136}[field]
        head[at : at + 12] = raw
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head)
    return bytes(head) + content + bytes(-len(content) % 512)


def pax(text: str) -> bytes:
    record = f" {text}\n"
    size = next(size for size in range(10_000) if len(f"{size}{record}") == size)
    return member("x", tarfile.XHDTYPE, f"{size}{record}".encode("ascii"))


def receive(data: bytes, folder: Path, size: int = 1) -> None:
    host: Any = Host(data)
    Archive(host, str(folder), "/far", lambda done: None)._run({"a": Entry(FILE, size, 0)}, is_pull=True)


FILE_A = member("./a", tarfile.REGTYPE, b"1")
LONG_NAME = member("././@LongLink", tarfile.GNUTYPE_LONGNAME, b"a\0")
NEGATIVE, HUGE = b"\xff" * 12, b"\x80" + b"\x7f" * 11


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(pax("comment=x") * 2000 + FILE_A, id="a chain of headers"),
        pytest.param(LONG_NAME * 2000 + FILE_A, id="a chain of long names"),
        pytest.param(pax("mtime=inf") + FILE_A, id="an endless time"),
        pytest.param(pax("GNU.sparse.major=1") + pax("GNU.sparse.minor=0") + FILE_A, id="a map of holes"),
        pytest.param(member("./a", tarfile.GNUTYPE_SPARSE), id="a sparse file"),
        pytest.param(member("./a", tarfile.REGTYPE, b"1", mtime=HUGE), id="a time that no file has"),
        pytest.param(member("./a", tarfile.REGTYPE, size=NEGATIVE), id="a negative size"),
        pytest.param(FILE_A * 2, id="a file twice"),
        pytest.param(member("x", tarfile.GNUTYPE_LONGNAME, b"a" * 100_000) + FILE_A, id="a name without end"),
    ],
)
def test_headers_that_tar_does_not_make_are_refused(data: bytes, tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="not asked for"):
        receive(data, tmp_path)


def test_a_file_may_have_any_content(tmp_path: Path) -> None:
    """Also a word by which an end was known before, at the end of what has arrived."""
    content = b"jupyter-slurm-end\n" * 1000
    receive(member("./a", tarfile.REGTYPE, content), tmp_path, len(content))
    assert (tmp_path / "a").read_bytes() == content
