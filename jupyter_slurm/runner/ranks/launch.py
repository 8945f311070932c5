"""Run of a Python cell once for each task of its job: ``python -u launch.py JOBDIR [args]``, from the batch script.

The program starts the ranks (``rank.py``) in the allocation by srun, or torchrun on each node. It writes their output,
with the number of the rank before each line, to its own output. The end marker says how the first rank failed, how many
others failed too, and how many were ended with it::

    "ranks": {"first": {"rank": 2, "node": …, "exit_code": …}, "also": 1, "ended": 2}

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import DisplayMessage, FailedRank, JobDocument, RankEnd, RanksFailure

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("ranks/launch.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]

_FIRST_HOST = r"^(?:[^,\[]|\[[^\]]*\])+"  # of a list such as n[9-10],m1
_FIRST_PORT, _PORTS = 12000, 20000  # below the ports that systems assign automatically
_MAX_PORT_TRIES = 100
_TERMINATED, _KILLED = 128 + signal.SIGTERM, 128 + signal.SIGKILL
_EXITED = re.compile(rb"^srun: error: (\S+): tasks? (\d+)\S*: Exited with exit code (\d+)")
_OF_THE_END = re.compile(
    rb"^(?:(?:srun|slurmstepd)[^ ]*:|\[\d{4}-[^ ]*\]) "  # slurmstepd 26.05 begins with the time
    rb"(error: .*task.*: |.*Terminating |.*CANCELLED AT|.*Force Terminated)"
)
_OF_TORCHRUN = re.compile(b"")  # pages about the failed rank, which has already reported it
# Variables of the user for srun that would break the parsing of its output, and the binding of a single task.
_PLUMBING = ("LABELIO", "UNBUFFEREDIO", "STDOUTMODE", "STDERRMODE", "STDINMODE", "KILL_BAD_EXIT", "WAIT", "EXPORT_ENV")
_OF_A_TASK = ("CPUS_PER_TASK", "GPUS_PER_TASK", "TRES_PER_TASK", "NTASKS_PER_GPU", "GPU_BIND", "TRES_BIND")
_OF_TASKS = ("NTASKS", "NPROCS", "NTASKS_PER_NODE", "TASKS_PER_NODE", "DISTRIBUTION")


def report(text: str) -> None:
    """Print a message for the user, between output of the ranks."""
    sys.stderr.write(f"launcher: {text}\n")
    sys.stderr.flush()


def first_node(env: Any) -> str | None:
    """Return the name under which the other nodes reach the node of rank 0; None without a name.

    That is this node, the first of the job, unless ``--batch`` or a list of hosts (``--distribution=arbitrary``) says
    otherwise.
    """
    here = env.get("SLURMD_NODENAME")
    first = _listed_host(env) or next(iter(re.findall(_FIRST_HOST, env.get("SLURM_JOB_NODELIST") or "")), "")
    first = re.sub(r"\[(\d+)[^\]]*\]", r"\1", first)
    if first and here and first != here:
        return first
    for name in filter(None, [here, socket.gethostname()]):
        try:
            socket.getaddrinfo(name, None)
        except OSError:
            continue
        return str(name)
    return None


def _listed_host(env: Any) -> str:
    """Return the first host of the list that places the tasks, if there is one."""
    if not (env.get("SLURM_DISTRIBUTION") or "").startswith("arbitrary"):
        return ""
    try:
        with open(env["SLURM_HOSTFILE"], encoding="utf-8", errors="replace") as file:
            return next((line.partition("*")[0].strip() for line in file if line.strip() and line[0] != "#"), "")
    except (KeyError, OSError):
        return ""


def free_port(job: int) -> int:
    """Return a port of this node for the rendezvous of the ranks, from the job's number: two jobs differ."""
    for more in range(_MAX_PORT_TRIES):
        port = _FIRST_PORT + (job + more) % _PORTS
        with socket.socket() as probe:
            try:
                probe.bind(("", port))
            except OSError:
                continue
        return port
    return _FIRST_PORT + job % _PORTS  # the listening rank reports a conflict


def environment(launcher: str) -> dict[str, str]:
    """Return the environment of srun, which the ranks inherit."""
    left_out = {f"SLURM_{name}" for name in _PLUMBING}
    if launcher == "torchrun":
        left_out |= {f"SLURM_{name}" for name in (*_OF_A_TASK, *_OF_TASKS)} | {"SRUN_CPUS_PER_TASK"}
    env = {name: value for name, value in os.environ.items() if name not in left_out}
    if launcher == "torchrun":
        env["JUPYTER_SLURM_TASKS_PER_NODE"] = os.environ.get("SLURM_TASKS_PER_NODE", "1")
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"):
        env.pop(name, None)
    # Without a name, rank.py takes the address of the starting host from Slurm.
    env["MASTER_ADDR"] = first_node(env) or ("127.0.0.1" if env.get("SLURM_JOB_NUM_NODES") == "1" else "")
    if "SLURM_JOB_NAME" in env:
        env["JUPYTER_SLURM_JOB_NAME"] = env["SLURM_JOB_NAME"]  # srun replaces it by the name of the step
    env["MASTER_PORT"] = str(free_port(int(env.get("SLURM_JOB_ID") or 0)))
    return env


