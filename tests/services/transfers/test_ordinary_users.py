"""Tests of transfers by an ordinary user, whom permissions hold back: the real programs, run as such a user."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.root

PROGRAM = """
import asyncio, json, os, runpy, sys
from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.transfers.carriers import ArchiveCarrier, RsyncCarrier, WithinCluster, split_names
from jupyter_slurm.services.transfers.cluster_side import ClusterSide
from jupyter_slurm.services.transfers.local_side import LocalSide
from jupyter_slurm.services.transfers.stage_within import FolderWithin
from jupyter_slurm.services.transfers.transfer import Transfer, TransferRequest, copy_files
from jupyter_slurm.transport.local.transport import LocalTransport

kind, source, dest, runner = sys.argv[1:]
kind, _, program = kind.partition(" by ")

class Job(WithinCluster):
    async def _copy(self, group, entries, whole, moved):
        directories, files = split_names(entries, whole)
        one = {"folder": group.folder, "received": group.received, "whole": whole}
        module = runpy.run_path(runner)
        one.update(directories=directories, files=files)
        assert module["_by_cp"](one, ".", module["Counter"](os.devnull + "/x")) == 0

async def main():
    transport = LocalTransport()
    far = ClusterSide(transport, "far", transport, ClusterLocation("c", dest, "nobody", dest, "far", {}))
    near = LocalSide()
    if kind == "copy":
        carrier = (Job if program == "a job" else WithinCluster)(transport)
    elif program == "tar":
        carrier = ArchiveCarrier(transport, is_pull=kind == "get")
    else:
        carrier = RsyncCarrier(transport, "owner", is_pull=kind == "get")
    transfer = Transfer("id", TransferRequest("c", kind, (source,), dest), lambda _: None)
    sides = {"put": (near, far), "get": (far, near), "copy": (far, far), "stage": (far, far)}[kind]
    error = None
    try:
        if kind == "stage":
            transfer.request = TransferRequest("c", kind, (source,), dest, "c", overwrite=True)
            within = FolderWithin(far)
            folder = await within.find(source, dest)
            carrier = WithinCluster(transport)
            await within.copy(transfer, folder, carrier, ".jupyter-slurm-partial-id", delete=True)
        else:
            await copy_files(transfer, *sides, carrier, ".jupyter-slurm-partial-id")
    except SlurmError as met:
        error = met.message
    print(json.dumps({"error": error, "warnings": transfer.warnings, "files": transfer.files}))
    transport.close()

