"""Files of a cluster: the real program on this computer and on a login node, with names and faults of all kinds."""

from __future__ import annotations

import asyncio
import ctypes
import errno
import json
import os
import secrets
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from jupyter_slurm.errors import FileConflict, FileError, TransportError, UsageError
from jupyter_slurm.runner.login_node import files as files_program
from jupyter_slurm.runner.login_node.files import DRAFT, LENGTHS
from jupyter_slurm.services.files.answers import entries_of, error_of
from jupyter_slurm.services.files.cluster_files import ClusterFiles
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.transport.local.streams import CommandStream
from jupyter_slurm.transport.local.transport import LocalTransport

ODD = b"two\nlines \xff\xfe \x1b[31m 'q' $x"


def part(path: Path | str, *, offset: int = 0, is_last: bool = True, **more: Any) -> dict[str, Any]:
    draft = more.pop("draft", secrets.token_hex(16))
    return {"path": str(path), "draft": draft, "offset": offset, "is_last": is_last, **more}


@pytest.fixture
async def files(tmp_path: Path) -> Any:
    """Provide the files of this computer, with a home directory of the test."""
    location = ClusterLocation("here", "", "ana", str(tmp_path), "here", {})
    found = ClusterFiles(LocalTransport(), location)
    yield found
    await found.stop()


async def save(files: ClusterFiles, path: Path | str, data: bytes, **more: Any) -> Any:
    return await files.write(str(path), part(path, **more), data)


def drafts(folder: Path) -> list[bytes]:
    return [name for name in os.listdir(os.fsencode(folder)) if name.startswith(DRAFT)]


async def test_a_file_is_listed_read_and_saved(files: ClusterFiles, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"old")
    (tmp_path / "a.txt").chmod(0o640)
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    (tmp_path / "circle").symlink_to("circle")
    os.mkfifo(tmp_path / "fifo")
    found = await files.list_directory("~")
    assert (found["path"], found["is_whole"]) == (f"{tmp_path}/", True)
    entries = {entry["name"]: (entry["type"], entry["is_link"]) for entry in found["entries"]}
    assert entries == {
        "a.txt": ("file", False),
        "folder": ("directory", False),
        "link": ("directory", True),
        "circle": ("other", True),
        "fifo": ("other", False),
    }
    data, size, version = await files.read("a.txt", 1, 10)
    assert (data, size) == (b"ld", 3)
    entry = await save(files, tmp_path / "a.txt", b"new", version=version)
    assert (tmp_path / "a.txt").read_bytes() == b"new"
    assert (tmp_path / "a.txt").stat().st_mode & 0o777 == 0o640
    assert entry == await files.describe("./a.txt")
    with pytest.raises(FileError, match="not a regular file"):
        await files.read("fifo", 0, 1)
    with pytest.raises(FileError, match="circle"):
        await files.read("circle", 0, 1)


async def test_a_conflict_writes_nothing(files: ClusterFiles, tmp_path: Path) -> None:
    file = tmp_path / "a.txt"
    first = await save(files, file, b"first", version="")
    with pytest.raises(FileConflict, match="exists already"):
        await save(files, file, b"other", version="")
    file.write_bytes(b"by another program")
    with pytest.raises(FileConflict, match="has changed"):
        await save(files, file, b"second", version=first["version"])
    assert file.read_bytes() == b"by another program"
    draft = secrets.token_hex(16)  # a change between the parts
    version = (await files.describe(str(file)))["version"]
    assert await save(files, file, b"se", version=version, draft=draft, is_last=False) is None
    file.write_bytes(b"changed meanwhile")
    with pytest.raises(FileConflict):
        await save(files, file, b"cond", version=version, draft=draft, offset=2)
    assert file.read_bytes() == b"changed meanwhile"
    assert not drafts(tmp_path)
    await save(files, file, b"on purpose")
    assert file.read_bytes() == b"on purpose"


async def test_of_two_writers_one_is_refused(files: ClusterFiles, tmp_path: Path) -> None:
    other = ClusterFiles(LocalTransport(), ClusterLocation("here", "", "ana", str(tmp_path), "here", {}))
    try:
        version = (await save(files, tmp_path / "a", b"0"))["version"]
        for round_number in range(10):
            saves = [save(each, tmp_path / "a", b"%d" % round_number, version=version) for each in (files, other)]
            done = await asyncio.gather(*saves, return_exceptions=True)
            assert sum(isinstance(one, FileConflict) for one in done) == 1, done
            version = next(one["version"] for one in done if isinstance(one, dict))
    finally:
        await other.stop()


