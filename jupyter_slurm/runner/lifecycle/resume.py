"""Run of a cell, script or session that survives preemption and time limits: ``python -u resume.py JOBDIR``.

The program starts the cell (``cell/run.py``) as a child and waits for signals that announce the end of this run. The
signal of ``--signal`` reaches only the batch script. SIGTERM at a preemption with GraceTime reaches only the steps of a
job, so a step exists only to wait for it. A file announces the end to the cell (``job.py``). A cell that ends after
this, or that still runs a moment before the end of the run, is requeued by this program. Slurm itself requeues a job
whose nodes were preempted or failed, but never at its time limit.

A script (``run`` of the record) is notified by SIGUSR1, if it has a trap for that, and by the file named in
JUPYTER_SLURM_INTERRUPTED. Programs that it starts may import ``jupyter_slurm_job``, too. A session
(``session/serve.py``) serves to the end of the run, and the next run continues under its address.

The folder ``resume`` (``resume.TASK`` for an array task) of the job directory contains ``warned.N`` (N-th restart, with
the reason), ``told.N`` (the cell was notified), ``python`` (for the Pythons of the cell). Python 3.8+, standard library
only.
"""

from __future__ import annotations

import contextlib
import json
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

# The runner is not a package: its files are loaded by path.
loader = runpy.run_path(__file__[: -len("lifecycle/resume.py")] + "loader.py")
load, path_of = loader["load"], loader["path_of"]

_MARGIN_S = 10.0  # seconds before the end of a run at which a cell that still runs is requeued
_ANSWER_TIMEOUT_S = 30.0  # seconds for a Slurm command
_END_ANSWER_TIMEOUT_S = 5.0  # the same when the job may be ending: after KillWait, 30 seconds by default, it is killed
_RETRY_INTERVAL_S = 2.0  # seconds before the next attempt to reach a silent controller
_STEP_END_TIMEOUT_S = 2.0  # seconds for a step to end by itself
_MAX_CLOCK_LAG_S = 120.0  # seconds by which the clock of a node may be late
_FIELDS = ("State", "StartTime", "EndTime", "PreemptTime")
_ALIVE = ("RUNNING", "SIGNALING")
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT, signal.SIGUSR1, signal.SIGUSR2)
_SILENCE = (
    *("Unable to contact", "timed out", "Zero Bytes", "Connection refused", "Connection reset", "connect failure"),
    *("missing socket", "Message send failure", "Message receive failure", "Communication", "Insane message length"),
    *("standby mode", "Rate limit exceeded", "Header lengths"),
)
_WORDS = {
    "preempted": "a job of higher priority takes the nodes",
    "time limit": "the time limit is near",
    "signal": "a signal was received",
    "PREEMPTED": "a job of higher priority took its nodes",
    "NODE_FAIL": "a node failed",
    "TIMEOUT": "it reached its time limit",
}


def report(text: str) -> None:
    """Print a message for the user, between output of the cell."""
    sys.stderr.write(f"resume: {text}\n")
    sys.stderr.flush()


def slurm_environment() -> dict[str, str]:
    """Return the environment for a Slurm command, without the options of this job."""
    kept = ("SLURM_CONF", "SLURM_JOB_ID", "SLURM_CLUSTERS")
    foreign = ("SLURM_", "SRUN_", "SQUEUE_", "SACCT_", "SCONTROL_")
    own = {name: value for name, value in os.environ.items() if name in kept or not name.startswith(foreign)}
    return {**own, "LC_ALL": "C", "SLURM_TIME_FORMAT": "%s"}


