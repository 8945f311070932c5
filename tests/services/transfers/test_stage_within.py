"""Tests of folders of a cluster that are staged on the same cluster: here and over SSH."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.errors import UsageError

pytestmark = [pytest.mark.slurm, pytest.mark.carrier("paramiko")]

ODD = ["a b", "new\nline", "\udcff\udcfe", "-n", "ü", "$(touch x)", "*", "js:x", "\\#134"]


async def start(desk: Any, source: Any, dest: Any = "", **more: Any) -> dict[str, Any]:
    asked = {"kind": "stage", "sources": [str(source)], "dest": str(dest), "to_cluster": desk.id, **more}
    return dict(await desk.core.transfers.start(desk.id, asked))


async def ended(desk: Any, found: dict[str, Any]) -> dict[str, Any]:
    async with asyncio.timeout(240):
        while found["state"] == "running":
            await asyncio.sleep(0.02)
            found = desk.core.transfers.transfer_to_api(found["id"])
    return dict(found)


async def stage(desk: Any, source: Any, dest: Any = "", **more: Any) -> dict[str, Any]:
    return await ended(desk, await start(desk, source, dest, **more))


async def refused(desk: Any, source: Any, dest: Any = "", **more: Any) -> str:
    found = await stage(desk, source, dest, **more)
    assert found["state"] == "failed", found
    return str(found["error"]["detail"])


def tree(folder: Path) -> dict[str, str | bytes | None]:
    """Return everything below a folder: content of files, targets of links; without the note about the copy."""
    found: dict[str, str | bytes | None] = {}
    for path in folder.rglob("*"):
        if path.name != ".jupyter-slurm-stage":
            name = str(path.relative_to(folder))
            found[name] = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Provide a folder with odd names, and everything that staging leaves out."""
    folder = tmp_path / "home/my project"
    for name in (*(f"sub/{name}" for name in ODD), ".git/config", "sub/__pycache__/x.pyc", ".venv/bin/python"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(os.fsencode(name))
    for name in ("mine/pyvenv.cfg", "mine/bin/python", "mine/lib/x.py", "data.large", "deep/wandb/run", "deep/kept"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / ".rsync-filter").write_text("- *.large\n- wandb/\n")
    (folder / "empty").mkdir()
    (folder / "run").write_text("#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "inside").symlink_to("sub/ü")
    (folder / "outside").symlink_to("../secret")
    (folder / "absolute").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    return folder


def kept(folder: Path) -> dict[str, str | bytes | None]:
    """Return what of that folder is copied."""
    gone = re.compile(r"(\.git|\.venv|mine|deep/wandb)(/.*)?|.*__pycache__.*|data\.large|outside|absolute|pipe")
    return {name: data for name, data in tree(folder).items() if not gone.fullmatch(name)}


@pytest.mark.each_case
async def test_a_folder_of_the_cluster_is_copied_to_its_place_without_what_staging_leaves_out(desk, project, tmp_path):
    done = await stage(desk, project)
    assert (done["error"], done["state"]) == (None, "finished")
    dest = Path(done["dest"])
    assert dest.parent == Path(desk.root, "stage")
    assert dest.name.startswith("my project-")
    assert tree(dest) == kept(project)
    assert os.access(dest / "run", os.X_OK)
    assert os.listdir(dest.parent) == [dest.name]
    assert sorted(os.listdir(tmp_path / "home")) == ["my project"]
    files = [
        path for path in dest.rglob("*") if path.is_file() and not path.is_symlink() and "slurm-stage" not in path.name
    ]
    assert (done["files"], done["bytes"], done["unchanged"]) == (
        len(files),
        sum(map(len, map(Path.read_bytes, files))),
        0,
    )
    told = " ".join(done["warnings"])
    for name in (
        "outside",
        "absolute",
        "pipe",
        "Virtual environments were not copied: mine.",
        "data.large, deep/wandb.",
    ):
        assert name in told, done["warnings"]

    again = await stage(desk, project)
    assert (again["error"], again["files"], again["unchanged"]) == (None, 0, len(files))
    assert again["dest"] == done["dest"], "a later stage uses the same place"


async def test_a_job_runs_in_the_copy(desk, project):
    done = await stage(desk, project)
    job = await desk.submit(
        "import os\nprint(os.getcwd(), open('deep/kept').read())", options=["--chdir", done["dest"]]
    )
    assert (await desk.finished(job["key"]))["state"] == "COMPLETED"
    assert await desk.text(job["key"]) == f"{done['dest']} deep/kept\n"


@pytest.mark.here_only("both sides behave alike")
async def test_what_a_job_has_changed_stays_unless_the_source_has_changed_too(desk, tmp_path):
    project, dest = tmp_path / "project", tmp_path / "scratch/deep/copy"
    project.mkdir()
    for name in ("same", "of job", "both", "deleted by job", "gone", "gone but changed"):
        (project / name).write_text(name)
        os.utime(project / name, (1e9, 1e9))
    (project / "link").symlink_to("same")
    done = await stage(desk, project, dest)
    assert (done["error"], done["dest"]) == (None, str(dest))

    for name in ("of job", "both", "gone but changed"):
        (dest / name).write_text("written by a job")
    (dest / "result").write_text("new")
    (dest / "deleted by job").unlink()
    (project / "both").write_text("edited at home")
    (project / "gone").unlink()
    (project / "gone but changed").unlink()
    (project / "link").unlink()
    done = await stage(desk, project, dest)
    assert (done["error"], done["files"]) == (None, 2)
    assert done["warnings"] == [f"Files in {dest} that a job has changed were not replaced: of job."]
    assert {name: (dest / name).read_text() for name in ("of job", "both", "gone", "deleted by job", "result")} == {
        "of job": "written by a job", "both": "edited at home", "gone": "gone",
        "deleted by job": "deleted by job", "result": "new",
    }  # fmt: skip

    done = await stage(desk, project, dest, delete=True)
    assert done["error"] is None
    assert f"Files in {dest} that a job has changed were not deleted: gone but changed." in done["warnings"]
    assert set(tree(dest)) == {"same", "of job", "both", "deleted by job", "gone but changed", "result"}
    (project / "of job").write_text("edited later")
    assert (await stage(desk, project, dest))["warnings"] == []
    assert (dest / "of job").read_text() == "edited later"


@pytest.mark.here_only("both sides behave alike")
async def test_a_filter_that_is_new_deletes_nothing(desk, tmp_path):
    (tmp_path / "project/sub").mkdir(parents=True)
    for name in ("a.large", "sub/b", "c"):
        (tmp_path / "project" / name).write_text(name)
    dest = Path((await stage(desk, tmp_path / "project"))["dest"])
    (tmp_path / "project/.rsync-filter").write_text("- *.large\n- sub/\n")
    (tmp_path / "project/c").unlink()
    done = await stage(desk, tmp_path / "project", delete=True)
    assert done["warnings"] == ["Left out by .rsync-filter: a.large, sub."]
    assert set(tree(dest)) == {"a.large", "sub", "sub/b", ".rsync-filter"}


async def test_bad_sources_and_destinations_are_refused_before_anything_is_written(
    desk, project, tmp_path, monkeypatch
):
    (tmp_path / "file").write_text("x")
    before = tree(tmp_path / "home")
    cluster = desk.core.cluster(desk.id)
    monkeypatch.setattr(cluster, "location", replace(cluster.location, home=str(tmp_path / "home")))
    for source, dest, said in (
        (tmp_path / "none", "", "does not exist, or you may not read it"),
        (tmp_path / "file", "", "is not a directory"),
        (tmp_path / "home", "", "has all of your files"),
        (project / ".." / "..", "", "has all of your files"),
        ("..", "", "has all of your files"),
        ("$NONE_SUCH/x", "", "NONE_SUCH is not set"),
        (project, "relative", "relative is not a directory of"),
        (project, project / "sub/copy", "contain one another"),
        (project, project / "x/../../../home", "contain one another"),
        (project, "~/", "contain one another"),
        (project, f"{tmp_path}/file/x", "file"),
        (project, f"{tmp_path}/file", "file is not a directory"),
    ):
        assert said in await refused(desk, source, dest), (source, dest)
    assert tree(tmp_path / "home") == before
    assert (tmp_path / "file").read_text() == "x"
    assert not list(tmp_path.glob("**/.jupyter-slurm-partial-*"))
    with pytest.raises(UsageError, match=r"but its copy would be on other\."):
        await start(desk, project, to_cluster="other")


async def test_a_link_in_place_of_the_copy_or_of_its_directory_is_not_followed(desk, tmp_path):
    for name in ("project/sub/x", "outside/kept"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("x")
    dest = tmp_path / "scratch/copy"
    dest.parent.mkdir()
    dest.symlink_to(tmp_path / "outside")
    assert f"{dest} is a link" in await refused(desk, tmp_path / "project", dest)
    dest.unlink()
    dest.mkdir()
    (dest / "sub").symlink_to(tmp_path / "outside")
    assert "directory in place of a file" in await refused(desk, tmp_path / "project", dest)
    assert os.listdir(tmp_path / "outside") == ["kept"]

    # A job that puts a link in the place of a directory does not have files deleted behind it.
    (dest / "sub").unlink()
    assert (await stage(desk, tmp_path / "project", dest))["error"] is None
    shutil.move(dest / "sub", tmp_path / "outside/sub")
    (dest / "sub").symlink_to(tmp_path / "outside/sub")
    shutil.rmtree(tmp_path / "project/sub")
    assert (await stage(desk, tmp_path / "project", dest, delete=True))["error"] is None
    assert (tmp_path / "outside/sub/x").read_text() == "x"


@pytest.mark.root
@pytest.mark.here_only("both sides behave alike")
async def test_a_full_disk_is_named_and_the_same_command_continues(desk, tmp_path):
    (tmp_path / "project").mkdir()
    for number in range(4):
        (tmp_path / f"project/{number}").write_bytes(os.urandom(1 << 20))
    small = tmp_path / "scratch"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4200k", "none", str(small)], check=True)
    try:
        (small / "other").write_bytes(bytes(2 << 20))
        assert "MB are free" in await refused(desk, tmp_path / "project", small / "copy")
        (small / "other").unlink()
        done = await stage(desk, tmp_path / "project", small / "copy")
        assert done["error"] is None
        assert tree(small / "copy") == tree(tmp_path / "project")
        (tmp_path / "project/0").write_bytes(bytes(2 << 20))
        assert "MB are free" in await refused(desk, tmp_path / "project", small / "copy")
    finally:
        subprocess.run(["umount", str(small)], check=True)


@pytest.mark.here_only("both sides behave alike")
@pytest.mark.parametrize("is_first", [True, False])
async def test_a_copy_that_was_stopped_continues(desk, tmp_path, monkeypatch, is_first):
    project, dest = tmp_path / "project", tmp_path / "scratch/copy"
    project.mkdir()
    (project / "before").write_text("before")
    if not is_first:
        assert (await stage(desk, project, dest))["error"] is None
    for name in ("a/x", "b/y", "later"):
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_text(name)
    finish = "jupyter_slurm.services.transfers.cluster_side.ClusterSide.finish"
    with monkeypatch.context() as patch:
        patch.setattr(finish, lambda *args, **more: asyncio.sleep(3600))
        found = await start(desk, project, dest)
        place = dest.parent if is_first else dest
        async with asyncio.timeout(60):
            while not list(place.glob(".jupyter-slurm-partial-*/0/*/a/x")):
                await asyncio.sleep(0.02)
        await desk.core.transfers.stop_transfer(found["id"])
    assert (dest / "a").exists() is False
    (project / "later").unlink()
    done = await stage(desk, project, dest)
    assert done["error"] is None
    assert tree(dest) == tree(project)
    assert os.listdir(dest.parent) == ["copy"]


@pytest.mark.here_only("both sides behave alike")
async def test_two_at_once_and_a_job_that_copies(desk, tmp_path):
    for name in ("one/project/x", "two/project/y"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(name)
    asked = [(tmp_path / f"{name}/project", tmp_path / "copy") for name in ("one", "two", "one")]
    found = [await start(desk, *one) for one in asked]
    assert found[0]["id"] == found[2]["id"]
    assert [(await ended(desk, one))["error"] for one in found] == [None] * 3
    assert set(tree(tmp_path / "copy")) == {"x", "y"}
    assert json.loads((tmp_path / "copy/.jupyter-slurm-stage").read_text())["source"].endswith("/project")

    context = desk.asked("")["context"]
    (tmp_path / "one/project/.venv").mkdir()
    done = await stage(
        desk, tmp_path / "one/project", tmp_path / "by job", job={"options": ["-t", "5"], "context": context}
    )
    assert (done["error"], bool(done["job"])) == (None, True)
    assert tree(tmp_path / "by job") == {"x": b"one/project/x"}
