"""Tests of the index: full and read-only disks, locks, damage, and the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_slurm.services.jobdir import index_file
from jupyter_slurm.services.jobdir.index import JobIndex
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile

# Another process: runs a statement on the file, says so, and holds the transaction until its standard input ends.
_HOLDER = """
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute(sys.argv[2])
print("held", flush=True)
sys.stdin.read()
"""


def _record(key: str, **more: object) -> JobRecordFile:
    known = {"format": 1, "key": key, "kind": "script", "created": 0.0, "script": "cell.sh", "argv": ["sbatch"]}
    return JobRecordFile.from_json({**known, "events": "e", "outputs": {"stdout": "o", "stderr": None}, **more})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "index-host.sqlite"


@contextlib.contextmanager
def held(path: Path, statement: str) -> Iterator[None]:
    """Have another process hold the file."""
    arguments = [sys.executable, "-c", _HOLDER, str(path), statement]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        try:
            assert other.stdout.readline() == b"held\n"
            yield
        finally:
            other.stdin.close()


@contextlib.contextmanager
def mounted(folder: Path, *arguments: str) -> Iterator[None]:
    folder.mkdir(exist_ok=True)
    subprocess.run(["mount", *arguments, str(folder)], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


async def keys(path: Path) -> set[str]:
    """Return what the next agent finds."""
    index = JobIndex(str(path))
    await index.open()
    try:
        return set(await index.finished("here"))
    finally:
        await index.close()


async def remembered(path: Path, *names: str) -> None:
    index = JobIndex(str(path))
    await index.open()
    for name in names:
        index.remember("here", name, _record(name))
    await index.close()


async def test_what_was_remembered_is_found_and_what_was_forgotten_is_not(path):
    await remembered(path, "a", "b")
    index = JobIndex(str(path))
    await index.open()
    index.forget("here", "a")
    index.remember("there", "c", _record("c"))
    assert set(await index.finished("here")) == {"b"}
    await index.close()
    assert await keys(path) == {"b"}
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.root
async def test_full_disk_leaves_an_index_in_memory_that_is_written_later(tmp_path, caplog):
    disk = tmp_path / "state"
    with mounted(disk, "-t", "tmpfs", "-o", "size=64k,mode=700", "none"):
        with contextlib.suppress(OSError), open(disk / "filler", "wb", buffering=0) as filler:
            while filler.write(b"x" * 4096):
                pass
        index = JobIndex(str(disk / "index.sqlite"))
        await index.open()
        for key in ("a", "b"):
            index.remember("here", key, _record(key))
        index.forget("here", "a")
        assert set(await index.finished("here")) == {"b"}
        assert "Free some space" in index.problem
        assert caplog.text.count("cannot be used now") == 1
        (disk / "filler").unlink()
        index.remember("here", "c", _record("c"))
        assert set(await index.finished("here")) == {"b", "c"}
        assert index.problem == ""
        await index.close()
        assert await keys(disk / "index.sqlite") == {"b", "c"}


@pytest.mark.root
async def test_disk_that_fills_up_later_loses_no_row(tmp_path):
    disk = tmp_path / "state"
    with mounted(disk, "-t", "tmpfs", "-o", "size=256k,mode=700", "none"):
        await remembered(disk / "index.sqlite", "old")
        index = JobIndex(str(disk / "index.sqlite"))
        await index.open()
        big = {f"k{number}" for number in range(60)}
        for key in big:
            index.remember("here", key, _record(key, notebook="x" * 10_000))
        assert set(await index.finished("here")) == {"old", *big}
        assert index.problem
        await index.close()
        assert "old" in await keys(disk / "index.sqlite")


@pytest.mark.root
@pytest.mark.parametrize("exists", [True, False])
async def test_read_only_folder_leaves_an_index_in_memory(tmp_path, exists, caplog):
    disk = tmp_path / "state"
    disk.mkdir()
    if exists:
        await remembered(disk / "index.sqlite", "old")
    with mounted(disk, "--bind", str(disk)):
        subprocess.run(["mount", "-o", "remount,bind,ro", str(disk)], check=True)
        index = JobIndex(str(disk / "index.sqlite"))
        await index.open()
        for key in ("a", "b"):
            index.remember("here", key, _record(key))
        assert set(await index.finished("here")) == ({"old"} if exists else set()) | {"a", "b"}
        assert "c.JupyterSlurm.state_dir" in index.problem
        assert caplog.text.count("cannot be used now") == 1
        await index.close()


@pytest.mark.parametrize("statement", ["begin exclusive", "begin immediate"])
async def test_lock_of_another_process_is_no_damage(path, monkeypatch, statement):
    monkeypatch.setattr(index_file, "_LOCK_TIMEOUT_S", 0.1)
    await remembered(path, "a", "b")
    file = path.stat().st_ino
    index = JobIndex(str(path))
    with held(path, statement):
        await index.open()
        index.remember("here", "c", _record("c"))
        index.forget("here", "a")
        seen = await index.finished("here")
        assert set(seen) == ({"c"} if statement == "begin exclusive" else {"b", "c"})
        assert path.stat().st_ino == file
    await index.close()
    assert path.stat().st_ino == file
    assert await keys(path) == {"b", "c"}
    assert [other.name for other in path.parent.iterdir()] == [path.name]


async def test_loop_does_not_wait_for_a_write(path, monkeypatch):
    monkeypatch.setattr(index_file, "_LOCK_TIMEOUT_S", 3600.0)
    monkeypatch.setattr("jupyter_slurm.services.jobdir.index._ANSWER_TIMEOUT_S", 0.1)
    await remembered(path, "a")
    index = JobIndex(str(path))
    await index.open()
    with held(path, "begin exclusive"):
        index.remember("here", "b", _record("b"))  # with a write in the loop, this line never returns
        assert await index.finished("here") == {}
        await index.close()


def _garbage(path: Path) -> None:
    path.write_bytes(b"this is not a database" * 100)


def _torn_page(path: Path) -> None:
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 8000)


@pytest.mark.parametrize("damage", [_garbage, _torn_page])
@pytest.mark.parametrize("is_open", [False, True])
async def test_damaged_file_is_set_aside(path: Path, damage: Callable[[Path], None], is_open: bool) -> None:
    await remembered(path, *(f"{number:04}" for number in range(200)))
    index = JobIndex(str(path))
    if is_open:
        await index.open()
    damage(path)
    damaged = path.read_bytes()
    Path(f"{path}-journal").write_bytes(b"journal")
    index.remember("here", "a", _record("a"))
    assert "a" in await index.finished("here")
    await index.close()
    assert await keys(path) == {"a"}
    assert Path(f"{path}.damaged").read_bytes() == damaged
    assert not Path(f"{path}-journal").exists()


async def test_damaged_file_in_use_by_another_process_stays(path):
    await remembered(path, "a")
    _garbage(path)
    index = JobIndex(str(path))
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    arguments = [sys.executable, "-c", code, str(path)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"\n"
        await index.open()
        index.remember("here", "b", _record("b"))
        assert set(await index.finished("here")) == {"b"}
        assert "in use by another process" in index.problem
        assert [file.name for file in path.parent.iterdir()] == [path.name]
        other.stdin.close()
    await index.close()
    assert await keys(path) == {"b"}


@pytest.mark.parametrize("obstacle", ["link", "folder", "pipe"])
async def test_what_is_no_file_of_ours_is_left_alone(path, obstacle):
    path.parent.mkdir()
    if obstacle == "link":
        (path.parent / "precious").touch()
        path.symlink_to(path.parent / "precious")
    elif obstacle == "folder":
        path.mkdir()
    else:
        os.mkfifo(path)
    index = JobIndex(str(path))
    await index.open()
    index.remember("here", "a", _record("a"))
    assert set(await index.finished("here")) == {"a"}
    assert "not a file of yours" in index.problem
    await index.close()


async def test_removed_file_is_made_again(path):
    await remembered(path, "a")
    index = JobIndex(str(path))
    await index.open()
    path.unlink()
    index.remember("here", "b", _record("b"))
    await index.close()
    assert await keys(path) == {"b"}


async def test_row_that_is_not_text_hides_no_other(path):
    await remembered(path, "a", "b")
    with contextlib.closing(sqlite3.connect(path)) as database, database:
        database.execute("update job set record = cast(x'ff' as text) where key = 'a'")
    assert await keys(path) == {"b"}


async def test_two_agents_share_a_file(path):
    one, two = JobIndex(str(path)), JobIndex(str(path))
    await asyncio.gather(one.open(), two.open())
    for number in range(20):
        (one if number % 2 else two).remember("here", f"{number:02}", _record(f"{number:02}"))
    await asyncio.gather(one.close(), two.close())
    assert await keys(path) == {f"{number:02}" for number in range(20)}
