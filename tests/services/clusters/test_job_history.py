"""Tests of the history: jobs of a terminal that the controller has forgotten, with their logs, and refused jobs."""

from __future__ import annotations

import dataclasses
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.errors import CommandError, JobError, JobOutputMissing, SubmitRefused

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.slow,
    pytest.mark.carrier("paramiko"),
    pytest.mark.xdist_group("job-history"),  # they share two clusters
]

KEPT = "job_comment,job_script"


@pytest.fixture(scope="module", params=[True, False], ids=["accounting", "no accounting"])
def forgetful(request: pytest.FixtureRequest, short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster whose controller forgets jobs two seconds after their end."""
    arandu = load_description()
    description = dataclasses.replace(
        arandu, extra=(*arandu.extra, "MinJobAge=2", f"AccountingStoreFlags={KEPT}"), accounting=request.param
    )
    with EmbeddedCluster(description, directory=short_tmp / ("remembers" if request.param else "forgets")) as running:
        yield running


class Terminal:
    """A terminal of the user on a cluster."""

    def __init__(self, cluster: EmbeddedCluster, folder: Path, wait_for: Callable[..., Any]) -> None:
        self._cluster, self._folder, self._wait_for = cluster, folder, wait_for

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = self._cluster.env()
        return subprocess.run(argv, env=env, cwd=self._folder, capture_output=True, text=True, check=False)

    def sbatch(self, command: str, *options: str) -> str:
        done = self.run("sbatch", "--parsable", *options, f"--wrap={command}")
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def forgotten(self, *jobs: str) -> None:
        """Wait until the controller has forgotten jobs, and accounting, if any, has their ends."""

        def left() -> str:
            return self.run("squeue", "-h", "-t", "all", "-o", "%A").stdout

        self._wait_for(lambda: not set(jobs) & set(left().split()), "the controller forgets the jobs", 120)
        if self._cluster.description.accounting:
            argv = ("sacct", "-nPX", "-o", "State,End", f"-j{','.join(jobs)}")
            rows = self._wait_for(lambda: self.run(*argv).stdout, "accounting has the jobs", 120)
            self._wait_for(lambda: "Unknown" not in self.run(*argv).stdout, f"accounting has the ends: {rows}", 120)


@pytest.fixture
def terminal(forgetful: EmbeddedCluster, tmp_path: Path, wait_for: Callable[..., Any]) -> Terminal:
    folder = tmp_path / "work"
    folder.mkdir()
    return Terminal(forgetful, folder, wait_for)


async def _listed(desk: Any, *, active: bool = False) -> dict[str, dict[str, Any]]:
    jobs = await desk.core.cluster(desk.id).jobs.list_jobs(active=active)
    return {job["id"]: job for job in jobs}


async def test_what_was_started_in_a_terminal_overnight(
    forgetful: EmbeddedCluster, terminal: Terminal, open_desk: Callable[..., Any], tmp_path: Path
) -> None:
    """Check that an agent that starts after the jobs lists them, finds their logs, and seldom asks for that."""
    if not forgetful.description.accounting:
        pytest.skip("nothing remembers them")
    failed = terminal.sbatch("echo the last words; exit 3", "-J", "night")
    array = terminal.sbatch("echo task $SLURM_ARRAY_TASK_ID", "--array=1,4")
    moved = terminal.sbatch("echo lost", "-o", "elsewhere.log")
    refused = terminal.run("sbatch", "-p", "arandu", "--gpus=100", "-J", "never", "--wrap=true")
    assert refused.returncode == 1
    terminal.forgotten(failed, array, moved)
    async with open_desk(forgetful, tmp_path) as desk:
        asked, query = [], desk.core.cluster(desk.id).client.accounting.query

        async def counted(argv: Any) -> bytes:
            asked.append(argv[0])
            return bytes(await query(argv))

        desk.core.cluster(desk.id).client.accounting.query = counted
        for _ in range(3):
            jobs = await _listed(desk)
        assert asked == ["sacct"]
        assert {failed, array, moved} <= set(jobs)
        assert "never" not in {job["name"] for job in jobs.values()}
        job = jobs[failed]
        assert (job["name"], job["state"], job["exit_code"], job["finished"]) == ("night", "FAILED", 3, True)
        assert jobs[array]["tasks"] == {"COMPLETED": 2}
        assert await desk.text(failed) == await desk.text(failed, "stderr") == "the last words\n"
        assert await desk.text(f"{array}_4") == "task 4\n"
        with pytest.raises(JobOutputMissing, match="Each task"):
            await desk.text(array)
        # Before 24.05 accounting does not know the files.
        rows = await desk.core.cluster(desk.id).jobs.tasks(array, parameters=False)
        assert [row[rows["columns"].index("state")] for row in rows["rows"]] == ["COMPLETED", "COMPLETED"]
        looked = tmp_path / "work" / f"slurm-{moved}.out"
        if forgetful.installation.version >= (24, 5):
            assert await desk.text(moved) == "lost\n"
        else:
            with pytest.raises(JobOutputMissing, match=f"looked for {looked}"):
                await desk.text(moved)
        # A later one is found when the next query is due.
        later = terminal.sbatch("true")
        terminal.forgotten(later)
        history = desk.core.cluster(desk.id).jobs._history
        assert later not in await _listed(desk)
        history._clock = lambda: time.monotonic() + 3600
        assert (await _listed(desk))[later]["state"] == "COMPLETED"
        assert asked == ["sacct", "sacct"]
    async with open_desk(forgetful, tmp_path, history_days=0.0) as desk:
        assert await desk.text(failed) == "the last words\n"  # of an older job by its ID


async def test_a_job_of_a_terminal_is_submitted_again(
    forgetful: EmbeddedCluster, terminal: Terminal, open_desk: Callable[..., Any], tmp_path: Path
) -> None:
    """Check that script, directory and options are known while it runs, and later from accounting, which keeps them."""
    folder = tmp_path / "work"
    script = "#!/bin/bash\n#SBATCH --mem-per-cpu=100\nuntil [ -e go ]; do sleep 0.1; done\necho ä again\n"
    (folder / "train.sh").write_text(script)
    options = ("-p", "arandu", "-t", "90", "--gpus=1", "--array=1-2,5")
    done = terminal.run("sbatch", "--parsable", "-J", "again", *options, "train.sh")
    assert done.returncode == 0, done.stderr
    number = done.stdout.strip()
    expected = ["--job-name=again", "--partition=arandu", "--time=90", f"--chdir={folder}"]
    async with open_desk(forgetful, tmp_path) as desk:
        cluster = desk.core.cluster(desk.id)
        for gpus in ({"--gpus=1"}, set[str]()):  # accounting counts GPUs only where AccountingStorageTRES says so
            told = await cluster.foreign_submission(number)
            assert told["script"] == script
            assert {*expected, *gpus, "--array=1-2,5"} <= set(told["options"])
            assert not [word for word in told["options"] if word.startswith("--mem")]  # the script says it
            task = await cluster.foreign_submission(f"{number}_2")
            assert {*expected, *gpus, "--array=2"} <= set(task["options"])
            (folder / "go").touch()
            if not forgetful.description.accounting:
                break
            terminal.forgotten(number)
        terminal.forgotten(number)
        if not forgetful.description.accounting:
            with pytest.raises(JobError, match=f"no longer has the script of job {number}"):
                await cluster.foreign_submission(number)


@pytest.mark.parametrize(
    ("header", "options", "expected"),
    [
        (
            "",
            "-N2 -n4 -c2 -C workstation --mem=2G --gpus-per-node=1 -t 30 --dependency=singleton",
            "--nodes=2 --ntasks=4 --cpus-per-task=2 --constraint=workstation --mem=2048M --time=30",
        ),
        ("#SBATCH -n2\n#SBATCH --mem=1G\n", "-c3 --exclusive", "--nodes=1 --cpus-per-task=3"),
        ("#SBATCH --nodes=2\n#SBATCH --cpus-per-task=2\n#SBATCH --mem=1G\n", "--ntasks-per-node=2", "--ntasks=4"),
    ],
    ids=["line", "tasks in the script", "nodes in the script"],
)
async def test_the_layout_of_a_job_of_a_terminal_is_submitted_again(
    forgetful: EmbeddedCluster,
    terminal: Terminal,
    open_desk: Callable[..., Any],
    tmp_path: Path,
    header: str,
    options: str,
    expected: str,
) -> None:
    """Check that options which only stood on the command line give a job of the same size, also from accounting."""
    (tmp_path / "work" / "wide.sh").write_text(f"#!/bin/bash\n{header}until [ -e go ]; do sleep 0.1; done\n")

    def submit(*words: str) -> tuple[str, str]:
        """Submit the script; return its number, and what the job requests."""
        done = terminal.run("sbatch", "--parsable", *words, "wide.sh")
        assert done.returncode == 0, done.stderr
        form = "numnodes:8,numtasks:8,cpus-per-task:8,feature:20,minmemory:12,oversubscribe:12"
        return done.stdout.strip(), terminal.run("squeue", "-h", "-O", form, "-j", done.stdout.strip()).stdout

    number, size = submit("-p", "devwork", *options.split())
    async with open_desk(forgetful, tmp_path) as desk:
        cluster = desk.core.cluster(desk.id)
        for is_known in (True, False):
            told = (await cluster.foreign_submission(number))["options"]
            assert set(expected.split()) <= set(told)
            assert not [word for word in told if word.startswith("--dependency")]
            if is_known:
                again, size_again = submit(*told)
                assert size_again == size
                (tmp_path / "work" / "go").touch()
                if not forgetful.description.accounting:
                    break
                terminal.forgotten(number, again)


async def test_older_jobs_are_for_who_asks_for_a_longer_period(
    forgetful: EmbeddedCluster, terminal: Terminal, open_desk: Callable[..., Any], tmp_path: Path
) -> None:
    """Check that accounting is asked once for a longer period, for the longest that it allows, or that it says no."""
    old = terminal.sbatch("true", "-J", "old")
    terminal.forgotten(old)
    async with open_desk(forgetful, tmp_path, history_days=0.0) as desk:
        jobs, accounting = desk.core.cluster(desk.id).jobs, desk.core.cluster(desk.id).client.accounting
        asked, query = [], accounting.query

        async def limited(argv: Any) -> bytes:
            (since,) = (int(word.partition("=uts")[2]) for word in argv if word.startswith("--starttime"))
            asked.append(round((time.time() - since) / 86400))
            if asked[-1] > 100:
                raise CommandError("sacct: error: slurmdbd: Too wide of a date range in query", argv=list(argv))
            return bytes(await query(argv))

        accounting.query = limited
        assert old not in await _listed(desk)
        if not forgetful.description.accounting:
            accounting.query = query
            with pytest.raises(CommandError, match="accounting"):
                await jobs.list_jobs(active=False, days=0)
            assert old not in await _listed(desk)
            return
        for days in (7, 0, 0, 30):
            known = {job["id"]: job for job in await jobs.list_jobs(active=False, days=days)}
            assert (known[old]["name"], known[old]["state"], known[old]["finished"]) == ("old", "COMPLETED", True)
        assert asked[1] > 10_000
        assert [asked[0], *asked[2:]] == [7, 366, 92]
        assert old not in await _listed(desk)
        await desk.core.cluster(desk.id).poller.wait_fresh(0.0)
        assert old in {job["id"] for job in await jobs.list_jobs(active=False, days=0)}


@pytest.mark.here_only("the agent keeps it on its own disk, whatever the way to the cluster")
async def test_what_was_once_seen_is_kept_with_its_log(
    forgetful: EmbeddedCluster, terminal: Terminal, open_desk: Callable[..., Any], tmp_path: Path
) -> None:
    """Check that a job of a terminal stays after the controller has forgotten it, also for the next agent."""
    command = "until [ -e go ]; do sleep 0.1; done; echo kept"
    single = terminal.sbatch(command, "-J", "seen", "-o", "%x-%j.log")
    array = terminal.sbatch(command, "--array=2-3", "-o", "part-%a.log")

    async with open_desk(forgetful, tmp_path) as desk:
        cluster = desk.core.cluster(desk.id)
        assert {single, array} <= set(await _listed(desk))
        (tmp_path / "work" / "go").touch()
        for number in (single, array):
            await desk.finished(number)
        terminal.forgotten(single, array)
        await cluster.poller.wait_fresh(0.0)
        jobs = await _listed(desk)
        assert (jobs[single]["state"], jobs[single]["name"]) == ("COMPLETED", "seen")
        assert await desk.text(single) == await desk.text(f"{array}_3") == "kept\n"
        assert not {single, array} & set(await _listed(desk, active=True))
    async with open_desk(forgetful, tmp_path) as desk:
        assert await desk.text(single) == "kept\n"  # before anything is listed, as by a page that is restored
        jobs = await _listed(desk)
        assert {jobs[single]["state"], jobs[array]["state"]} == {"COMPLETED"}
        assert jobs[array]["tasks"] == {"COMPLETED": 2}
        assert await desk.text(single) == await desk.text(f"{array}_3") == "kept\n"
    async with open_desk(forgetful, tmp_path, history_days=0.0) as desk:
        await desk.core.cluster(desk.id).poller.wait_fresh(0.0)
        assert not {single, array} & set(await _listed(desk))


@pytest.mark.here_only("the queue is the same over SSH")
@pytest.mark.parametrize("kind", ["sbatch", "sbatch --array=0-3", "salloc", "srun", "components", "begin", "own"])
async def test_a_refused_job_is_no_job(cluster: EmbeddedCluster, desk: Any, tmp_path: Path, kind: str) -> None:
    """Check that the failed job which Slurm keeps of a refusal is in no list and no count."""
    too_much = ("-p", "arandu", "--gpus=100")
    await _listed(desk)
    if kind == "own":
        with pytest.raises(SubmitRefused):
            await desk.submit("print(1)", *too_much)
    else:
        argv = {
            "salloc": ["salloc", *too_much, "true"],
            "srun": ["srun", *too_much, "true"],
            "components": ["sbatch", *too_much, ":", "-p", "arandu", "--wrap=true"],
            "begin": ["sbatch", "--begin=now+3600", *too_much, "--wrap=true"],
        }.get(kind, [*kind.split(), *too_much, "--wrap=true"])
        done = subprocess.run(argv, env=cluster.env(), cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 1, done
    queue = ["squeue", "-h", "-t", "FAILED", "-o", "%A %r", "--sort=-i"]
    number, reason = cluster.run(*queue).stdout.split("\n")[0].split()
    assert reason == "BadConstraints"
    of = desk.core.cluster(desk.id)
    await of.poller.wait_fresh(0.0)
    assert number not in await _listed(desk)
    assert number not in {str(entry.id) for entry in of.tracker.all_entries()}
    assert (await desk.job(number))["state"] == "FAILED"  # it can still be read by its ID
    await of.poller.wait_fresh(0.0)
    assert number not in await _listed(desk)
    assert of.as_dict()["active"] == len(await _listed(desk, active=True))
