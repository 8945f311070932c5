"""Tests with a hostile cluster: it sends something else than it has listed, by real rsync without a job."""

from __future__ import annotations

import asyncio
import os
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.domain.staging_rules import FileSignature, ResultChoice
from jupyter_slurm.errors import CommandError, TransportError
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord
from jupyter_slurm.services.staging.folder_sync import FolderSync
from jupyter_slurm.services.staging.local_folder import FolderTree
from jupyter_slurm.transport.local.transport import LocalTransport


@pytest.fixture
def sides(tmp_path: Path) -> tuple[Path, Path]:
    """Return a staged folder, with a repository, and its copy on the cluster."""
    source, dest = tmp_path / "project", tmp_path / "copy"
    (source / ".git" / "hooks").mkdir(parents=True)
    (source / "kept").mkdir()
    dest.mkdir()
    return source, dest


def folder_sync(source: Path, dest: Path, transport: Any) -> FolderSync:
    return FolderSync(
        transport, FolderRecord(source=str(source), dest=str(dest), inode=os.stat(source).st_ino), "owner"
    )


def received(sides: tuple[Path, Path], meanwhile: Any, base: dict[str, FileSignature] | None = None) -> ResultChoice:
    """Receive what the cluster has listed, after it has changed its files, or the user those of the folder."""

    async def receive() -> ResultChoice:
        transport = LocalTransport()
        try:
            sync = folder_sync(*sides, transport)
            choice, _, _ = await sync.choose(base or {}, FolderTree.read(str(sides[0])), is_pull=True)
            meanwhile()
            return await sync.receive(choice, base or {}, lambda *_: None)
        finally:
            transport.close()

    return asyncio.run(receive())


def write(path: Path, text: str, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)


def test_only_what_was_listed_is_moved_into_the_folder(sides: tuple[Path, Path]) -> None:
    source, dest = sides
    for name in ("results.txt", "honest.txt", "deep/er/a", "deep/link me", "was a file/x"):
        write(dest / name, name)
    (dest / "link").symlink_to("honest.txt")
    (dest / "honest link").symlink_to("honest.txt")
    (dest / "deep").chmod(0o555)

    def meanwhile() -> None:
        (dest / "deep").chmod(0o755)
        for name in ("results.txt", "link"):
            (dest / name).unlink()
            (dest / name).symlink_to(".git/hooks/post-checkout")
        (dest / "deep" / "link me").unlink()
        (dest / "deep" / "link me").symlink_to("../.git/config")
        (dest / "deep").chmod(0o555)

    try:
        done = received(sides, meanwhile)
    finally:
        (dest / "deep").chmod(0o755)
    assert done.refused == ["deep/link me", "link", "results.txt"]
    assert {path.name for path in source.iterdir()} == {
        *(".git", "kept", "honest.txt", "honest link", "deep", "was a file")
    }
    assert os.listdir(source / ".git" / "hooks") == []
    assert os.readlink(source / "honest link") == "honest.txt"
    assert (source / "deep" / "er" / "a").read_text() == "deep/er/a"
    assert os.listdir(source / "deep") == ["er"]
    assert (source / "deep").stat().st_mode & 0o777 == 0o555
    copied = {change.path for change in done.copied}
    assert copied >= {"honest.txt", "honest link", "deep", "deep/er", "deep/er/a", "was a file/x"}
    assert copied.isdisjoint(done.refused)


def test_a_link_to_a_directory_with_a_slash_at_its_end_is_as_listed(sides: tuple[Path, Path]) -> None:
    source, dest = sides
    write(dest / "run1" / "a", "x")
    (dest / "latest").symlink_to("run1/")
    done = received(sides, lambda: None)
    assert done.refused == []
    assert os.readlink(source / "latest") == "run1/"