async def test_large_files_pass_in_parts(files: ClusterFiles, tmp_path: Path) -> None:
    content, draft, size = os.urandom(3_500_000), secrets.token_hex(16), 1 << 20
    for offset in range(0, len(content), size):
        is_last = offset + size >= len(content)
        for _ in range(2 if not is_last else 1):  # an answer that was lost: the part is sent again
            await save(
                files, tmp_path / "large", content[offset : offset + size], draft=draft, offset=offset, is_last=is_last
            )
    assert (tmp_path / "large").read_bytes() == content
    assert b"".join([data async for data, _ in files.stream("large")]) == content
    pieces = files.stream("large")
    await anext(pieces)
    os.utime(tmp_path / "large", ns=(0, 0))
    with pytest.raises(FileConflict, match="changed while it was read"):
        await anext(pieces)
    with pytest.raises(FileError, match="does not exist"):
        await save(files, tmp_path / "other", b"x", offset=5)


async def test_names_of_all_bytes_are_kept(files: ClusterFiles, tmp_path: Path) -> None:
    name = ODD.decode("utf-8", "surrogateescape")
    await save(files, name, b"x", version="")
    assert os.listdir(os.fsencode(tmp_path)) == [ODD]
    assert [entry["name"] for entry in (await files.list_directory("."))["entries"]] == [name]
    await files.change("rename", name, name + "2")
    await files.change("copy", name + "2", name)
    await files.change("delete", name)
    assert os.listdir(os.fsencode(tmp_path)) == [ODD + b"2"]


async def test_changes_overwrite_nothing(files: ClusterFiles, tmp_path: Path) -> None:
    await files.change("mkdir", "a")
    await files.change("mkdir", "a/b")
    (tmp_path / "a/b/file").write_text("x")
    (tmp_path / "a/out").symlink_to("/etc")
    (tmp_path / "taken").write_text("kept")
    for action, path in (("rename", "a"), ("copy", "a"), ("rename", "a/b/file"), ("copy", "a/b/file")):
        with pytest.raises(FileConflict, match="taken exists already"):
            await files.change(action, path, "taken")
    with pytest.raises(FileConflict):
        await files.change("mkdir", "taken")
    with pytest.raises(FileError, match="into itself"):
        await files.change("copy", "a", "a/b/c")
    copied = await files.change("copy", "a", "copy")
    assert copied is not None
    assert copied["type"] == "directory"
    assert (tmp_path / "copy/b/file").read_text() == "x"
    assert (tmp_path / "copy/out").readlink() == Path("/etc")
    await files.change("rename", "copy", "moved")
    await files.change("delete", "moved")
    assert sorted(os.listdir(tmp_path)) == ["a", "taken"]
    for path in ("~", ".", "a/..", str(tmp_path), f"{tmp_path.parent}//."):
        with pytest.raises(FileError, match="home directory"):
            await files.change("delete", path)
    with pytest.raises(FileError, match="does not exist"):
        await files.change("delete", "moved")


async def test_a_link_is_saved_through_and_an_old_draft_is_removed(files: ClusterFiles, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "real/file").write_text("old")
    (tmp_path / "link").symlink_to("real/file")
    for name, age in (("old", 90_000), ("young", 1000)):
        remnant = tmp_path / "real" / (DRAFT.decode() + name)
        remnant.write_text("remnant")
        os.utime(remnant, (time.time() - age,) * 2)
    await save(files, "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real/file").read_text() == "new"
    assert drafts(tmp_path / "real") == [DRAFT + b"young"]
    assert [entry["name"] for entry in (await files.list_directory("real"))["entries"]] == ["file"]


@pytest.fixture
def dead_mount(tmp_path: Path) -> Iterator[Path]:
    """Provide a mount point whose file system is gone: the end of a program such as sshfs leaves one."""
    folder = tmp_path / "dead"
    folder.mkdir()
    libc = ctypes.CDLL(None, use_errno=True)
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    mounted = libc.mount(b"dead", os.fsencode(folder), b"fuse", 0, options)
    os.close(device)
    assert mounted == 0, os.strerror(ctypes.get_errno())
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.mark.root
@pytest.mark.skipif(not os.access("/dev/fuse", os.W_OK), reason="/dev/fuse cannot be opened")
async def test_a_dead_mount_point_does_not_hide_its_directory(
    files: ClusterFiles, tmp_path: Path, dead_mount: Path
) -> None:
    with pytest.raises(OSError, match="not connected"):
        dead_mount.lstat()
    (tmp_path / "file").write_text("xy")
    (tmp_path / "link").symlink_to("dead")
    found = {entry["name"]: entry for entry in (await files.list_directory("."))["entries"]}
    seen = {name: (one["type"], one["is_link"], one["size"]) for name, one in found.items() if name != "link"}
    assert seen == {"dead": ("other", False, 0), "file": ("file", False, 2)}
    assert (found["link"]["type"], found["link"]["is_link"]) == ("other", True)
    with pytest.raises(FileError, match="not connected"):
        await files.list_directory("dead")


