"""Tests of the commit of a notebook's folder: found with the real git, without running code of the repository."""

from __future__ import annotations

import asyncio
import os
import subprocess
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.services.jobdir.job_json_model import GitRecord
from jupyter_slurm.services.submission import git_origin as origin
from jupyter_slurm.services.submission.git_origin import read_git_origin
from jupyter_slurm.transport.local.transport import LocalTransport


@pytest.fixture
async def here() -> AsyncIterator[LocalTransport]:
    transport = LocalTransport(workers=1)
    yield transport
    transport.close()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """Provide a repository with a commit."""
    path = tmp_path / "it's a repo"
    path.mkdir()
    (path / "one.txt").write_text("one\n")
    git(path, "init", "--quiet", "--initial-branch", "topic")
    git(path, "add", ".")
    git(path, "commit", "--quiet", "--message", "one")
    return path


def git(path: Path, *words: str) -> str:
    person = ["-c", "user.name=Ana", "-c", "user.email=ana@localhost"]
    return subprocess.run(["git", *person, *words], cwd=path, check=True, capture_output=True, text=True).stdout


async def test_commit_branch_and_whether_it_was_changed(here: LocalTransport, repository: Path) -> None:
    head = git(repository, "rev-parse", "HEAD").strip()
    (repository / "sub").mkdir()
    (repository / "not tracked").touch()
    assert await read_git_origin(here, str(repository / "sub")) == GitRecord(commit=head, branch="topic", dirty=False)
    (repository / "one.txt").write_text("two\n")
    git(repository, "checkout", "--quiet", "--detach")
    assert await read_git_origin(here, str(repository)) == GitRecord(commit=head, branch=None, dirty=True)


async def test_folders_without_a_commit_tell_nothing(here: LocalTransport, tmp_path: Path) -> None:
    assert await read_git_origin(here, str(tmp_path)) is None
    assert await read_git_origin(here, str(tmp_path / "gone")) is None
    git(tmp_path, "init", "--quiet")
    assert await read_git_origin(here, str(tmp_path)) is None
    (tmp_path / ".git" / "HEAD").write_bytes(b"\xff\0nonsense")
    assert await read_git_origin(here, str(tmp_path)) is None


async def test_nothing_of_the_repository_is_run_or_written(here: LocalTransport, repository: Path) -> None:
    trap, sprung = repository.parent / "trap", repository.parent / "sprung"
    trap.write_text(f"#!/bin/sh\necho $0 >> '{sprung}'\ncat\n")
    trap.chmod(0o755)
    for key in ("core.fsmonitor", "filter.trap.clean", "filter.trap.process", "filter.trap.smudge", "core.sshCommand"):
        git(repository, "config", key, str(trap))
    git(repository, "config", "filter.trap.required", "true")
    for hook in ("post-index-change", "post-checkout", "fsmonitor-watchman"):
        (repository / ".git" / "hooks" / hook).write_text(trap.read_text())
        (repository / ".git" / "hooks" / hook).chmod(0o755)
    (repository / ".git" / "info").mkdir(exist_ok=True)
    (repository / ".git" / "info" / "attributes").write_text("* filter=trap\n")
    index = repository / ".git" / "index"
    before = index.read_bytes()
    os.utime(repository / "one.txt", (1, 1))  # git must read the file
    found = await read_git_origin(here, str(repository))
    assert found is not None
    assert found.dirty is False
    assert not sprung.exists()
    assert index.read_bytes() == before
    git(repository, "config", "filter.a=b.clean", str(trap))  # a command line cannot disable this filter
    assert await read_git_origin(here, str(repository)) == replace(found, branch=None, dirty=None)
    assert not sprung.exists()
    subprocess.run(["git", "status"], cwd=repository, check=False, capture_output=True)
    assert sprung.exists(), "the trap works"


async def test_nothing_is_fetched_whatever_the_repository_allows(
    here: LocalTransport, repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sprung, trap = repository.parent / "fetched", repository.parent / "fetch.sh"
    trap.write_text(f"#!/bin/sh\n: >'{sprung}'\n")
    trap.chmod(0o755)
    for key, value in {
        "protocol.ext.allow": "always",
        "core.repositoryFormatVersion": "1",
        "extensions.partialClone": "origin",
        "remote.origin.url": f"ext::{str(trap).replace(' ', '% ')}",
        "remote.origin.promisor": "true",
    }.items():
        git(repository, "config", key, value)
    tree = git(repository, "rev-parse", "HEAD^{tree}").strip()
    (repository / ".git" / "objects" / tree[:2] / tree[2:]).unlink()
    monkeypatch.delitem(origin._SETTINGS, "GIT_NO_LAZY_FETCH")  # an older git does not know it
    await read_git_origin(here, str(repository))
    assert not sprung.exists()
    subprocess.run(["git", "status"], cwd=repository, check=False, capture_output=True)
    assert sprung.exists(), "the trap works"


@pytest.mark.root
async def test_a_repository_of_somebody_else_is_left_alone(here: LocalTransport, repository: Path, bob: str) -> None:
    subprocess.run(["chown", "-R", bob, str(repository)], check=True)
    assert await read_git_origin(here, str(repository)) is None


@pytest.mark.slurm
@pytest.mark.here_only("the notebook's folder is on this machine either way")
async def test_it_is_recorded_after_the_submission_and_read_from_disk(
    open_desk: Callable[..., Any], cluster: Any, repository: Path, tmp_path: Path
) -> None:
    origin = {"folder": str(repository), "notebook": "a.ipynb"}
    async with open_desk(cluster, tmp_path) as desk:
        keys = [(await desk.submit("#!/bin/sh\ntrue", origin=origin))["key"] for _ in range(2)]
        for key in keys:
            await desk.finished(key)
            async with asyncio.timeout(60):
                while not (await desk.core.cluster(desk.id).results.record(key))["git"]:
                    await asyncio.sleep(0.05)
    async with open_desk(cluster, tmp_path) as desk:  # another agent, with the index of the first
        for key in keys:
            record = await desk.core.cluster(desk.id).results.record(key)
            assert record["git"] == {
                "commit": git(repository, "rev-parse", "HEAD").strip(),
                "branch": "topic",
                "dirty": False,
            }
            assert record["notebook"] == "a.ipynb"
