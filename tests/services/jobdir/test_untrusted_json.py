"""Large JSON of a job: the event loop goes on while it is parsed, and its size is limited."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from jupyter_slurm.errors import ParseError, UsageError
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_written_files import parse_untrusted
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.transport.local.transport import LocalTransport

KEY = "20260101-000000-0123456789"


def write_record(tmp_path: Path, content: bytes) -> JobFolder:
    (tmp_path / KEY).mkdir()
    (tmp_path / KEY / "job.json").write_bytes(content)
    return JobFolder(str(tmp_path / KEY))


async def test_the_loop_goes_on_while_a_large_record_is_parsed(tmp_path: Path) -> None:
    folder = write_record(tmp_path, json.dumps({"format": 1, "more": list(range(600_000))}).encode())
    transport, gaps, last = LocalTransport(), [0.0], time.monotonic()
    loading = asyncio.create_task(folder.load(transport))
    begun = time.monotonic()
    while not loading.done():
        await asyncio.sleep(0.001)
        gaps.append(time.monotonic() - last)
        last = time.monotonic()
    took = last - begun
    with pytest.raises(ParseError, match="is not a job record"):
        loading.result()
    assert max(gaps) < took / 2, "the loop stood still for most of the time"
    transport.close()


async def test_a_record_of_more_bytes_or_lists_than_any_of_ours_is_refused(tmp_path: Path) -> None:
    folder = write_record(tmp_path, b'{"format": 1, "more": [' + b"[]," * 1_000_001 + b"0]}")
    transport = LocalTransport()
    with pytest.raises(ParseError, match="more than 1000000 lists and objects"):
        await folder.load(transport)
    with Path(folder.file("job.json")).open("r+b") as file:
        file.truncate(1 << 40)  # takes no space
    with pytest.raises(UsageError, match="larger than 34 MB"):
        await folder.load(transport)
    transport.close()


def test_a_large_document_means_the_same_as_a_small_one() -> None:
    document = {"é\u0000\\": [1, -2.5e3, True, None, {"a": []}, "\U0001f600"], "many": ["x" * 10] * 20_000}
    raw = json.dumps(document).encode()
    assert len(raw) > 128 << 10
    assert parse_json(raw) == parse_untrusted(raw) == document
    for wrong in (b"NaN", b"1e999", b"9" * 30, b"[" * 100_000, b"[1,"):
        for text in (wrong, b'["' + b"x" * (129 << 10) + b'", ' + wrong + b"]"):
            with pytest.raises(ValueError):  # noqa: PT011 - whatever it says
                parse_untrusted(text)