@pytest.mark.parametrize("code", [errno.ENOTCONN, errno.ESTALE, errno.EIO, errno.EACCES])
def test_an_entry_without_a_status_is_of_another_type(code: int) -> None:
    """An entry that was removed meanwhile is left out by the caller; all others are listed."""
    entry = Mock(spec=["name", "stat", "inode"])
    entry.configure_mock(name=ODD)
    entry.inode.return_value = 7
    entry.stat.side_effect = OSError(code, os.strerror(code))
    name = ODD.decode("utf-8", "surrogateescape")
    described = files_program.describe_listed(entry)
    assert described == [name, "other", False, 0, 0.0, "0-0-7"]
    assert entries_of({"entries": [described]})[0]["name"] == name
    entry.stat.side_effect = FileNotFoundError()
    with pytest.raises(FileNotFoundError):
        files_program.describe_listed(entry)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Provide a file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(disk)], check=True)
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.mark.root
async def test_a_full_disk_keeps_the_old_file(files: ClusterFiles, small_disk: Path) -> None:
    file = small_disk / "file"
    file.write_bytes(b"old")
    with pytest.raises(FileError, match="disk is full"):
        await save(files, file, bytes(2 << 20))
    assert file.read_bytes() == b"old"
    assert os.listdir(small_disk) == ["file"]
    await files.change("rename", str(file), "moved")  # to another file system
    assert os.listdir(small_disk) == []
    assert (await files.read("moved", 0, 9))[0] == b"old"


def answers_to_ordinary_user(asked: list[dict[str, Any]], replaced: tuple[str, str] = ("", "")) -> list[dict[str, Any]]:
    """Return what the program, with one text replaced, answers to requests of an ordinary user."""
    requests = [json.dumps(one).encode() for one in asked]
    text = b"".join(LENGTHS.pack(len(one), 0) + one for one in requests)
    program = Path(files_program.__file__).read_text()  # the user need not be able to read this checkout
    assert replaced[0] in program
    program = program.replace(*replaced)
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program], input=text, user="nobody", capture_output=True, check=True
    )
    answers, at = [], 0
    while at < len(done.stdout):
        size, data_size = LENGTHS.unpack_from(done.stdout, at)
        at += LENGTHS.size
        answers.append(json.loads(done.stdout[at : at + size]))
        at += size + data_size
    return answers


