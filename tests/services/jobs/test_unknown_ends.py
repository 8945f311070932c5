"""Tests of jobs whose end is not in the queue any more, without an accounting that answers: said, and not a failure."""

from __future__ import annotations

import dataclasses
import math
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.client.jobs.failure import failure
from jupyter_slurm.client.render.job_card import as_text
from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.errors import CommandError, ControllerError, JobEndUnknown, JobFailed, JobNotFound
from jupyter_slurm.services.slurm import accounting

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.here_only("the queries are the same over SSH; test_endings.py asks them there"),
]

ANSWERS = {
    "denied": "echo 'sacct: error: slurmdbd: Access/permission denied' >&2; exit 1",
    "hangs": "exec sleep 1000",
    "prints nothing": "exit 0",
}


@dataclasses.dataclass
class Behind:
    """A cluster whose sacct and sacctmgr are scripts of the test; the rest is Slurm's own."""

    real: EmbeddedCluster
    bin: Path

    @property
    def slurm_conf(self) -> Path:
        return self.real.slurm_conf

    def env(self) -> dict[str, str]:
        own = self.real.env()
        return {**own, "PATH": f"{self.bin}:{own['PATH']}"}


@pytest.fixture(scope="module")
def forgetful(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster without accounting that forgets a job two seconds after its end."""
    description = load_description()
    description = dataclasses.replace(description, extra=(*description.extra, "MinJobAge=2"))
    with EmbeddedCluster(description, directory=short_tmp / "u") as running:
        yield running


@pytest.fixture
def behind(forgetful: EmbeddedCluster, tmp_path: Path) -> Callable[[str], Behind]:
    """Return ``behind(answer)``: the forgetful cluster, with an accounting that answers so."""

    def make(answer: str) -> Behind:
        folder = tmp_path / "bin"
        folder.mkdir()
        for command in ("sacct", "sacctmgr"):
            (folder / command).write_text(f"#!/bin/sh\n{ANSWERS[answer]}\n")
            (folder / command).chmod(0o755)
        return Behind(forgetful, folder)

    return make


def _is_forgotten(cluster: Any, number: str) -> bool:
    argv = ["squeue", "-h", "-t", "all", "-j", number, "-o", "%T"]
    return not subprocess.run(argv, env=cluster.env(), capture_output=True, text=True, check=False).stdout.strip()


async def test_the_end_that_nobody_saw_is_said_to_be_unknown_and_is_no_failure(
    forgetful: EmbeddedCluster, open_desk: Any, tmp_path: Path, wait_for: Callable[..., Any]
) -> None:
    async with open_desk(forgetful, tmp_path) as desk:
        script = await desk.submit(f"#!/bin/sh\necho the last line\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.1; done\n")
        seen = await desk.until(script["key"], lambda job: job["state"] == "RUNNING")
        assert seen["reason_text"] == ""
    (tmp_path / "go").touch()
    wait_for(lambda: _is_forgotten(forgetful, script["id"]), "the controller to forget the job")
    async with open_desk(forgetful, tmp_path) as desk:
        ended = await desk.finished(script["key"])
        assert ended["state"] == "UNKNOWN"
        moment = r"20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
        assert re.fullmatch(
            "How it ended is not known: it has left the queue, and this cluster keeps no accounting. "
            f"It was last seen running at {moment}. Its output was last written at {moment}.",
            ended["reason_text"],
        )
        assert ended["next_step"].startswith("Read the end of its output.")
        log = await desk.text(script["key"])
    error = failure(ended, log, ended["stdout"])
    assert isinstance(error, JobEndUnknown)
    assert not isinstance(error, JobFailed)
    assert "the last line" in str(error)
    assert str(error).count("How it ended is not known") == as_text(ended, []).count("How it ended is not known") == 1
    shutil.rmtree(tmp_path / "state")  # with the index; another machine has none
    async with open_desk(forgetful, tmp_path) as desk:
        again = await desk.job(script["key"])
        assert (again["state"], again["reason_text"]) == ("UNKNOWN", ended["reason_text"])


async def test_a_job_is_looked_at_while_the_controller_still_remembers_its_end(
    new_cluster: Callable[..., EmbeddedCluster], open_desk: Any, tmp_path: Path
) -> None:
    """If nothing else keeps the end of a script, the agent asks in time, and does not leave as idle."""
    cluster = new_cluster(extra=("MinJobAge=60",))
    async with open_desk(cluster, tmp_path) as desk:
        services = desk.core.cluster(desk.id)
        held = await desk.submit("#!/bin/sh\n#SBATCH --hold\n")
        await services.poller.wait_fresh(0.0)
        services.poller.interval = 300.0  # nothing has changed for long
        assert services.poller.status()["interval"] == 30.0
        assert desk.core.count_holders() == {"jobs": 1}
        await services.actions.cancel(held["key"])
        await desk.until(held["key"], lambda job: job["finished"])
        assert services.jobs.watched_count() == 0
        cell = await desk.submit("print(1)", "--hold")  # its runner leaves a sign
        services.poller.interval = 300.0
        assert services.poller.status()["interval"] == 300.0
        await services.actions.cancel(cell["key"])


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_job_that_neither_queue_nor_accounting_shows(
    behind: Callable[[str], Behind],
    open_desk: Any,
    tmp_path: Path,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounting, "_TIMEOUT_S", 1.0)
    expected, said = {
        "denied": (CommandError, "accounting could not be asked (sacct: error: slurmdbd: Access/permission denied)"),
        "hangs": (ControllerError, "accounting could not be asked (sacct gave no answer within 1 s)"),
        "prints nothing": (JobNotFound, "You have no job 999999."),
    }[answer]
    async with open_desk(behind(answer), tmp_path) as desk:
        with pytest.raises(expected, match=re.escape(said)) as caught:
            await desk.job("999999")
        assert isinstance(caught.value, JobNotFound) == (answer == "prints nothing")
        assert ("You have no job" in caught.value.message) == (answer == "prints nothing")


@pytest.mark.parametrize("answer", ["denied", "hangs"])
async def test_an_accounting_without_an_answer_delays_neither_the_queue_nor_the_usage(
    behind: Callable[[str], Behind],
    open_desk: Any,
    tmp_path: Path,
    wait_for: Callable[..., Any],
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(accounting, "_TIMEOUT_S", 1.0)
    cluster = behind(answer)
    async with open_desk(cluster, tmp_path) as desk:
        gone = await desk.submit("#!/bin/sh\nexit 3\n")
        waits = await desk.submit("#!/bin/sh\n#SBATCH --hold\n")
        wait_for(lambda: _is_forgotten(cluster, gone["id"]), "the controller to forget the job")
        services = desk.core.cluster(desk.id)
        await services.poller.wait_fresh(0.0)  # raises if the queue could not be read
        job, other = await desk.job(gone["key"]), await desk.job(waits["key"])
        assert (other["state"], other["known"]) == ("PENDING", True)
        if answer == "denied":
            assert job["state"] == "UNKNOWN"
            assert "accounting could not be asked (sacct: error: slurmdbd: Access" in job["reason_text"]
        else:
            assert not job["finished"], "an answer may still come"
        with pytest.raises((ControllerError, CommandError)) as caught:
            await services.inventory.usage.to_api(start=None, end=None, account=None, has_jobs=True)
        assert ("permission denied" if answer == "denied" else "Accounting does not answer") in caught.value.message
        await services.actions.cancel(waits["key"])


async def test_usage_says_why_its_table_is_empty(
    behind: Callable[[str], Behind], open_desk: Any, tmp_path: Path
) -> None:
    async with open_desk(behind("prints nothing"), tmp_path) as desk:
        usage = desk.core.cluster(desk.id).inventory.usage
        told = await usage.to_api(start=None, end=None, account=None, has_jobs=True)
        assert re.fullmatch(r"Accounting has no job of \S+ that ran in this period\.", told["note"])
        told = await usage.to_api(start=None, end=None, account="c4ai", has_jobs=True)
        assert "no job of account c4ai" in told["note"]
        ran = await desk.submit("import time; time.sleep(2)")
        assert (await desk.finished(ran["key"]))["state"] == "COMPLETED"
        told = await usage.to_api(start=2_000_000, end=None, account=None, has_jobs=True)
        assert "jupyter_slurm knows 1 job that ran in it" in told["note"]


def test_a_controller_that_remembers_for_ever_is_asked_as_seldom_as_any() -> None:
    from jupyter_slurm.services.slurm.client import job_memory

    assert [job_memory({"MinJobAge": age}) for age in ("300 sec", "0 sec")] == [300, math.inf]
    assert job_memory({}) == 0
