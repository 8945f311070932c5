"""Benchmark of submissions from notebooks over SSH while everything on the way is killed, by a schedule with a seed.

``JUPYTER_SLURM_CHAOS_SEED`` repeats a schedule, ``JUPYTER_SLURM_CHAOS_SUBMISSIONS`` sets the number of submissions
(default: 300, divided between the two carriers). The seed determines which part is killed at which submission, and how
long after its beginning; what that hits differs from run to run.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from jupyter_client.manager import KernelManager
from jupyter_core.utils import ensure_event_loop
from ssh_hosts.sshd import SshHost
from ssh_hosts.ways import CARRIERS, Way, new_login_host

from jupyter_slurm.agent.client.agent_client import AgentClient
from jupyter_slurm.config import Settings
from jupyter_slurm.embedded import EmbeddedCluster
from jupyter_slurm.errors import AgentError

pytestmark = [pytest.mark.bench, pytest.mark.root, pytest.mark.slurm, pytest.mark.timeout(5400)]

SEED = int(os.environ.get("JUPYTER_SLURM_CHAOS_SEED") or secrets.randbelow(1_000_000))
SUBMISSIONS = int(os.environ.get("JUPYTER_SLURM_CHAOS_SUBMISSIONS") or 300) // len(CARRIERS)

KILLS = ("agent", "controller", "sshd", "kernel", "link")
WEIGHTS = (6, 3, 1)  # of submissions with no kill, with one and with two
NOTEBOOKS = 2  # at the same time

CELL = """
import json
try:
    job = get_ipython().run_cell_magic("sbatch", {line!r}, {cell!r})
    answer = {{"key": job.key, "id": job.id}}
except BaseException as error:
    answer = {{"error": type(error).__name__, "message": str(error)}}
