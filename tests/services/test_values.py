"""The file in which values travel, as the runner writes and reads it: with and without cloudpickle."""

from __future__ import annotations

import io
import json
import os
import resource
import subprocess
import sys
from importlib import resources
from pathlib import Path

import pytest

from jupyter_slurm.errors import JobError, UsageError
from jupyter_slurm.handles.values import read_outputs
from jupyter_slurm.runner import values
from jupyter_slurm.services.ownership import read_own

FILE = str(resources.files("jupyter_slurm.runner").joinpath("values.py"))


def _file(*items: tuple[dict, list]) -> bytes:
    header = json.dumps({"format": 1, "python": "3.11.2", "items": [item for item, _ in items]}).encode()
    pieces = b"".join(bytes(piece) for _, pieces in items for piece in pieces)
    return values.MAGIC + len(header).to_bytes(8, "big") + header + pieces


def test_arrays_travel_beside_their_pickle_without_a_second_copy() -> None:
    array = __import__("numpy").arange(100_000)
    item, pieces = values.pack("array", array)
    assert item["sizes"][1] == array.nbytes
    array[0] = 7
    assert memoryview(pieces[1]).cast("B")[0] == 7, "it is a view"
    content = bytearray(_file((item, pieces)))
    for file in (io.BytesIO(content), values.Content(content)):
        header, found = values.read(file)
        back = values.unpack(*found[0], header)
        assert (back == array).all()
        back[0] = 8  # it can be changed
    content[-8:] = bytes(8)
    assert back[-1] == 0, "it stays where it was received"


def test_a_large_value_is_written_without_a_second_copy(tmp_path: Path) -> None:
    """Written by a process that may not have twice as much."""
    code = (
        f"import sys; sys.path[:0] = [{os.path.dirname(FILE)!r}]\nimport pickle, resource, values\n"
        "class Large:\n    def __init__(self): self.raw = bytearray(2**29 + 5)\n"
        "    def __reduce_ex__(self, _): return bytearray, (pickle.PickleBuffer(self.raw),)\n"
        "large = Large()\nlarge.raw[-1] = 9\n"
        f"values.leave({str(tmp_path / 'out.values')!r}, ['large'], vars(), 2**32, set())\n"
    )
    limit = 9 * 2**27
    subprocess.run(
        [sys.executable, "-c", code],
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
    )
    assert (tmp_path / "out.values").stat().st_size > 2**29


def test_a_file_that_is_cut_is_no_file(tmp_path: Path) -> None:
    whole = _file(values.pack("x", b"a" * 100))
    for length in (0, 10, len(values.MAGIC) + 4, len(whole) - 1):
        for file in (io.BytesIO(whole[:length]), values.Content(bytearray(whole[:length]))):
            with pytest.raises(values.Unreadable):
                values.read(file)


_ITEM = {"kind": "pickle", "name": "x", "sizes": [4]}


@pytest.mark.parametrize(
    "header",
    [
        b"",
        b"\xff\xfe",
        b"[" * 100_000,
        b"[]",
        b"null",
        b'{"items": []}',
        b'{"python": 3, "items": []}',
        *(
            json.dumps({"python": "3.11.2", "items": items}).encode()
            for items in (
                None,
                {"x": 1},
                ["x"],
                [{}],
                [{**_ITEM, "name": None}],
                [{**_ITEM, "kind": "other"}],
                [{**_ITEM, "kind": ["pickle"]}],
                [{**_ITEM, "sizes": "4"}],
                [{**_ITEM, "sizes": [-1]}],
                [{**_ITEM, "sizes": [True]}],
                [{**_ITEM, "sizes": []}],
                [{**_ITEM, "sizes": [1 << 61]}],
                [{**_ITEM, "sizes": [1 << 70]}],
                [{"kind": "source", "name": "x", "source": "raise SystemExit", "filename": "f"}],
            )
        ),
    ],
)
def test_a_header_that_is_torn_or_of_somebody_else_is_an_error_of_ours(header: bytes) -> None:
    content = bytearray(values.MAGIC + len(header).to_bytes(8, "big") + header + b"1234")
    with pytest.raises(JobError, match="The values of the job cannot be read") as raised:
        read_outputs(content)
    assert raised.value.hint


def test_one_odd_value_takes_no_other_with_it() -> None:
    outputs = read_outputs(bytearray(_file(values.pack("x", 1), (_ITEM, [b"junk"]))))
    assert outputs == {"x": 1}
    outputs = read_outputs(bytearray(_file(({**_ITEM, "name": "bad"}, [b"junk"]), values.pack("y", 2))))
    assert (dict(outputs), list(outputs.errors)) == ({"y": 2}, ["bad"])


def test_values_are_read_from_a_private_file_only(tmp_path: Path) -> None:
    path = tmp_path / "in.values"
    values.write(str(path), [values.pack("x", 1)])
    assert read_own(str(path)).startswith(values.MAGIC)
    (tmp_path / "link").symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for other in ("link", "pipe", "nowhere"):
        with pytest.raises(UsageError):
            read_own(str(tmp_path / other))
    (tmp_path / "secret").touch(0o600)
    with pytest.raises(UsageError):
        read_own(str(tmp_path / "secret"))
    path.chmod(0o644)
    with pytest.raises(UsageError):
        read_own(str(path))