def test_what_the_user_does_meanwhile_stays(sides: tuple[Path, Path], tmp_path: Path) -> None:
    source, dest = sides
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("edited", "new", "kept/file"):
        write(dest / name, "of the job")

    def meanwhile() -> None:
        write(source / "edited", "of the user")
        (source / "kept").rmdir()
        (source / "kept").symlink_to(outside)

    done = received(sides, meanwhile)
    assert (done.omitted, [change.path for change in done.copied]) == (["edited", "kept/file"], ["new"])
    assert (source / "edited").read_text() == "of the user"
    assert os.listdir(outside) == []


def test_times_modes_and_what_is_equal_are_kept(sides: tuple[Path, Path]) -> None:
    source, dest = sides
    data = os.urandom(1 << 20)
    base = dict[str, FileSignature]()
    for name, mode in (("secret", 0o600), ("program", 0o640), ("plain", 0o755)):
        (source / name).write_bytes(data)
        (source / name).chmod(mode)
        os.utime(source / name, (1e9, 1e9))
        base[name] = FileSignature(len(data), 10**9)
        (dest / name).write_bytes(data + b"more")
        (dest / name).chmod(0o755 if name == "program" else 0o644)
        os.utime(dest / name, (1.1e9, 1.1e9))
    done = received(sides, lambda: None, base)
    assert [change.path for change in done.copied] == ["plain", "program", "secret"]
    modes = {name: (source / name).stat().st_mode & 0o777 for name in base}
    assert modes == {"secret": 0o600, "program": 0o750, "plain": 0o644}
    assert {(source / name).stat().st_mtime for name in base} == {1.1e9}
    assert (source / "secret").read_bytes() == data + b"more"
    assert not (source / ".rsync-partial").exists()


def test_what_a_killed_agent_has_left_is_used_or_removed(sides: tuple[Path, Path]) -> None:
    source, dest = sides
    write(dest / "large", "0123456789" * 1000)
    sync = folder_sync(source, dest, None)
    left = Path(sync._received.path)
    write(left / ".rsync-partial" / "large", "0123456789")
    write(left / ".rsync-partial" / "temporary" / ".large.x", "0123")
    write(left / "large" / "of another kind", "x")
    write(left / "not chosen", "x")
    (left / "to a hook").symlink_to("../../.git/hooks/post-checkout")
    choice = ResultChoice()
    sync._received.make(choice)
    assert sorted(str(path.relative_to(left)) for path in left.rglob("*") if not path.is_dir()) == []
    done = received(sides, lambda: None)
    assert [change.path for change in done.copied] == ["large"]
    assert not left.parent.exists()

    # A link in its place is not followed.
    left.parent.symlink_to(dest)
    with pytest.raises(CommandError, match="Cannot write to"):
        sync._received.make(choice)


class Breaking(LocalTransport):
    """Transport whose streams break after some bytes."""

    left = 0

    def pipe(self, *args: Any, **more: Any) -> Any:
        """See :class:`jupyter_slurm.transport.base.Transport`."""
        stream, real = super().pipe(*args, **more), self
        receive = stream.recv

        def recv(size: int) -> bytes:
            data = receive(size)
            real.left -= len(data)
            if real.left < 0:
                raise ConnectionResetError("it broke")
            return data

        stream.recv = recv  # type: ignore[method-assign]
        stream.has_files = False  # type: ignore[misc]
        return stream


async def test_a_broken_transfer_is_continued(sides: tuple[Path, Path], tmp_path: Path) -> None:
    source, dest = sides
    linked = tmp_path / "linked"
    linked.symlink_to(source)  # the user may have named the folder by a link
    write(dest / "a small one", "first")
    (dest / "z").mkdir()
    (dest / "z" / "large").write_bytes(data := os.urandom(40 << 20))
    transport, sync = Breaking(), folder_sync(linked, dest, None)
    sync._transport = transport
    try:
        transport.left = 1 << 20
        choice, _, _ = await sync.choose({}, FolderTree.read(str(linked)), is_pull=True)
        transport.left = 30 << 20
        with pytest.raises(TransportError, match="it broke"):
            await sync.receive(choice, {}, lambda *_: None)
        assert (source / "a small one").read_text() == "first", "complete files are in their place"
        assert not (source / "z" / "large").exists()
        transport.left = 30 << 20
        choice, _, _ = await sync.choose({}, FolderTree.read(str(linked)), is_pull=True)
        done = await sync.receive(choice, {}, lambda *_: None)
    finally:
        transport.close()
    assert [change.path for change in done.copied] == ["z/large"]
    assert (source / "z" / "large").read_bytes() == data
    assert not (source / ".rsync-partial").exists()