def is_contained(job: JobDocument) -> bool:
    """Return whether the ranks run in containers. The content of an image is unknown before it runs."""
    return bool((job.get("environment") or {}).get("image"))


def commands(job: JobDocument, folder: str, args: list[str]) -> list[list[str]]:
    """Return the command lines that start the ranks: the first one counts that srun does not refuse."""
    env, launcher = os.environ, job["launcher"]
    starts = "container.run" if is_contained(job) else "ranks.torchrun" if launcher == "torchrun" else "ranks.rank"
    rank = [sys.executable, "-u", path_of(starts), folder, *args]
    srun = ["srun", "--export=ALL", "--kill-on-bad-exit=1", "--wait=0", "--input=none", "--job-name=ranks"]
    if launcher == "torchrun":
        nodes = env.get("SLURM_JOB_NUM_NODES", "1")
        each = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1", "--cpu-bind=none", "--mpi=none"]
        return [[*srun, *each, *all_gpus(env), *rank]]
    cpus = env.get("SLURM_CPUS_PER_TASK")  # srun 22.05 to 23.02 ignores this variable
    each = [*([f"--cpus-per-task={cpus}"] if cpus else []), *load("lifecycle.usage").for_steps(env)]
    return [[*srun, *each, *more, *rank] for more in (mpi_types(env) if launcher == "mpi" else [[]])]


def all_gpus(env: Any) -> list[str]:
    """Return the option that gives the single task of a node all GPUs, if GPUs were requested for each task."""
    usage, gpus = load("lifecycle.usage"), env.get("SLURM_GPUS_ON_NODE")
    is_even = "," not in env.get("SLURM_TASKS_PER_NODE", "")
    has_own = usage.counts_gpus_by_task(env) or bool(env.get("SLURM_NTASKS_PER_GPU"))
    return [f"--gres=gpu:{gpus}"] if gpus and has_own and is_even else list(usage.for_steps(env))


def mpi_types(env: Any) -> list[list[str]]:
    """Return the options by which MPI may find its ranks, the newest one first. A setting of the user is kept."""
    if env.get("SLURM_MPI_TYPE"):
        return [[]]
    try:
        listed = subprocess.run(["srun", "--mpi=list"], capture_output=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return [[]]
    names = re.findall(r"[\w.]+", (listed.stdout + listed.stderr).decode("utf-8", "replace"))
    return [[f"--mpi={name}"] for name in ("pmix", "pmi2") if name in names] or [[]]


class Ranks:
    """State of the ranks from their messages."""

    def __init__(self, place: JobDirectory) -> None:
        self.record = place.display()
        self.first: FailedRank | None = None
        self.count = self.well = self.also = 0  # count: number of all ranks, known after the first end
        self.cpu, self.memory = 0.0, 0
        self.exit_code = 0  # of a task of srun without a message of its own
        self._shown_by: int | None = None
        self._names: dict[int, list[str]] = {}  # display ids by rank
        self._cleared: dict[int, int] = {}  # number of removed ones by rank
        self._clearing: set[int] = set()  # ranks that clear at their next output

    def show(self, rank: int, message: DisplayMessage) -> None:
        """Record a displayed message of a rank, below a line with its number."""
        kind, name = message.get("type"), message.get("id")
        if kind == "clear":
            self._clearing.add(rank)
            if not message.get("wait"):
                self._clear(rank)
        elif kind == "update":
            self.record.relay({**message, "id": f"{rank}:{name}"})
        elif kind == "display":
            if rank in self._clearing:
                self._clear(rank)
            if rank != self._shown_by:
                self._shown_by = rank
                label = {"text/plain": f"[{rank}]", "text/html": f"<b>rank {rank}</b>"}
                self._show(rank, None, {"type": "display", "data": label, "metadata": {}})
            self._show(rank, name, message)

    def _show(self, rank: int, name: str | None, message: DisplayMessage) -> None:
        names = self._names.setdefault(rank, [])
        names.append(f"{rank}:{name}" if name is not None else f"{rank}#{len(names)}")
        self.record.relay({**message, "id": names[-1]})

    def _clear(self, rank: int) -> None:
        """Remove the displayed output of a rank, and nothing of the others."""
        self._clearing.discard(rank)
        if self._shown_by == rank:
            self._shown_by = None
        names = self._names.get(rank, [])
        for name in dict.fromkeys(names[self._cleared.get(rank, 0) :]):
            self.record.relay({"type": "update", "data": {}, "metadata": {}, "id": name})
        self._cleared[rank] = len(names)

    def end(self, rank: int, told: RankEnd) -> None:
        """Record how a rank ended."""
        code, self.count = int(told["exit_code"]), int(told["ranks"])
        self.cpu += float(told["cpu"])
        self.memory += int(told["memory"])
        if not code:
            self.well += 1
        elif code == _TERMINATED:
            return  # ended together with another rank
        elif self.first is None:
            self.first = {"rank": rank, "node": str(told["node"]), "exit_code": code}
        else:
            self.also += 1

    def failure(self) -> RanksFailure | None:
        """Return the entry for the end marker; None if no rank failed by itself."""
        if self.first is None:
            return None
        return {"first": self.first, "also": self.also, "ended": max(0, self.count - 1 - self.also - self.well)}


def words(told: RanksFailure) -> str:
    """Describe which rank failed first."""
    first, code = told["first"], told["first"]["exit_code"]
    how = f"exit code {code}" if code <= 128 else f"signal {code - 128}"
    return f"rank {first['rank']} on {first['node']} failed first: {how}"


def write_to(stream: bytes, data: bytes) -> None:
    """Write to the output of the job, if possible: a full disk does not end the ranks."""
    view = memoryview(data)
    with contextlib.suppress(OSError):
        while view:
            view = view[os.write(1 if stream == b"o" else 2, view) :]


class Srun:
    """Process that starts the ranks, with its output."""

    def __init__(self, argv: list[str], env: dict[str, str], ranks: Ranks, no_news: Any) -> None:
        self._ranks, self._lock = ranks, threading.Lock()
        self._gatherer = load("ranks.frames").Gatherer(write_to, ranks.show, ranks.end)
        self.is_refused, self._no_news = False, no_news
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=env)
        self._listener = threading.Thread(target=self._receive_messages, daemon=True)

    def run(self) -> int:
        """Forward the output until the end; return the exit code as a shell would see it."""
        self._listener.start()
        out: Any = self._process.stdout
        while True:
            data = os.read(out.fileno(), 1 << 18)
            if not data:
                break
            with self._lock:
                self._gatherer.feed(data)
        code = self._process.wait()
        self._listener.join()
        self._gatherer.end()
        return 128 - code if code < 0 else code

    def _receive_messages(self) -> None:
        """Forward messages of srun or torchrun, except the ends of other ranks after a failure."""
        said: Any = self._process.stderr
        for line in said:
            with self._lock:
                self.is_refused = self.is_refused or b"Invalid MPI type" in line
                exited = _EXITED.search(line)
                if exited and int(exited[3]) != _TERMINATED:
                    self._ranks.exit_code = self._ranks.exit_code or int(exited[3])
                if self._ranks.first is None or not self._no_news.search(line):
                    self._gatherer.write_line(b"e", line.rstrip(b"\n"))
                    self._gatherer.flush()