@pytest.fixture
def shared_folder(tmp_path: Path) -> Path:
    """Provide a directory in which every user may write, with a tree that has a read-only directory."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    shared = tmp_path / "shared"
    (shared / "tree/closed/below").mkdir(parents=True)
    (shared / "tree/closed/below/file").write_text("kept")
    (tmp_path / "outside").mkdir(mode=0o555)
    (shared / "tree/closed/link").symlink_to(tmp_path / "outside")
    (shared / "tree/closed").chmod(0o555)
    (shared / "tree").chmod(0o555)
    shared.chmod(0o777)
    return shared


@pytest.mark.root
def test_a_failed_copy_says_why_and_leaves_nothing(shared_folder: Path) -> None:
    """An ordinary user cannot remove the files of a read-only directory, though it is a copy of the user."""
    os.mkfifo(shared_folder / "tree/fifo", 0o644)
    to = {"to": str(shared_folder / "copy"), "home": "/nowhere"}
    [answer] = answers_to_ordinary_user([{"action": "copy", "path": str(shared_folder / "tree"), **to}])
    assert (answer["error"], "is a named pipe" in answer["reason"]) == ("copy", True), answer
    assert os.listdir(shared_folder) == ["tree"]


@pytest.mark.root
def test_all_old_drafts_are_removed_also_those_of_directories(shared_folder: Path) -> None:
    """A process that was killed leaves a copy of a tree; that of another user stays."""
    names = [DRAFT.decode() + name for name in ("a", "b", "c")]
    copies: list[dict[str, Any]] = [
        {"action": "copy", "path": str(shared_folder / "tree"), "to": str(shared_folder / name), "home": "/nowhere"}
        for name in names
    ]
    file = {**part(shared_folder / f"{names[0]}.file"), "action": "write", "version": None}
    assert not [answer for answer in answers_to_ordinary_user([*copies, file]) if "error" in answer]
    (shared_folder / (DRAFT.decode() + "of-root")).mkdir()
    save = {**part(shared_folder / "saved"), "action": "write", "version": None}
    before = len(drafts(shared_folder))
    os.utime(shared_folder / names[0], (0, 0))  # of a young copy, too: it is the time of its source
    assert "error" not in answers_to_ordinary_user([save])[0]
    assert len(drafts(shared_folder)) == before
    time.sleep(0.1)
    assert "error" not in answers_to_ordinary_user([save], ("_STALE_S = 86400.0", "_STALE_S = 0.05"))[0]
    assert drafts(shared_folder) == [DRAFT + b"of-root"]
    assert (shared_folder.parent / "outside").stat().st_mode & 0o777 == 0o555, "links are not followed"


@pytest.mark.root
def test_an_ordinary_user_without_permission_gets_a_reason_and_changes_nothing(tmp_path: Path) -> None:
    """The program answers as on the login node of a user; root would be refused nothing."""
    for folder in (tmp_path, *tmp_path.parents):
        folder.chmod(folder.stat().st_mode | 0o055)
    (tmp_path / "closed").mkdir()
    (tmp_path / "closed/file").write_text("kept")
    (tmp_path / "secret").write_text("kept")
    (tmp_path / "closed").chmod(0o700)
    (tmp_path / "secret").chmod(0o600)
    (tmp_path / "readable").write_text("kept")
    asked: list[dict[str, Any]] = [
        {"action": "list", "path": str(tmp_path / "closed")},
        {"action": "stat", "path": str(tmp_path / "closed/file")},
        {"action": "read", "path": str(tmp_path / "secret"), "offset": 0, "limit": 9, "version": None},
        {"action": "mkdir", "path": str(tmp_path / "new"), "to": "", "home": "/nowhere"},
        {"action": "delete", "path": str(tmp_path / "readable"), "to": "", "home": "/nowhere"},
        {"action": "rename", "path": str(tmp_path / "readable"), "to": str(tmp_path / "other"), "home": "/nowhere"},
        {**part(tmp_path / "readable"), "action": "write", "version": None},
    ]
    answers = answers_to_ordinary_user(asked)
    assert [str(error_of(answer, "x")).splitlines()[0] for answer in answers] == ["x: Permission denied."] * len(asked)
    assert {path.name for path in tmp_path.iterdir()} == {"closed", "secret", "readable"}
    assert (tmp_path / "readable").read_text() == "kept"


async def test_an_end_of_the_process_keeps_the_old_file(files: ClusterFiles, tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    draft = secrets.token_hex(16)
    await save(files, "a", b"ne", draft=draft, is_last=False)
    assert files._helper is not None
    files._helper[1].close()
    with pytest.raises(TransportError, match="broke"):
        await save(files, "a", b"w", draft=draft, offset=2)
    assert (tmp_path / "a").read_text() == "old"
    assert (await files.read("a", 0, 9))[0] == b"old", "a new process answers"
    await save(files, "a", b"w", draft=draft, offset=2)
    assert (tmp_path / "a").read_text() == "new"


class HeldTransport(LocalTransport):
    """Transport whose processes are returned only when ``release`` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.release, self.streams = threading.Event(), list[CommandStream]()

    def pipe(self, argv: Sequence[str], timeout: float, **more: Any) -> Any:
        self.streams.append(CommandStream(argv, None))
        self.release.wait(60)
        return self.streams[-1]


@pytest.mark.parametrize("is_change", [False, True])
async def test_a_request_that_is_cancelled_at_its_start_leaves_no_process(is_change: bool, tmp_path: Path) -> None:
    transport = HeldTransport()
    files = ClusterFiles(transport, ClusterLocation("here", "", "ana", str(tmp_path), "here", {}))
    asked = asyncio.ensure_future(files.change("delete", "a") if is_change else files.describe("a"))
    async with asyncio.timeout(60):
        while not transport.streams:
            await asyncio.sleep(0.01)
        asked.cancel()
        await asyncio.wait({asked})
        transport.release.set()
        while transport.streams[0]._process.poll() is None:
            await asyncio.sleep(0.01)
    assert asked.cancelled()
    await files.stop()


async def test_a_path_that_cannot_be_starts_no_process(tmp_path: Path) -> None:
    transport = HeldTransport()
    transport.release.set()
    files = ClusterFiles(transport, ClusterLocation("here", "", "ana", str(tmp_path), "here", {}))
    with pytest.raises(UsageError, match="NUL"):
        await files.change("delete", "\0")
    assert not transport.streams
    await files.stop()


