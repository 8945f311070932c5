"""Files that no other user can have written, read from this computer and from hosts with a real sshd."""

from __future__ import annotations

import asyncio
import contextlib
import os
import pwd
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ssh_hosts import SshHost

from jupyter_slurm.errors import TransportError, UntrustedFile
from jupyter_slurm.transport.base import Transport

pytestmark = pytest.mark.root


@pytest.fixture(params=["ssh", "ssh-bash", "openssh"])
def far(request: pytest.FixtureRequest, connect_by: Callable[..., Any]) -> tuple[SshHost, Transport]:
    """Provide a host and the transport to it."""
    host: SshHost = request.getfixturevalue("bash_node" if request.param == "ssh-bash" else "login_node")
    return host, connect_by("openssh" if request.param == "openssh" else "paramiko", host).transport


class Tree:
    """``shared/jobs/key/out.values`` of the user of a host, in a folder that the other user may write to, too."""

    def __init__(self, top: Path, owner: str, other: str) -> None:
        self.owner, self.other = pwd.getpwnam(owner), pwd.getpwnam(other)
        self.shared = top / "shared"
        self.jobs = self.shared / "jobs"
        self.file = self.jobs / "key" / "out.values"
        self.shared.mkdir()
        os.chown(self.shared, self.owner.pw_uid, self.other.pw_gid)
        self.shared.chmod(0o770)
        self.fill(self.jobs, self.owner, b"mine")

    @staticmethod
    def fill(jobs: Path, whose: pwd.struct_passwd, content: bytes) -> None:
        """Make a job directory of a user."""
        (jobs / "key").mkdir(parents=True)
        (jobs / "key" / "out.values").write_bytes(content)
        for path in (jobs, jobs / "key", jobs / "key" / "out.values"):
            os.chown(path, whose.pw_uid, whose.pw_gid)
            path.chmod(0o755 if path.is_dir() else 0o644)


@pytest.fixture
def tree(far: tuple[SshHost, Transport], new_folder: Callable[[str], Path], bob: str) -> Tree:
    """Provide such a tree on the host."""
    return Tree(new_folder(far[0].user), far[0].user, bob)


async def test_files_of_the_user_are_read_in_a_folder_of_a_group(far: Any, tree: Tree) -> None:
    assert await far[1].read_owned(str(tree.file)) == b"mine"
    assert await far[1].read_owned(str(tree.file), 1, 2) == b"in"
    link = tree.jobs.parent / "link"
    link.symlink_to(tree.jobs)
    os.chown(link, tree.owner.pw_uid, tree.owner.pw_gid, follow_symlinks=False)
    assert await far[1].read_owned(str(link / "key" / "out.values")) == b"mine"
    with pytest.raises(FileNotFoundError):
        await far[1].read_owned(str(tree.file.with_name("none")))
    with pytest.raises(FileNotFoundError):
        await far[1].read_owned(str(tree.jobs / "other" / "out.values"))


def _swap_jobs(tree: Tree) -> None:
    tree.jobs.rename(tree.shared / "away")
    Tree.fill(tree.jobs, tree.other, b"theirs")


def _swap_above(tree: Tree) -> None:
    tree.jobs.rename(tree.shared / "away")
    tree.jobs.mkdir()
    os.chown(tree.jobs, tree.other.pw_uid, tree.other.pw_gid)
    tree.jobs.chmod(0o755)
    (tree.jobs / "key").symlink_to(tree.shared / "away" / "key")


def _link_jobs(tree: Tree) -> None:
    tree.jobs.rename(tree.shared / "away")
    tree.jobs.symlink_to(tree.shared / "away")
    os.chown(tree.jobs, tree.other.pw_uid, tree.other.pw_gid, follow_symlinks=False)


def _swap_file(tree: Tree) -> None:
    os.chown(tree.file, tree.other.pw_uid, tree.other.pw_gid)


def _link_file(tree: Tree) -> None:
    theirs = tree.shared / "theirs"
    theirs.write_bytes(b"theirs")
    os.chown(theirs, tree.other.pw_uid, tree.other.pw_gid)
    tree.file.unlink()
    tree.file.symlink_to(theirs)


def _open_folder(tree: Tree) -> None:
    tree.file.parent.chmod(0o775)


def _open_file(tree: Tree) -> None:
    tree.file.chmod(0o666)


def _open_to_all(tree: Tree) -> None:
    tree.shared.chmod(0o777)


def _open_by_list(tree: Tree) -> None:
    """Do what ``setfacl -m u:OTHER:rwx`` does: entries of (tag, permissions, id), for the user, the other one, …"""
    nobody = 0xFFFF_FFFF
    entries = [(1, 7, nobody), (2, 7, tree.other.pw_uid), (4, 5, nobody), (16, 7, nobody), (32, 5, nobody)]
    listed = struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *entry) for entry in entries)
    os.setxattr(tree.file.parent, "system.posix_acl_access", listed)


def _pipe(tree: Tree) -> None:
    tree.file.unlink()
    os.mkfifo(tree.file, 0o600)
    os.chown(tree.file, tree.owner.pw_uid, tree.owner.pw_gid)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (_swap_jobs, r"key belongs to another user \(uid {0}\)"),
        (_swap_above, r"jobs belongs to another user \(uid {0}\)"),
        (_link_jobs, r"jobs belongs to another user \(uid {0}\)"),
        (_swap_file, r"out.values belongs to another user \(uid {0}\)"),
        (_link_file, "out.values is a symbolic link"),
        (_open_folder, "other users can write to the folder .*key"),
        (_open_file, "other users can write to out.values"),
        (_open_to_all, "other users can write to .*shared"),
        (_open_by_list, "other users can write to the folder .*key"),
        (_pipe, "out.values is not a regular file"),
    ],
)
async def test_what_another_user_can_have_put_there_is_refused(
    far: Any, tree: Tree, attack: Callable[[Tree], None], why: str
) -> None:
    attack(tree)
    with pytest.raises(UntrustedFile, match=why.format(tree.other.pw_uid)):
        await far[1].read_owned(str(tree.file))


async def test_nothing_foreign_is_read_while_another_user_swaps_the_folders(far: Any, tree: Tree) -> None:
    """Each read gives the user's bytes or an error, at whatever moment the folders are exchanged."""
    Tree.fill(tree.shared / "theirs", tree.other, b"theirs")
    over = threading.Event()

    def swap() -> None:
        while not over.is_set():
            for one, two in (("jobs", "away"), ("theirs", "jobs"), ("jobs", "theirs"), ("away", "jobs")):
                (tree.shared / one).rename(tree.shared / two)

    swapping = asyncio.create_task(asyncio.to_thread(swap))
    try:
        for _ in range(60):
            with contextlib.suppress(FileNotFoundError, TransportError):
                assert await far[1].read_owned(str(tree.file)) == b"mine"
    finally:
        over.set()
        await swapping


@pytest.mark.parametrize("attack", [_swap_file, _link_file, _open_folder, _open_file, _pipe])
async def test_the_same_holds_on_this_computer(tmp_path: Path, bob: str, attack: Callable[[Tree], None]) -> None:
    from jupyter_slurm.transport.local.transport import LocalTransport

    local, tree = LocalTransport(), Tree(tmp_path, "root", bob)
    try:
        assert await local.read_owned(str(tree.file), 1) == b"ine"
        attack(tree)
        with pytest.raises(UntrustedFile):
            await local.read_owned(str(tree.file))
    finally:
        local.close()
