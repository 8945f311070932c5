"""Tests of what is sent, and what is deleted on the cluster, by real rsync without a job."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROGRAM = """
import asyncio, json, os, sys
from types import SimpleNamespace
from jupyter_slurm.services.jobdir.job_json_model import FolderRecord, StageRecord
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.staging.folder_sync import FolderSync
from jupyter_slurm.services.staging.job_staging import Staging
from jupyter_slurm.transport.local.transport import LocalTransport

async def send(source, dest):
    "Send a folder with sync=delete, and copy its results back; return what is said."
    transport = LocalTransport()
    tracker = SimpleNamespace(client=SimpleNamespace(transport=transport), on_end=[])
    staging = Staging(tracker, ClusterLocation("c", dest, "me", dest, "far", {}), None)
    folder = FolderRecord(source=source, dest=dest, inode=os.stat(source).st_ino)
    sync = FolderSync(transport, folder, "owner")
    warnings = (await staging.push_folder(sync, StageRecord(folders=[folder], delete=True), lambda *_: None)).warnings
    back = await staging._pull(sync, lambda *_: None, frozenset())
    transport.close()
    return {"warnings": warnings, "back": [change.path for change in back.copied], "left": back.omitted}

if __name__ == "__main__":
    print(json.dumps(asyncio.run(send(*sys.argv[1:]))))
"""


@pytest.fixture
def send() -> Any:
    """Return ``send(source, dest)`` of the program."""
    names: dict[str, Any] = {"__name__": "program"}
    exec(PROGRAM, names)
    return lambda source, dest: asyncio.run(names["send"](str(source), str(dest)))


def test_files_that_a_job_has_written_since_are_not_deleted(send: Any, tmp_path: Path) -> None:
    source, dest, elsewhere = tmp_path / "project", tmp_path / "copy", tmp_path / "elsewhere"
    for name in ("log", "old", "replaced", "same link", "moved/file"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    for name in ("link", "other link"):
        (source / name).symlink_to("log")
    assert send(source, dest)["warnings"] == []
    for name in ("log", "old", "replaced", "link", "other link", "moved/file"):
        (source / name).unlink()

    # A job writes a file, and puts other things in the place of files.
    (dest / "log").write_text("written by a job")
    (dest / "replaced").unlink()
    (dest / "replaced").mkdir()
    (dest / "other link").unlink()
    (dest / "other link").symlink_to("old place")
    (dest / "moved").rename(elsewhere)
    (dest / "moved").symlink_to(elsewhere)
    done = send(source, dest)
    assert done["warnings"] == [f"Files in {dest} that a job has changed were not deleted: log, other link."]
    assert (dest / "log").read_text() == "written by a job"
    assert not (dest / "old").exists()
    assert not os.path.lexists(dest / "link")
    assert (elsewhere / "file").exists(), "behind a link"
    assert "log" in done["back"], "what a job has written comes back"
    assert (source / "log").read_text() == "written by a job"


@pytest.mark.root
def test_folders_that_the_user_may_not_read_are_left_out_and_named(user_python: Any, short_path: Path) -> None:
    argv, env = user_python
    source, dest = short_path / "project", short_path / "copy"
    for name in ("file", "data/secret", "data/listed/file", "open/file"):
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text(name)
    subprocess.run(["chown", "-R", "nobody:nogroup", short_path], check=True)
    short_path.chmod(0o755)

    def send() -> Any:
        done = subprocess.run(
            [*argv, "-c", PROGRAM, str(source), str(dest)], env={**env, "PATH": os.defpath, "HOME": "/"},
            user="nobody", group="nogroup", extra_groups=[], cwd="/", capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    (source / "data/listed").chmod(0o444)
    said = f"Folders in {source} that you may not read were not copied: "
    assert send() == {"warnings": [f"{said}data/listed."], "back": [], "left": []}
    assert (dest / "data/secret").read_text() == "data/secret"
    assert os.listdir(dest / "data") == ["secret"]

    (source / "data").chmod(0)
    assert send()["warnings"] == [f"{said}data."]
    assert (dest / "data/secret").exists(), "sync=delete deletes nothing that this computer cannot see"
