"""Tests of a folder of jobs that was removed or partly purged while the agent runs: it is made again."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from jupyter_slurm.errors import ConfigError, SubmissionUnknown
from jupyter_slurm.services.jobdir.job_directory import ClusterFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobdir.runner_files import RUNNER, RunnerInstallation
from jupyter_slurm.services.submission.submitter import Submitter
from jupyter_slurm.transport.base import Completed, Context, FileStat
from jupyter_slurm.transport.local.transport import LocalTransport

KEY = "20260101-000000-00000000"


class Host:
    """A host with an installation, whose clock the test sets, and the number of queries for many files."""

    def __init__(self, root: Path, transport: LocalTransport, *, is_remote: bool = False) -> None:
        self.root, self.transport, self.now, self.queries = root, transport, 0.0, 0
        stat_all = transport.stat_all

        async def counted(paths: Any) -> dict[str, FileStat]:
            self.queries += 1
            return await stat_all(paths)

        transport.stat_all = counted  # type: ignore[method-assign]
        self.installation = RunnerInstallation(
            transport, ClusterFolder(str(root)), lambda: {"id": "c"}, is_remote=is_remote, clock=lambda: self.now
        )

    @property
    def is_complete(self) -> bool:
        names = (self.installation.path(name) for name in RUNNER)
        return (
            (self.root / "events").is_dir()
            and (self.root / "cluster.json").exists()
            and all(map(os.path.exists, names))
        )

    async def start(self) -> Completed | None:
        """Start a command for a job directory, as the submitter starts sbatch."""
        record = {"format": 1, "key": KEY, "kind": "script", "script": "job.sh", "argv": []}
        record |= {"created": 1, "outputs": {}, "events": "events"}
        plan = SimpleNamespace(
            record=JobRecordFile.from_json(record),
            folder=ClusterFolder(str(self.root)).job(KEY),
            script=b"",
            files={},
            values=b"",
            wrapper=[],
            argv=["echo", "7"],
        )
        submitter = cast(Submitter, SimpleNamespace(_transport=self.transport, _installation=self.installation))
        once = await Submitter._start(submitter, cast(Any, plan), Context(), lambda done, total: None)
        assert once is not None
        assert once.lock is not None
        once.lock.release()
        return await once.result(30.0)


@pytest.fixture
def transport() -> Iterator[LocalTransport]:
    transport = LocalTransport()
    yield transport
    transport.close()


async def test_a_removed_folder_is_made_again_by_the_next_submission(transport: LocalTransport, tmp_path: Path) -> None:
    host = Host(tmp_path / "root", transport)
    await host.installation.prepare()
    for _ in range(2):
        shutil.rmtree(host.root)
        await host.installation.prepare()  # checked a moment ago
        done = await host.start()
        assert done is not None
        assert (done.stdout, host.is_complete) == (b"7\n", True)


async def test_what_a_site_purges_is_installed_again_with_one_query_in_ten_minutes(
    transport: LocalTransport, tmp_path: Path
) -> None:
    host = Host(tmp_path / "root", transport)
    await host.installation.prepare()
    await host.installation.prepare()
    assert (host.is_complete, host.queries) == (True, 1)
    Path(host.installation.path(RUNNER[-1])).unlink()
    host.now += 601
    await host.installation.prepare()
    assert host.is_complete
    host.queries = 0
    for later in (1, 598, 2):
        host.now += later
        await host.installation.prepare()
    assert host.queries == 1
    (host.root / "events").rmdir()
    host.now += 601
    await host.installation.prepare()
    assert host.is_complete


@pytest.mark.root
async def test_a_removed_folder_on_a_shared_host_is_not_made_where_others_can_write(
    transport: LocalTransport, tmp_path: Path
) -> None:
    above = tmp_path / "above"
    above.mkdir(0o700)
    host = Host(above / "root", transport, is_remote=True)
    await host.installation.prepare()
    shutil.rmtree(host.root)
    await host.start()
    shutil.rmtree(host.root)
    os.chown(above, 12345, 12345)
    with pytest.raises(ConfigError, match="belongs to another user"):
        await host.start()
    assert not (host.root / KEY).exists()


async def test_sbatch_that_was_started_is_not_started_again(
    transport: LocalTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over SSH, a directory that is removed right after the start is reported as a missing file."""
    host, starts = Host(tmp_path / "root", transport), list[object]()
    await host.installation.prepare()

    async def start_detached(*asked: object, **more: object) -> None:
        starts.append(asked)
        raise FileNotFoundError("submit.1.out is gone")

    monkeypatch.setattr(transport, "start_detached", start_detached)
    with pytest.raises(SubmissionUnknown, match="not known whether 20260101-000000-00000000 was submitted"):
        await host.start()
    assert len(starts) == 1


@pytest.mark.slurm
@pytest.mark.parametrize("what", ["folder", "runner files"])
async def test_jobs_go_on_after_their_folder_was_removed(desk: Any, what: str) -> None:
    first = await desk.submit("print(1)")
    assert (await desk.finished(first["key"]))["state"] == "COMPLETED"
    if what == "folder":
        shutil.rmtree(desk.root)
    else:
        for path in Path(desk.root).glob("runner-*"):
            path.unlink()
        desk.core.cluster(desk.id).submitter._installation._clock = lambda: float("inf")
    second = await desk.submit("print(2)")
    assert (await desk.finished(second["key"]))["state"] == "COMPLETED"
    assert await desk.text(second["key"]) == "2\n"