asyncio.run(main())
"""

KINDS = ["put", "put by tar", "get", "get by tar", "copy", "copy by a job"]
RUNNER = Path(__file__).parents[3] / "jupyter_slurm/runner/lifecycle/copy_within.py"
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def run(user_python: Any) -> Run:
    """Return ``run(kind, source, dest)``: the result of a transfer by an ordinary user."""
    argv, env = user_python

    def run(kind: str, source: Path, dest: Path) -> dict[str, Any]:
        words = [*argv, "-c", PROGRAM, kind, str(source), f"{dest}/", str(RUNNER)]
        # HOME, because that of root cannot be read
        done = subprocess.run(
            words, env={**env, "PATH": os.defpath, "HOME": "/"}, user="nobody", group="nogroup", extra_groups=[],
            cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return dict(json.loads(done.stdout))

    return run


def give(folder: Path) -> None:
    subprocess.run(["chown", "-hR", "nobody:nogroup", folder], check=True)


def modes(folder: Path) -> dict[str, int]:
    return {str(path.relative_to(folder)): path.lstat().st_mode & 0o777 for path in (folder, *folder.rglob("*"))}


def fill(folder: Path) -> None:
    """Make read-only directories, of which the last is made first: as root, modes do not matter."""
    for name in ("run/file", "run/-n/new\nline", "run/-n/deep/file", "open/file"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
        (folder / name).chmod(0o444)
    for name in ("run/-n/deep", "run/-n", "run", "."):
        (folder / name).chmod(0o555)


@pytest.mark.parametrize("kind", KINDS)
def test_directories_that_their_owner_may_not_write_arrive(run: Run, short_path: Path, kind: str) -> None:
    """As a whole, and in a directory that the destination has already."""
    source, dest = short_path / "one/project", short_path / "two"
    fill(source)
    dest.mkdir()
    short_path.chmod(0o755)
    give(short_path)
    done = run(kind, source, dest)
    assert (done["error"], done["files"]) == (None, 4)
    more = 0o200 if kind == "get by tar" else 0  # what Python writes must stay writable
    expected = {name: mode | more if (source / name).is_dir() else mode for name, mode in modes(source).items()}
    assert modes(dest / "project") == expected
    assert os.listdir(dest) == ["project"]

    shutil.rmtree(dest / "project/run")
    (dest / "project").chmod(0o755)
    done = run(kind, source, dest)
    assert (done["error"], done["files"]) == (None, 3)
    assert (dest / "project/run/-n/new\nline").read_text() == "run/-n/new\nline"
    assert (dest / "project").stat().st_mode & 0o777 == 0o755, "the mode of the destination stays"
    assert os.listdir(dest) == ["project"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_copy_continues_after_read_only_files_have_arrived(run: Run, short_path: Path, kind: str) -> None:
    """The earlier run was cut in a file, in a directory that its owner may not write."""
    source, dest = short_path / "one/project", short_path / "two"
    fill(source)
    received = dest / ".jupyter-slurm-partial-id/0"
    fill(received / "project")
    (received / "project/run/-n/deep/file").chmod(0o600)
    (received / "project/run/-n/deep/file").write_text("ru")
    (received / "project/run/-n/deep/file").chmod(0o444)
    (received / "project/run/gone").write_text("not in the source any more")
    received.parent.chmod(0o700)
    short_path.chmod(0o755)
    give(short_path)
    done = run(kind, source, dest)
    assert done["error"] is None
    for path in source.rglob("*"):
        assert path.is_dir() or (dest / "project" / path.relative_to(source)).read_text() == path.read_text()
    assert modes(dest / "project").keys() == modes(source).keys()
    assert os.listdir(dest) == ["project"]


@pytest.mark.parametrize("kind", ["put", "put by tar", "get", "get by tar", "copy", "copy by a job"])
def test_directories_that_a_user_may_not_read_are_named(run: Run, short_path: Path, kind: str) -> None:
    source, dest = short_path / "project", short_path / "two"
    for name in ("logs/secret", "logs/deep/file", "listed/file", "open/file"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    (source / "logs").chmod(0o700)
    (source / "listed").chmod(0o744)
    dest.mkdir()
    give(dest)
    short_path.chmod(0o755)
    done = run(kind, source, dest)
    assert (done["error"], done["files"]) == (None, 1)
    assert len(done["warnings"]) == 1
    assert done["warnings"][0].startswith("Not copied (directories that you may not read): project/l")
    assert all(f"project/{name}" in done["warnings"][0] for name in ("logs", "listed"))
    assert (dest / "project/open/file").read_text() == "open/file"
    assert os.listdir(dest / "project") == ["open"]


@pytest.mark.parametrize("kind", ["put", "put by tar", "copy"])
def test_files_that_cannot_be_moved_to_their_place_are_kept(run: Run, short_path: Path, kind: str) -> None:
    """They are not said to be files of the destination, and the next run moves them."""
    source, dest = short_path / "one/project", short_path / "two"
    for folder in (source, dest / "project"):
        folder.mkdir(parents=True)
        folder.chmod(0o755)
    (source / "file").write_text("content")
    give(dest)
    short_path.chmod(0o755)
    os.chown(dest / "project", 0, 0)
    done = run(kind, source, dest)
    assert "Permission denied" in done["error"]
    assert "other files of these names" not in done["error"]
    assert (dest / ".jupyter-slurm-partial-id/0/project/file").read_text() == "content"
    give(dest)
    assert run(kind, source, dest)["error"] is None
    assert (dest / "project/file").read_text() == "content"
    assert os.listdir(dest) == ["project"]


def test_a_staged_folder_is_read_as_far_as_the_user_may_and_can_be_written(run: Run, short_path: Path) -> None:
    source, dest = short_path / "project", short_path / "two/copy"
    for name in ("logs/secret", "open/sub/file", ".rsync-filter"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("- *.large")
    dest.parent.mkdir()
    give(short_path)
    (source / "open/sub").chmod(0o555)
    source.chmod(0o555)
    short_path.chmod(0o755)
    done = run("stage", source, dest)
    assert (done["error"], done["files"]) == (None, 3)
    assert {mode & 0o700 for name, mode in modes(dest).items() if (dest / name).is_dir()} == {0o700}

    (source / "logs").chmod(0)
    os.chown(source / "logs", 0, 0)
    (source / "open/sub/file").unlink()
    done = run("stage", source, dest)
    assert done == {
        "error": None,
        "files": 0,
        "warnings": ["Not copied (directories that you may not read): project/logs."],
    }
    assert (dest / "logs/secret").exists(), "what cannot be read is not deleted"
    assert not (dest / "open/sub/file").exists()

    os.chown(dest, 0, 0)
    (source / "new").write_text("new")
    assert "Permission denied" in run("stage", source, dest)["error"]
    os.chown(source, 0, 0)
    source.chmod(0o700)
    assert f"{source} on far does not exist, or you may not read it." in run("stage", source, dest)["error"]