def run_slurm(*argv: str, timeout: float = _ANSWER_TIMEOUT_S) -> tuple[int, str, str]:
    """Run a Slurm command; return its exit code and output. The code is -1 without an answer in ``timeout`` seconds."""
    try:
        done = subprocess.run(
            argv,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            env=slurm_environment(),
            timeout=timeout,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return -1, "", "timed out"
    except OSError as error:
        return -1, "", str(error)
    return done.returncode, done.stdout.decode("utf-8", "replace"), done.stderr.decode("utf-8", "replace")


def has_trap(pid: int) -> bool:
    """Return whether a process has a trap for SIGUSR1 (proc(5))."""
    with open(f"/proc/{pid}/status", encoding="ascii", errors="replace") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    return bool(caught >> (signal.SIGUSR1 - 1) & 1)


def running(argv: list[str]) -> list[int]:
    """Return this node's processes with a command line, the first one first. In a container they are not children."""
    wanted, found = [os.fsencode(word) for word in argv], []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cmdline", "rb") as file:
            if file.read().split(b"\0")[: len(wanted)] == wanted:
                found.append(pid)
    return found


class ResumeState:
    """State of the job from the controller, with three times in seconds since the epoch."""

    def __init__(self, words: list[str]) -> None:
        self.name = words[0]
        self.start, self.end, self.preempted = (float(word) if word.isdigit() else 0.0 for word in words[1:4])

    @property
    def is_alive(self) -> bool:
        """Return whether this run continues: it is neither cancelled nor ended."""
        return self.name in _ALIVE

    def remaining_s(self, elapsed: float) -> float:
        """Return the seconds until the end, ``elapsed`` after the start. If possible, durations come from one clock.

        For a job without a time limit, Slurm reports no end, even if a preemption has set one.
        """
        if not self.end:
            return float("inf")
        if self.preempted:
            return self.end - self.preempted
        by_duration, by_clock = self.end - self.start - elapsed, self.end - time.time()
        return min(by_duration, by_clock) if by_clock > by_duration - _MAX_CLOCK_LAG_S else by_duration


def state_of(job: str, timeout: float = _ANSWER_TIMEOUT_S) -> ResumeState | None:
    """Query the controller for the state of the job; None without an answer in ``timeout`` seconds."""
    form = ",".join(f"{field}:64" for field in _FIELDS)
    argv = ("squeue", "--local", "--noheader", "--states=all", f"--jobs={job}", f"--Format={form}")
    code, out, _ = run_slurm(*argv, timeout=timeout)
    words = out.split()
    return ResumeState(words) if code == 0 and len(words) >= len(_FIELDS) else None


class ResumableRun:
    """Run of the job."""

    def __init__(self, place: JobDirectory, restarts: int, most: int) -> None:
        self.place, self.restarts, self.most = place, restarts, most
        self.number = os.environ.get("SLURM_JOB_ID", "")
        # The number of one task of an array is that of the array: for Slurm's commands, it means all tasks.
        self.job = self.number if place.task is None else f"{place.job_id}_{place.task}"
        self.folder = os.path.join(place.folder, f"resume{place.suffix}")
        self.begun = time.monotonic()
        self.deadline: float | None = None  # by the monotonic clock
        self.last_words = ""  # last message of srun
        self.what = "script" if "run" in place.job else "session" if "session" in place.job else "cell"
        self.is_contained = bool((place.job.get("environment") or {}).get("image"))
        self.warning = os.path.join(self.folder, f"warned.{restarts}")
        self.child: Any = None
        self.events: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for folder in (self.folder, os.path.join(self.folder, "python")):
            os.makedirs(folder, mode=0o700, exist_ok=True)

    # -- child processes

    def start_cell(self, args: list[str]) -> None:
        """Start the cell; report its end."""
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
            self.child = load("proc").start_written(lambda: subprocess.Popen([*argv, *args], env=env))
        except OSError as error:
            report(f"{argv[0]} cannot be run: {error.strerror}")
            self.events.put(("cell", 127))
            return
        self._report_end("cell", self.child)

    def knock(self) -> None:
        """Send a script SIGUSR1 if it has a trap for the signal. Without a trap, the signal would end it."""
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
            report(f"The script could not be notified: {error}.")

    def dismiss(self) -> None:
        """Pass SIGTERM on, which Slurm sends to the batch script alone. A session ends its kernels before."""
        if self.child is not None:
            self.child.terminate()
        if self.child is not None and self.what == "session":
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.child.wait(_MARGIN_S / 2)

    def start_listener(self) -> Any:
        """Start the step that receives SIGTERM at a preemption; ``cat`` ends with this process, or by the signal."""
        # In newer versions, an srun without --ntasks waits until no other step runs on a node, not even one
        # with --overlap. A step with --interactive is no such step, and uses no resources (slurm.conf(5)).
        place = [f"--jobid={self.number}", "--nodes=1", "--ntasks=1", "--interactive"]
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
            report(f"srun cannot be run ({error}). This run is not notified of a preemption.")
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

    # -- events

    def follow(self) -> int | None:
        """Follow the cell; return its exit code, None if this run is ended from outside or requeued."""
        while True:
            timeout = None if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            try:
                name, number = self.events.get(timeout=timeout)
            except queue.Empty:
                self.deadline = None
                if self.restarts < self.most:
                    report(f"The {self.what} is still running at the end of this run, and is requeued.")
                    if self.what == "session":
                        self.dismiss()
                    if self.requeue():
                        return None
                continue
            if name == "cell":
                return self.ended(128 - number if number < 0 else number)
            code = -number if number < 0 else number - 128 if name == "step" else number
            if name == "step" and (code <= 0 or code == signal.SIGKILL):
                if number:
                    report(f"This run is not notified of a preemption: {self.last_words}.")
            elif not self.warned(name, code):
                self.dismiss()
                while name != "cell":  # it may have data to save
                    name, _ = self.events.get()
                return None

    def warned(self, whom: str, number: int) -> bool:
        """Handle a signal to the batch script or the step, and notify the cell. False: the job itself ends."""
        is_end = number == signal.SIGTERM
        state = state_of(self.job, _END_ANSWER_TIMEOUT_S if is_end else _ANSWER_TIMEOUT_S)
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
        """Handle the end of the cell; return its exit code, None if the job is requeued or ended from outside."""
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
                f"The {self.what} was interrupted and has been restarted {self.most} times. Use resume=N to allow more."
            )
            return 1
        report(f"The {self.what} has stopped for now, and the job is requeued.")
        return None if self.requeue() else 1

    def requeue(self) -> bool:
        """Requeue the job, which ends this run; return whether Slurm agreed."""
        for name in _SIGNALS:
            signal.signal(name, signal.SIG_DFL)
        while True:
            code, _, error = run_slurm("scontrol", "requeue", self.job)
            if code == 0:
                time.sleep(_MAX_CLOCK_LAG_S)  # a process that is still alive after this time has not been ended
                return True
            if code > 0 and not any(sign in error for sign in _SILENCE):
                report(f"Slurm does not requeue this job: {error.strip()}.")
                return False
            time.sleep(_RETRY_INTERVAL_S)

    # -- messages

    def introduce(self) -> bool:
        """Report the number of this run and how the previous one ended; False if the maximum is exceeded."""
        if self.restarts == 0:
            return True
        report(
            f"Restart {self.restarts} of {self.most} on {os.uname().nodename}. The run before ended: {self._before()}."
        )
        if self.restarts > self.most:
            report("No more restarts are allowed. Use resume=N to allow more.")
        return self.restarts <= self.most

    def _before(self) -> str:
        try:
            with open(os.path.join(self.folder, f"warned.{self.restarts - 1}"), encoding="utf-8") as file:
                return _WORDS[file.read().strip()]
        except (OSError, KeyError):
            pass
        # Only accounting keeps earlier runs, if it exists: this asks slurmdbd, not the controller.
        code, out, _ = run_slurm("sacct", "--local", "-XnP", "--duplicates", f"--jobs={self.job}", "--format=State")
        states = [line.split()[0] for line in out.splitlines() if line.strip()] if code == 0 else []
        known = [state for state in states if state in _WORDS]
        return _WORDS[known[-1]] if known else "without a warning (a node failed, or it was requeued at once)"


def has_recorded_end(place: JobDirectory, restarts: int) -> bool:
    """Return whether a session has recorded the end of this run, which says more than its exit code."""
    try:
        with open(os.path.join(place.folder, f"end{place.suffix}.json"), encoding="utf-8") as file:
            return bool(json.load(file).get("restarts") == restarts)  # a run before may have recorded its own
    except (OSError, ValueError, AttributeError):
        return False


def main() -> int:
    """Claim the directory, run the cell, record the end or requeue the job."""
    cell = load("cell.run")
    cell.heedless()
    place = cell.JobDirectory(sys.argv[1])
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
    if code is not None and not (run.what == "session" and has_recorded_end(place, run.restarts)):
        place.end(code)
    if step is not None:
        step.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            step.wait(_STEP_END_TIMEOUT_S)
    return 128 + signal.SIGTERM if code is None else code


if __name__ == "__main__":
    sys.exit(main())