def run(place: JobDirectory, args: list[str]) -> int:
    """Run the ranks; record the end, if it is known to this process."""
    begun, launcher = time.monotonic(), place.job["launcher"]
    if launcher == "torchrun" and not is_contained(place.job) and importlib.util.find_spec("torch") is None:
        report(
            f"{sys.executable} on {os.uname().nodename} has no torch, which contains torchrun. Choose another "
            "Python with env=NAME or python=PATH, or use launcher=srun."
        )
        return finish(place, 1, None, {})
    ranks = Ranks(place)
    env, is_ended = environment(launcher), False

    def end(*_: Any) -> None:
        nonlocal is_ended
        is_ended = True  # the ranks have received the same signal, and may print more

    signal.signal(signal.SIGTERM, end)
    try:
        for argv in commands(place.job, place.folder, args):
            srun = Srun(argv, env, ranks, _OF_TORCHRUN if launcher == "torchrun" else _OF_THE_END)
            code = srun.run()
            if not srun.is_refused:
                break
    except OSError as error:
        report(f"srun cannot be run on {os.uname().nodename}: {error.strerror}.")
        return finish(place, 127, None, {})
    told = ranks.failure()
    code = told["first"]["exit_code"] if told else ranks.exit_code or code
    if is_ended or (told is None and code in (_TERMINATED, _KILLED)):
        return code  # Slurm has ended it, and reports the reason
    used = {"cpu": ranks.cpu, "memory": ranks.memory, "elapsed": time.monotonic() - begun}
    return finish(place, code, told, used)


def finish(place: JobDirectory, code: int, told: RanksFailure | None, used: dict[str, float]) -> int:
    """Record the end. In a job with resume, the parent process interprets the exit code."""
    has_marker = not place.job.get("resume")
    if told and (place.suffix or not has_marker):
        report(words(told))  # otherwise the notebook shows it from the marker
    if has_marker:
        place.end(code, **({"ranks": told} if told else {}), **({"used": used} if used else {}))
    return code


def main() -> int:
    """Claim the directory, run the ranks, record the end."""
    cell = load("cell.run")
    cell.heedless()
    place = cell.JobDirectory(sys.argv[1])
    if not place.is_ours():
        return 0
    place.publish_event("started")
    load("lifecycle.usage").watch(place)
    if place.job["launcher"] == "ray":
        return int(load("ranks.ray_cluster").run(place, sys.argv[2:]))
    return run(place, sys.argv[2:])


if __name__ == "__main__":
    sys.exit(main())
