"""Local directories created in advance."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_slurm.transport.local.atomic_write import draft_name
from jupyter_slurm.transport.local.transport import LocalTransport


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


def _hidden(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if path.name.startswith(".")]


async def _prepared(transport: LocalTransport, folder: Path) -> Path:
    """Return the draft for the next command, once usable: its files exist before."""
    async with asyncio.timeout(60):
        while str(folder) not in transport._drafts._prepared:
            await asyncio.sleep(0.01)
    found = Path(transport._drafts._prepared[str(folder)]._path)
    assert len(list(found.iterdir())) == 4
    return found


async def _run(transport: LocalTransport, folder: Path, *, files: int = 2) -> dict[str, bytes]:
    brought = {f"file-{index}": b"%d" % index for index in range(files)}
    once = await transport.start_detached(
        str(folder / "run"), ["/bin/sh", "-c", "echo out; echo err >&2"], files=brought
    )
    done = await once.result(60)
    assert done is not None
    assert (done.exit_code, done.stdout, done.stderr) == (0, b"out\n", b"err\n")
    assert once.lock is not None
    once.lock.release()
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("files", [1, 2, 3, 9])
async def test_the_next_folder_is_there_before_it_is_needed(
    transport: LocalTransport, tmp_path: Path, files: int
) -> None:
    await _run(transport, tmp_path / "first")
    ready = await _prepared(transport, tmp_path)
    inode = ready.stat().st_ino
    whole = {f"file-{index}": b"%d" % index for index in range(files)} | {"run.out": b"out\n", "run.err": b"err\n"}
    assert await _run(transport, tmp_path / "second", files=files) == whole
    assert (tmp_path / "second").stat().st_ino == inode
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "second").iterdir()} == {0o600}
    assert (await _prepared(transport, tmp_path)).name != ready.name


@pytest.mark.parametrize("harm", [shutil.rmtree, lambda path: (path / ".0").unlink()])
async def test_one_that_somebody_has_removed_is_made_anew(
    transport: LocalTransport, tmp_path: Path, harm: Callable[[Path], object]
) -> None:
    await _run(transport, tmp_path / "first")
    harm(await _prepared(transport, tmp_path))
    assert sorted(await _run(transport, tmp_path / "second")) == ["file-0", "file-1", "run.err", "run.out"]


async def test_nothing_is_left_of_it_where_the_name_is_taken_or_the_transport_ends(
    transport: LocalTransport, tmp_path: Path
) -> None:
    await _run(transport, tmp_path / "first")
    await _prepared(transport, tmp_path)
    with pytest.raises(FileExistsError):
        await transport.start_detached(str(tmp_path / "first" / "run"), ["true"], files={"file-0": b""})
    assert _hidden(tmp_path) == []
    await _run(transport, tmp_path / "second")
    await _prepared(transport, tmp_path)
    transport.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["first", "second"]


async def test_the_draft_of_a_killed_process_goes_with_the_next_command(
    transport: LocalTransport, tmp_path: Path
) -> None:
    made = "from jupyter_slurm.transport.local.atomic_write import FileDrafts; import os, signal, sys\n"
    made += "FileDrafts().prepare(sys.argv[1]); os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", made, str(tmp_path)], check=False)
    (left,) = _hidden(tmp_path)
    foreign = [tmp_path / f".{'0' * 16}.tmp", tmp_path / ".of-somebody-else.tmp", tmp_path / draft_name()]
    for path in foreign:
        path.mkdir()  # of another machine, of another program, and of this process
    await _run(transport, tmp_path / "first")
    await _prepared(transport, tmp_path)
    assert not left.exists()
    assert all(path.exists() for path in foreign)


def test_no_two_drafts_of_a_process_have_the_same_name() -> None:
    assert len({draft_name() for _ in range(5000)}) == 5000