async def test_a_file_that_grows_and_paths_that_cannot_be(files: ClusterFiles, tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * (2 << 20))
    pieces = files.stream("log")
    await anext(pieces)
    with (tmp_path / "log").open("ab") as log:
        log.write(b"more")
    with pytest.raises(FileConflict, match=r"changed while it was read.*\n.*slurm get"):
        await anext(pieces)
    process = files._helper
    for path in ("\ud800", "\U0001f600" * 4096):
        with pytest.raises(UsageError):
            await files.change("rename", path, path)
    assert files._helper is process


async def test_a_tree_deeper_than_python_goes_has_words(files: ClusterFiles, tmp_path: Path) -> None:
    levels, here = 1500, os.getcwd()
    for _ in range(levels):
        os.mkdir("d" if os.getcwd() != here else tmp_path / "deep")
        os.chdir("d" if os.getcwd() != here else tmp_path / "deep")
    os.chdir(here)
    try:
        for action, to in (("copy", "other"), ("delete", None)):
            with pytest.raises(FileError, match="too many levels"):
                await files.change(action, "deep", to)
        assert os.listdir(tmp_path) == ["deep"]
    finally:
        subprocess.run(["rm", "-r", tmp_path / "deep"], check=True)


@pytest.mark.parametrize(
    ("entry", "is_accepted"),
    [
        (["a", "file", False, 1, 0.5, "1-2-3"], True),
        (["../a", "file", False, 1, 0.5, "1-2-3"], False),
        (["/", "file", False, 1, 0.5, "1-2-3"], False),
        (["..", "directory", False, 1, 0.5, "1-2-3"], False),
        (["a", "file", False, -1, 0.5, "1-2-3"], False),
        (["a", "file", False, 1 << 70, 0.5, "1-2-3"], False),
        (["a", "file", False, True, 0.5, "1-2-3"], False),
        (["a", "file", False, 1, float("nan"), "1-2-3"], False),
        (["a", "file", False, 1, 10**400, "1-2-3"], False),
        (["a", "file", False, 1, 0.5, "²-2-3"], False),
        (["a", "file", False, 1, 0.5, "1\r\nSet-Cookie: x"], False),
        (["a" * 5000, "file", False, 1, 0.5, "1-2-3"], False),
        ("a", False),
    ],
)
def test_what_a_cluster_sends_is_checked(entry: Any, is_accepted: bool) -> None:
    if is_accepted:
        assert entries_of({"entries": [entry]})[0]["name"] == "a"
        return
    with pytest.raises(TransportError, match="cannot be read"):
        entries_of({"entries": [entry]})


@pytest.mark.parametrize("answer", ["print('x' * (1 << 22))", "import os; os.write(1, MARK + b'\\xff' * 8)"])
async def test_an_endless_answer_is_refused(
    answer: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, files: ClusterFiles
) -> None:
    wrapper = tmp_path / "python3"
    text = f"import re, sys\nMARK = re.search(rb'[0-9a-f]{{32}}', ' '.join(sys.argv).encode())[0] + b'\\n'\n{answer}\n"
    wrapper.write_text(f"#!/usr/bin/python3\n{text}import time; time.sleep(60)\n")
    wrapper.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    with pytest.raises(TransportError):
        await files.list_directory(".")
    await files.stop()


@pytest.mark.slurm
@pytest.mark.remote
async def test_the_same_over_ssh(desk: Any, tmp_path: Path) -> None:
    files = desk.core.cluster(desk.id).files
    folder = str((await files.list_directory("~"))["path"]).rstrip("/") + "/" + secrets.token_hex(8)
    await files.change("mkdir", folder)
    try:
        name = f"{folder}/{ODD.decode('utf-8', 'surrogateescape')}"
        content, draft = os.urandom(2_000_000), secrets.token_hex(16)
        await save(files, name, content[:1_000_000], draft=draft, is_last=False, version="")
        entry = await save(files, name, content[1_000_000:], draft=draft, offset=1_000_000, version="")
        assert b"".join([data async for data, _ in files.stream(name)]) == content
        with pytest.raises(FileConflict):
            await save(files, name, b"x", version="1-2-3")
        assert (await files.list_directory(folder))["entries"] == [entry]
        with pytest.raises(FileError, match="home directory"):
            await files.change("rename", "/", folder + "/root")
    finally:
        await files.change("delete", folder)