@pytest.mark.root
def test_a_directory_on_another_disk_receives_its_files(sides: tuple[Path, Path]) -> None:
    source, dest = sides
    write(dest / "kept" / "file", "of the job", 0o700)
    (dest / "kept" / "link").symlink_to("file")
    os.utime(dest / "kept" / "file", (1e9, 1e9))
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(source / "kept")], check=True)
    try:
        assert received(sides, lambda: None).refused == []
        found = (source / "kept" / "file").stat()
        assert ((source / "kept" / "file").read_text(), found.st_mtime) == ("of the job", 1e9)
        assert found.st_mode & 0o777 == 0o700
        assert sorted(os.listdir(source / "kept")) == ["file", "link"]
    finally:
        subprocess.run(["umount", "--lazy", str(source / "kept")], check=True)


class HostileStream:
    """Stream of an rsync that prints messages without an end."""

    def __init__(self, code: int) -> None:
        text = b"x" * 1000 + b"\n"
        message = struct.pack("<I", (7 + code) << 24 | len(text)) + text
        self._parts = [b"\n", struct.pack("<i", 29), struct.pack("<i", 1)]
        self._message, self.sent = message * 64, 0

    def recv(self, _: int) -> bytes:
        if self._parts:
            return self._parts.pop(0)
        self.sent += len(self._message)
        return self._message if self.sent < 200 << 20 else b""  # only so that a test without a limit ends

    def sendall(self, data: bytes) -> None:
        pass

    def shutdown_write(self) -> None:
        pass

    def close(self) -> None:
        pass


class HostileTransport:
    """Transport to that rsync."""

    def __init__(self, code: int) -> None:
        self.stream = HostileStream(code)

    def pipe(self, *_: object) -> HostileStream:
        return self.stream


async def test_a_listing_without_an_end_is_stopped(sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("jupyter_slurm.services.staging.folder_sync._MAX_LISTING_BYTES", 8 << 20)
    transport = HostileTransport(2)
    with pytest.raises(CommandError, match="sent more than it had listed"):
        await folder_sync(*sides, transport).choose({}, FolderTree.read(str(sides[0])), is_pull=True)
    assert transport.stream.sent < 10 << 20


def test_a_file_that_has_become_too_large_is_stopped_and_removed(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    source, dest = sides
    monkeypatch.setattr("jupyter_slurm.services.staging.folder_sync._GROWTH_BYTES", 1 << 20)
    write(dest / "big.dat", "0123456789")
    with pytest.raises(CommandError, match="sent more than it had listed"):
        received(sides, lambda: os.truncate(dest / "big.dat", 150 << 20))
    assert {path.name for path in source.iterdir()} == {".git", "kept"}


def test_a_small_answer_that_fills_the_disk_is_stopped(
    sides: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a file that repeats the one in the folder: rsync sends a few bytes for each repetition."""
    source, dest = sides
    for name in ("_GROWTH_BYTES", "_WATCH_INTERVAL_S"):
        value = 1 << 20 if name == "_GROWTH_BYTES" else 0.02
        monkeypatch.setattr(f"jupyter_slurm.services.staging.folder_sync.{name}", value)
    data = os.urandom(1 << 20)
    (source / "log").write_bytes(data)
    os.utime(source / "log", (1e9, 1e9))
    (dest / "log").write_bytes(data)

    def meanwhile() -> None:
        with open(dest / "log", "wb") as file:
            for _ in range(400):
                file.write(data)

    with pytest.raises(CommandError, match="sent more than it had listed"):
        received(sides, meanwhile, {"log": FileSignature(len(data), 10**9)})
    assert (source / "log").read_bytes() == data
    assert not (source / ".rsync-partial").exists()
