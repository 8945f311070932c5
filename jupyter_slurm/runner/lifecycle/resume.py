"""Run a cell, a script or a session so that it survives preemption and time limits: ``python -u resume.py JOBDIR``.

It starts the cell (``cell/run.py``) as a child and listens for what announces the end of this run: the signal of
``--signal``, which Slurm sends to the batch script alone, and SIGTERM at a preemption with GraceTime, which Slurm sends
to the steps of a job alone; so there is a step that does nothing but wait for it. The cell hears of it through a
file (``job.py``). A cell that ends then, or that has not by a moment before the run does, is requeued from here:
Slurm by itself requeues a job whose nodes were taken or failed, and none at its time limit.

A script (``run`` of the record) hears of it by SIGUSR1, if it has a trap for that, and by the file that
JUPYTER_SLURM_INTERRUPTED names; what it starts may import ``jupyter_slurm_job``, too. A session (``session/serve.py``)
serves to the last moment, and the next run goes on under its address.

In ``resume`` (``resume.TASK`` for an array task) of the job directory: ``warned.N`` (of the N-th restart; says why),
``told.N`` (the cell was told), ``python`` (for the Pythons that the cell starts). Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import queue
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

# The files of the runner are no package: each is read by its path.
loader = runpy.run_path(__file__[: -len("lifecycle/resume.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]

_MARGIN_S = 10.0  # seconds before the end of a run at which a cell that goes on is requeued
_ANSWER_TIMEOUT_S = 30.0  # seconds that a Slurm command may take
_RETRY_INTERVAL_S = 2.0  # seconds before a controller that was silent is asked again
_STEP_END_TIMEOUT_S = 2.0  # seconds for a step to end in peace
_MAX_CLOCK_LAG_S = 120.0  # seconds by which the clock of a node may be late
_FIELDS = ("State", "StartTime", "EndTime", "PreemptTime")
_ALIVE = ("RUNNING", "SIGNALING")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_SILENCE = ("Unable to contact", "timed out", "Zero Bytes", "Connection refused", "Connection reset", "connect failure")
_WORDS = {
    "preempted": "a job of higher priority takes the nodes",
    "time limit": "the time limit is near",
    "signal": "a signal says so",
    "PREEMPTED": "a job of higher priority took its nodes",
    "NODE_FAIL": "a node failed",
    "TIMEOUT": "it reached its time limit",
}


def report(text: str) -> None:
    """Tell the person something, between what the cell prints."""
    sys.stderr.write(f"resume: {text}\n")
    sys.stderr.flush()


def slurm_environment() -> dict[str, str]:
    """Return the environment for a Slurm command: the options of this job are no options of that one."""
    kept = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTERS")
    foreign = ("SLURM_", "SRUN_", "SQUEUE_", "SACCT_", "SCONTROL_")
    own = {name: value for name, value in os.environ.items() if name in kept or not name.startswith(foreign)}
    return {**own, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def run_slurm(*argv: str) -> tuple[int, str, str]:
    """Run a Slurm command; return its exit code, and what it printed. A command that does not answer has code -1."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=slurm_environment(),
            timeout=_ANSWER_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, "", "timed out"
    except OSError as error:
        return -1, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def has_trap(pid: int) -> bool:
    """Tell whether a process has a trap for SIGUSR1 (proc(5))."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGUSR1 - 1) & 1)


def running(argv: list[str]) -> list[int]:
    """Return the processes of this node that were started so, the first one first: in a container none is our child."""
    wanted, found = [os.fsencode(word) for word in argv], []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[: len(wanted)] == wanted:
                found.append(pid)
    return found


class ResumeState:
    """How the job stands, as the controller says: its state, and three times in seconds since the epoch."""

    def __init__(self, words: list[str]) -> None:
        self.name = words[0]
        self.start, self.end, self.preempted = (float(word) if word.isdigit() else 0.0 for word in words[1:4])

    @property
    def is_alive(self) -> bool:
        """Whether this run goes on: it is not cancelled, nor over in another way."""
        return self.name in _ALIVE

    def remaining_s(self, elapsed: float) -> float:
        """Return the seconds until the end, ``elapsed`` after the beginning; durations from one clock, if it can be.

        Of a job without a time limit Slurm tells no end, even where a preemption has set one.
        """
        if not self.end:
            return float("inf")
        if self.preempted:
            return self.end - self.preempted
        by_duration, by_clock = self.end - self.start - elapsed, self.end - time.time()
        return min(by_duration, by_clock) if by_clock > by_duration - _MAX_CLOCK_LAG_S else by_duration


def state_of(job: str) -> ResumeState | None:
    """Ask the controller about the job; None when it does not answer."""
    form = ",".join(f"{field}:64" for field in _FIELDS)
    code, out, _ = run_slurm("squeue", "--local", "--noheader", "--states=all", f"--jobs={job}", f"--Format={form}")
    words = out.split()
    return ResumeState(words) if code == 0 and len(words) >= len(_FIELDS) else None


class ResumableRun:
    """One run of the job."""

    def __init__(self, place: JobDirectory, restarts: int, most: int) -> None:
        self.place, self.restarts, self.most = place, restarts, most
        self.job = os.environ.get("SLURM_JOB_ID", "")
        self.folder = os.path.join(place.folder, f"resume{place.suffix}")
        self.begun = time.monotonic()
        self.deadline: float | None = None  # by the monotonic clock
        self.last_words = ""  # of srun
        self.what = "script" if "run" in place.job else "session" if "session" in place.job else "cell"
        self.is_contained = bool((place.job.get("environment") or {}).get("image"))
        self.warning = os.path.join(self.folder, f"warned.{restarts}")
        self.child: Any = None
        self.events: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for folder in (self.folder, os.path.join(self.folder, "python")):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    # -- what is started

    def start_cell(self, args: list[str]) -> None:
        """Start the cell; tell of its end."""
        library = os.path.join(self.folder, "python")
        shutil.copyfile(path_of("job"), os.path.join(library, "jupyter_slurm_job.py"))
        paths = [path for path in (os.environ.get("PYTHONPATH"), library) if path]
        env = {**os.environ, "JUPYTER_SLURM_RESUME_DIR": self.folder, "PYTHONPATH": os.pathsep.join(paths)}
        plain = "container.run" if self.is_contained else "session.serve" if self.what == "session" else "cell.run"
        started = "ranks.launch" if self.place.job.get("launcher") else plain
        argv = [sys.executable, "-u", path_of(started), self.place.folder]
        if self.what == "script":
            argv = argv if self.is_contained else self.place.job["run"]
            env["JUPYTER_SLURM_CHECKPOINT_DIR"] = os.path.join(self.place.folder, f"checkpoint{self.place.suffix}")
            env["JUPYTER_SLURM_INTERRUPTED"] = self.warning
            os.makedirs(env["JUPYTER_SLURM_CHECKPOINT_DIR"], mode=0o700, exist_ok=True)
            self.place.publish_event("started")
        try:
            self.child = subprocess.Popen([*argv, *args], env=env)
        except OSError as error:
            report(f"{argv[0]} cannot be run: {error.strerror}")
            self.events.put(("cell", 127))
            return
        self._report_end("cell", self.child)

    def knock(self) -> None:
        """Send a script the signal for which it has a trap; one without would be ended by it."""
        if self.what != "script":
            return
        pids = running(self.place.job["run"]) if self.is_contained else [self.child.pid]
        try:
            for pid in pids:
                if has_trap(pid):
                    self.place.write(os.path.join(self.folder, f"told.{self.restarts}"), "")
                    os.kill(pid, signal.SIGUSR1)
                    return
        except (OSError, StopIteration, ValueError) as error:
            report(f"the script could not be told: {error}")

    def dismiss(self) -> None:
        """Have a session end in peace, with its kernels: nobody else may tell it."""
        if self.what == "session":
            self.child.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_MARGIN_S / 2)

    def start_listener(self) -> Any:
        """Start the step that hears of a preemption; ``cat`` ends with us, or by the signal."""
        place = [f"--jobid={self.job}", "--nodes=1", "--ntasks=1", "--overlap", "--mem=0", "--gres=none"]
        node = os.environ.get("SLURMD_NODENAME")
        argv = ["srun", *place, *([f"--nodelist={node}"] if node else []), "--mpi=none", "--job-name=resume", "cat"]
        try:
            step = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                env=slurm_environment(),
            )
        except OSError as error:
            report(f"srun cannot be run ({error}): a preemption is not announced to this run")
            return None
        self._report_end("step", step)
        return step

    def _report_end(self, name: str, process: Any) -> None:
        def wait() -> None:
            if process.stderr is not None:
                said = process.stderr.read().decode("utf-8", "replace").strip()
                self.last_words = said.splitlines()[-1] if said else ""
            self.events.put((name, process.wait()))

        threading.Thread(target=wait, daemon=True).start()

    # -- what happens

    def follow(self) -> int | None:
        """Follow the cell; return its exit code, None where this run is ended from outside or begun anew."""
        while True:
            timeout = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            try:
                name, number = self.events.get(timeout=timeout)
            except queue.Empty:
                self.deadline = None
                if self.restarts < self.most:
                    report(f"the {self.what} goes on, and this run is at its end: it is requeued as it is")
                    self.dismiss()
                    if self.requeue():
                        return None
                continue
            if name == "cell":
                return self.ended(128 - number if number < 0 else number)
            code = -number if number < 0 else number - 128 if name == "step" else number
            if name == "step" and (code <= 0 or code == signal.SIGKILL):
                if number:
                    report(f"a preemption is not announced to this run: {self.last_words}")
            elif not self.warned(name, code):
                self.dismiss()
                while name != "cell":  # it has been sent the same signal, and may have something to save
                    name, _ = self.events.get()
                return None

    def warned(self, whom: str, number: int) -> bool:
        """Take in a signal to the batch script or the step, and tell the cell. False: it is the end itself."""
        state = state_of(self.job)
        if not state.is_alive if state else (whom, number) == ("signal", signal.SIGTERM):
            return False
        left = state.remaining_s(time.monotonic() - self.begun) if state else float("inf")
        if left < float("inf"):
            end = time.monotonic() + max(left - _MARGIN_S, left / 2)
            self.deadline = end if self.deadline is None else min(end, self.deadline)
        if not os.path.exists(self.warning):
            why = "preempted" if state and state.preempted else "time limit" if whom == "signal" else "signal"
            report(f"this run is to end: {_WORDS[why]}" + (f"; {left:.0f} s are left" if self.deadline else ""))
            with contextlib.suppress(OSError):
                self.place.write(self.warning, why)
            self.knock()
        return True

    def ended(self, code: int) -> int | None:
        """Take in the end of the cell; return its exit code, None where the job is begun anew or ended from outside."""
        was_told = os.path.exists(os.path.join(self.folder, f"told.{self.restarts}"))
        is_killed = code in (128 + signal.SIGTERM, 128 + signal.SIGKILL)
        if is_killed or (was_told and code == 0):
            state = state_of(self.job)
            if state is not None and not state.is_alive:
                return None
        if not was_told or code:
            return code
        if self.restarts >= self.most:
            report(
                f"the {self.what} was interrupted, and was restarted {self.most} times already: resume=N allows more"
            )
            return 1
        report(f"the {self.what} has ended for the time being; the job is requeued")
        return None if self.requeue() else 1

    def requeue(self) -> bool:
        """Have the job begin anew, which ends this run; tell whether Slurm agreed."""
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        while True:
            code, _, error = run_slurm("scontrol", "requeue", self.job)
            if code == 0:
                time.sleep(_MAX_CLOCK_LAG_S)  # whoever is still there then has not been ended
                return True
            if code > 0 and not any(sign in error for sign in _SILENCE):
                report(f"Slurm does not requeue this job: {error.strip()}")
                return False
            time.sleep(_RETRY_INTERVAL_S)

    # -- what is told

    def introduce(self) -> bool:
        """Say which run this is and how the one before it ended; False when there were enough."""
        if self.restarts == 0:
            return True
        report(
            f"restart {self.restarts} of {self.most} on {os.uname().nodename}; the run before ended: {self._before()}"
        )
        if self.restarts > self.most:
            report("no more restarts: resume=N allows more")
        return self.restarts <= self.most

    def _before(self) -> str:
        try:
            with open(os.path.join(self.folder, f"warned.{self.restarts - 1}"), encoding="utf-8") as file:
                return _WORDS[file.read().strip()]
        except (OSError, KeyError):
            pass
        # Only accounting remembers, where there is some: this asks slurmdbd, not the controller.
        code, out, _ = run_slurm("sacct", "--local", "-XnP", "--duplicates", f"--jobs={self.job}", "--format=State")
        states = [line.split()[0] for line in out.splitlines() if line.strip()] if code == 0 else []
        known = [state for state in states if state in _WORDS]
        return _WORDS[known[-1]] if known else "without a warning (a node failed, or it was requeued at once)"


def has_recorded_end(place: JobDirectory) -> bool:
    """Tell whether a session has said how it ended, which is more than its exit code."""
    return os.path.exists(os.path.join(place.folder, f"end{place.suffix}.json"))


def main() -> int:
    """Claim the directory, run the cell, tell the end or have the job begin anew."""
    place = load("cell.run").JobDirectory(sys.argv[1])
    if not place.is_ours():
        return 0
    run = ResumableRun(place, int(os.environ.get("SLURM_RESTART_COUNT") or 0), int(place.job["resume"]))
    if not run.introduce():
        place.end(1)
        return 1
    for number in _SIGNALS:
        signal.signal(number, lambda got, _: run.events.put(("signal", got)))
    step = run.start_listener() if place.job.get("preemptible", True) else None
    run.start_cell(sys.argv[2:])
    code = run.follow()
    if code is not None and not (run.what == "session" and has_recorded_end(place)):
        place.end(code)
    if step is not None:
        step.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.wait(_STEP_END_TIMEOUT_S)
    return 128 + signal.SIGTERM if code is None else code


if __name__ == "__main__":
    sys.exit(main())