print(f"\\nANSWER {{json.dumps(answer)}}\\n", end="")
"""
_ANSWER = re.compile(r"^ANSWER (.*)\n", re.MULTILINE)
BODIES = (
    "#!/bin/sh\necho $SLURM_JOB_ID >> {path}\n",
    "import os\nprint(os.environ['SLURM_JOB_ID'], file=open({path!r}, 'a'))\n",
)


@dataclass(frozen=True)
class Kill:
    """One disturbance of the schedule.

    Attributes
    ----------
    part : str
        One of ``KILLS``.
    after : float
        Seconds after the beginning of its submission.
    duration : float
        Seconds until the part is back, if it does not come back by itself.
    """

    part: str
    after: float
    duration: float


def make_schedule(seed: int, submissions: int) -> list[list[Kill]]:
    """Return the kills of each submission."""
    chance = random.Random(seed)
    plan: list[list[Kill]] = []
    for _ in range(submissions):
        count = chance.choices((0, 1, 2), WEIGHTS)[0]
        parts = chance.sample(KILLS, count) if chance.random() < 0.7 else chance.choices(KILLS, k=count)
        plan.append([Kill(part, chance.uniform(0.0, 0.8), chance.choice((0.5, 2.0, 6.0, 14.0))) for part in parts])
    return plan


@dataclass
class Submission:
    """One run of a cell, and what it printed.

    Attributes
    ----------
    name : str
        The job's name, which no other run has.
    answer : mapping
        ``key`` and ``id``, or ``error`` and ``message``; empty if the kernel was killed before.
    """

    name: str
    answer: dict[str, Any] = field(default_factory=dict)

    @property
    def is_reported(self) -> bool:
        """Return whether the cell has returned a job."""
        return "key" in self.answer

    @property
    def is_refused(self) -> bool:
        """Return whether the cell said that there is no job: with any error but that nothing is known yet."""
        return self.answer.get("error", "SubmissionUnknown") != "SubmissionUnknown"


class Notebook:
    """A kernel that can be killed at any time; the next cell starts another one."""

    def __init__(self, env: dict[str, str], folder: Path) -> None:
        self._env, self._folder = env, folder
        self.manager: KernelManager | None = None

    def run(self, code: str, timeout: float = 180.0) -> dict[str, Any]:
        """Run a cell and return its answer; an empty one if the kernel ended meanwhile."""
        if self.manager is None or not self.manager.is_alive():
            self.stop()
            self._start()
        manager = self.manager
        assert manager is not None
        request, text, deadline = self.client.execute(code), "", time.monotonic() + timeout
        while (found := _ANSWER.search(text)) is None:
            assert time.monotonic() < deadline, f"a cell did not end within {timeout:g} s: {text}"
            is_alive = manager.is_alive()
            try:
                message = self.client.get_iopub_msg(timeout=0.2)
            except queue.Empty:
                if not is_alive:
                    return {}
                continue
            is_own = message["parent_header"].get("msg_id") == request and message["msg_type"] == "stream"
            if is_own and message["content"]["name"] == "stdout":
                text += message["content"]["text"]
        answer: dict[str, Any] = json.loads(found[1])
        return answer

    def kill(self) -> bool:
        """Kill the kernel (SIGKILL); return whether there was one."""
        pid = self.manager.provisioner.pid if self.manager is not None and self.manager.provisioner else None  # type: ignore[attr-defined]
        if pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    def _start(self) -> None:
        manager = KernelManager(transport="ipc", connection_file=tempfile.mktemp(".json", "k-", self._folder))
        manager.start_kernel(env=self._env, cwd=str(self._folder))
        self.client = manager.blocking_client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=120)
        self.client.execute_interactive("%load_ext jupyter_slurm", timeout=120, output_hook=lambda message: None)
        self.manager = manager

    def stop(self) -> None:
        """End the kernel."""
        manager, self.manager = self.manager, None
        if manager is not None:
            self.client.stop_channels()
            manager.shutdown_kernel(now=True)
            manager.cleanup_resources()


class Bench:
    """The notebooks, and everything between them and the jobs."""

    def __init__(self, cluster: EmbeddedCluster, host: SshHost, home: Path, carrier: str) -> None:
        self.cluster, self.host, self.home, self.carrier = cluster, host, home, carrier
        self.ledger = home / "ledger"
        for name in ("ledger", "config"):
            (home / name).mkdir()
        chosen: dict[str, Any] = Way(carrier, host).settings(cluster, home, str(home / "far"))
        folders = {"runtime_dir": str(home / "run"), "state_dir": str(home / "state"), "job_root": chosen["job_root"]}
        chosen |= {**folders, "cluster": "far", "agent_host": "daemon"}
        (home / "config" / "jupyter_slurm_config.json").write_text(json.dumps({"Settings": chosen}))
        self.settings = Settings(**{name: chosen[name] for name in (*folders, "sites", "agent_host")})
        own = {"JUPYTER_CONFIG_DIR": "config", "IPYTHONDIR": "ipython", "JUPYTER_RUNTIME_DIR": "runtime"}
        env = {**os.environ, **{name: str(home / folder) for name, folder in own.items()}}
        self.env = {name: value for name, value in env.items() if not name.startswith("SLURM")}
        self.notebooks = [Notebook(self.env, home) for _ in range(NOTEBOOKS)]
        self.done: Counter[str] = Counter()
        self._busy = {part: threading.Lock() for part in KILLS}

    def submit(self, notebook: Notebook, number: int, kills: list[Kill], pool: ThreadPoolExecutor) -> list[Submission]:
        """Run one cell until it reports a job, as a user does; return all runs."""
        runs: list[Submission] = []
        striking: list[Future[None]] = []
        while not runs or not runs[-1].is_reported:
            assert len(runs) < 30, f"submission {number} is never reported: {[run.answer for run in runs[-5:]]}"
            run = Submission(f"c{number}-{len(runs)}")
            cell = BODIES[number % len(BODIES)].format(path=str(self.ledger / run.name))
            line = f"-p {self.cluster.description.partitions[0].name} --mem=10 --job-name={run.name}"
            if not runs:
                striking = [pool.submit(self._strike, kill, notebook) for kill in kills]
            run.answer = notebook.run(CELL.format(line=line, cell=cell))
            runs.append(run)
            if "error" in run.answer:
                time.sleep(1)  # the user reads the message
        for one in striking:
            one.result()
        return runs

    def _strike(self, kill: Kill, notebook: Notebook) -> None:
        time.sleep(kill.after)
        with self._busy[kill.part]:
            if getattr(self, f"_kill_{kill.part}")(notebook, kill.duration):
                self.done[kill.part] += 1

    def _kill_agent(self, notebook: Notebook, duration: float) -> bool:
        try:
            with AgentClient.connect(self.settings, start=False) as client:
                os.kill(client.info["pid"], signal.SIGKILL)
        except (AgentError, ProcessLookupError):
            return False
        return True

    def _kill_controller(self, notebook: Notebook, duration: float) -> bool:
        """End slurmctld, which saves its state."""
        self.cluster.stop_controller()
        time.sleep(duration)
        self.cluster.start_controller()
        return True

    def _kill_sshd(self, notebook: Notebook, duration: float) -> bool:
        """Kill the sshd of each connection; half of the time no new connection is possible for a while."""
        if duration > 1:
            self.host.stop(hard=True)
        self.host.kill_sessions()
        if duration > 1:
            time.sleep(min(duration, 6.0))
            self.host.start()
        return True

    def _kill_kernel(self, notebook: Notebook, duration: float) -> bool:
        return notebook.kill()

    def _kill_link(self, notebook: Notebook, duration: float) -> bool:
        """Drop all packets for a while."""
        self.host.drop()
        time.sleep(duration)
        self.host.restore()
        return True

    def close(self) -> None:
        """End notebooks, connection and agent."""
        for notebook in self.notebooks:
            notebook.stop()
        with contextlib.suppress(AgentError), AgentClient.connect(self.settings, start=False) as client:
            client.post("/v1/clusters", json={"profile": "far"})
            client.post("/v1/clusters/far/disconnect")
            client.stop_agent()

    # Afterwards --------------------------------------------------------------------------------------------------

    def ended(self, run: Submission, wait_for: Callable[..., Any]) -> dict[str, Any]:
        """Return a reported job when its end is known."""

        def known() -> dict[str, Any] | None:
            told: dict[str, Any] = client.get(f"/v1/clusters/far/jobs/{run.answer['key']}")
            return told if told["finished"] else None

        with AgentClient.connect(self.settings) as client:
            client.post("/v1/clusters", json={"profile": "far"})
            client.post("/v1/clusters/far/connect", timeout=120)  # the last kill may have hit the agent
            job: dict[str, Any] = wait_for(known, f"the end of {run}", 120, 0.5)
        return job

    def ran(self, run: Submission) -> set[str]:
        """Return the IDs of the jobs that have run this cell."""
        path = self.ledger / run.name
        return set(path.read_text().split()) if path.exists() else set()

    def is_settled_as_not_submitted(self, run: Submission, told: dict[str, Any]) -> bool:
        """Return whether the cell had no job ID to report, and was told later that there is no job."""
        return run.answer["id"] is None and told["id"] is None and told["state"] == "NOT_SUBMITTED"

    def in_queue(self) -> dict[str, set[str]]:
        """Return the jobs that the controller knows, by name."""
        found: dict[str, set[str]] = {}
        for line in self.cluster.run("squeue", "--noheader", "--states=all", "--format=%A %j").stdout.splitlines():
            number, name = line.split()
            found.setdefault(name, set()).add(number)
        return found

    def left_over(self) -> list[str]:
        """Return processes on the login node and on this computer, and unfinished files of job directories."""
        listener = self.host.listener
        left = [f"{name} ({pid}) on the login node" for pid, name in self.host.processes().items() if pid != listener]
        left += [str(path) for root in ("far", "laptop") for path in (self.home / root).rglob("*.tmp")]
        mark = str(self.home)
        listed = subprocess.run(["ps", "-eo", "pid=,args="], check=True, capture_output=True, text=True).stdout
        daemons = str(self.cluster.layout.root)
        return left + [line for line in listed.splitlines() if mark in line and daemons not in line]


@pytest.fixture(params=CARRIERS)
def bench(
    request: pytest.FixtureRequest,
    new_cluster: Callable[..., EmbeddedCluster],
    ssh_host: Callable[..., SshHost],
    short_tmp: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Bench]:
    cluster = new_cluster(extra=("MinJobAge=86400",))
    host = new_login_host(ssh_host, short_tmp, tmp_path_factory, sessions=6)
    home = Path(tempfile.mkdtemp(prefix="x", dir=short_tmp))
    made = Bench(cluster, host, home, request.param)
    yield made
    host.restore()
    made.close()
    host.close()
    shutil.rmtree(home, ignore_errors=True)


def test_as_many_jobs_as_reported_submissions(
    bench: Bench, wait_for: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    with capsys.disabled():
        print(f"\n{bench.carrier}: {SUBMISSIONS} submissions, JUPYTER_SLURM_CHAOS_SEED={SEED}")
    begun, schedule, numbers = time.monotonic(), make_schedule(SEED, SUBMISSIONS), iter(range(SUBMISSIONS))
    turn, runs = threading.Lock(), list[Submission]()

    def work(notebook: Notebook) -> None:
        try:
            while True:
                with turn:
                    number = next(numbers, None)
                if number is None:
                    return
                runs.extend(bench.submit(notebook, number, schedule[number], pool))
        finally:
            notebook.stop()
            ensure_event_loop().close()  # jupyter_client makes one for each thread

    with ThreadPoolExecutor(2 * len(KILLS)) as pool, ThreadPoolExecutor(NOTEBOOKS) as people:
        for one in [people.submit(work, notebook) for notebook in bench.notebooks]:
            one.result()
    reported = [run for run in runs if run.is_reported]
    assert len(reported) == SUBMISSIONS
    jobs = {run.name: bench.ended(run, wait_for) for run in reported}
    queue_, faults, settled = bench.in_queue(), list[str](), list[str]()
    for run in runs:
        executed, listed = bench.ran(run), queue_.get(run.name, set())
        told = jobs.get(run.name)
        if told is not None and bench.is_settled_as_not_submitted(run, told):
            settled.append(run.name)
        elif told is not None and (executed, listed, told["state"]) != ({told["id"]}, {told["id"]}, "COMPLETED"):
            faults.append(
                f"{run}: ran as {executed}, queue {listed}, told {told['id']} {told['state']} {told['error']}"
            )
        if len(executed | listed) > (0 if run.is_refused or run.name in settled else 1):
            faults.append(f"{run}: ran as {executed}, queue {listed}")
    bench.close()
    left = wait_for(lambda: not bench.left_over(), "nothing is left over", 60) if not faults else True
    errors = Counter(f"{run.answer['error']}: {run.answer['message']}" for run in runs if "error" in run.answer)
    with capsys.disabled():
        did = ", ".join(f"{count} x {part}" for part, count in sorted(bench.done.items()))
        print(
            f"{bench.carrier}: {len(runs)} runs of cells, {len(queue_)} jobs, in {time.monotonic() - begun:.0f} s;"
            f" killed: {did}; cells whose kernel was killed: {sum(not run.answer for run in runs)};"
            f" cells without a job ID, whose job was found not to be submitted later: {len(settled)}"
        )
        for error, count in errors.most_common():
            print(f"  {count} x {error!r}")
    assert (faults, left) == ([], True), f"JUPYTER_SLURM_CHAOS_SEED={SEED}"
