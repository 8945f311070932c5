"""Holder of an allocation that starts steps in it: ``python -u hold.py JOBDIR``. Python 3.8+, standard library.

The job of the allocation runs this program. A directory ``steps/KEY`` in the job directory requests the step with job
directory KEY, a sibling of this job directory. ``steps/KEY.SIGNAL.DIGITS`` requests a signal: INT interrupts the
running program, KILL ends the step. ``end.json`` of the step records how the step ended. A step may be a process for
cells (``process.py``), one at a time, or a kernel (``kernel/keeper.py``), which also accepts cells. Cells are requested
in the same way as steps and are forwarded to their process. The file ``lease`` changes (content or time) while a client
uses the allocation. The allocation ends if the lease has not changed for the time in the record, and no step or cell
runs.

In a joined job, this program is a step of a running job. ``steps/OWN KEY.KILL.DIGITS`` ends it, and the job continues.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import re
import runpy
import select
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("allocation/hold.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from collections.abc import Callable

    from jupyter_slurm.runner.allocation.held_step import HeldStep, leave_end
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import Granted
else:
    held_step = load("allocation.held_step")
    HeldStep, leave_end = held_step.HeldStep, held_step.leave_end

_REQUEST = re.compile(r"([0-9]{8}-[0-9]{6}-[0-9a-f]{8,32})(?:\.(INT|KILL)\.[0-9a-f]+)?")
# Variables that Slurm gives to the task of a step and that are true of the whole job. Others describe this step only.
_OF_JOB = re.compile(
    r"SLURM_(JOB_\w+|JOBID|GPUS_ON_NODE|CLUSTER_NAME|CONF|CLUSTERS|SUBMIT_\w+|TOPOLOGY_\w+)|SLURMD_\w+NAME"
)
_MIN_POLL_S, _MAX_POLL_S = 0.05, 1.0  # seconds between two checks for requests
_MAX_VISIBILITY_DELAY_S = 120.0  # seconds until a job directory is visible on every node
_UNUSED_END_TIMEOUT_S = 30.0  # seconds for an unused process to end
_END_NOTICE_DELAY_S = 3.0  # seconds between the end of the steps and Slurm's signal to the batch job


def granted() -> Granted:
    """Return the resources that Slurm granted: node list, number of tasks, GPUs."""
    env = os.environ
    gpus = re.search(r"\d+$", env.get("SLURM_GPUS", ""))
    on_node, nodes = env.get("SLURM_GPUS_ON_NODE", "0"), env.get("SLURM_JOB_NUM_NODES", "1")
    count = int(gpus[0]) if gpus else int(on_node) * int(nodes) if on_node.isdigit() and nodes.isdigit() else 0
    return {"nodes": env.get("SLURM_JOB_NODELIST", ""), "gpus": count, "tasks": env.get("SLURM_NTASKS")}


def leave_step(env: Any) -> None:
    """Remove the variables of this step, which srun would take for requests, and of an array that is not the step's."""
    for name in list(env):
        if name.startswith(("SLURM", "SRUN_", "PMI_", "PMI2_", "PMIX_")) and not _OF_JOB.fullmatch(name):
            del env[name]


class AllocationHolder:
    """Allocation from its start to its end."""

    def __init__(self, place: JobDirectory, kind: Any) -> None:
        self.place, self._place_of = place, kind
        self.requests = os.path.join(place.folder, "steps")
        self.lease, self.is_once = float(place.job["lease"]["seconds"]), bool(place.job["lease"].get("once"))
        self.running: dict[str, HeldStep] = {}
        self.last: Any = None
        self.is_ending = self.is_left = False
        self._late: dict[str, float] = {}
        self._unrecorded: list[Callable[[], None]] = []  # write the ends that a full disk did not take
        self._instead: dict[str, str] = {}  # processes not started because one was running, and that one
        self._ends: dict[str, tuple[int, str]] = {}  # exit code and reason of each ended process
        self._renewed: Any = None
        self._used = time.monotonic()
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_ending = True

    def hold(self) -> int:
        """Serve requests until the end. Return the exit code of the job."""
        pause = _MIN_POLL_S
        while True:
            news = self._serve()
            pause = _MIN_POLL_S if news else min(_MAX_POLL_S if not self.running else 0.2, pause * 1.1)
            if self._reap():
                self._used = time.monotonic()
            if self.is_left:
                self._dismiss()
            if not self.running and (self.is_ending or self.is_left):
                return 143
            if not self._is_busy():
                if self.is_once and self.last is not None:
                    return int(self.last)
                if self._is_forgotten():
                    sys.stderr.write(f"This allocation was not used for {self.lease:g} s: it ends.\n")
                    self._dismiss()
                    return 0
            select.select([self._wake], [], [], pause)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)

    def _serve(self) -> bool:
        try:
            names = sorted(os.listdir(self.requests), key=self._request_order)
        except OSError:
            return False
        settled = False
        for match in filter(None, map(_REQUEST.fullmatch, names)):
            if self._settle(match[1], match[2], match[1] in names):
                settled = True
                with contextlib.suppress(OSError):
                    os.rmdir(os.path.join(self.requests, match[0]))
        return settled

    def _request_order(self, name: str) -> tuple[float, str]:
        """Return the sort key of a request: cells run in the order of their requests."""
        key = name.partition(".")[0]
        try:
            return float(self._place_of(os.path.join(os.path.dirname(self.place.folder), key)).job["created"]), name
        except (OSError, ValueError, KeyError, TypeError):
            return math.inf, name

    def _settle(self, key: str, name: str | None, is_asked_for: bool) -> bool:
        """Carry out a request. Return whether it is settled."""
        if key == self.place.job["key"]:
            self.is_left = True
            return True
        process = next((step for step in self.running.values() if key in step.cells), None)
        if process is not None:
            if name and not process.listens():
                return False
            if name:
                process.send_line(f"{key} {name}")
            return True
        if key in self.running:
            if name:
                self.running[key].send(name)
            return True
        if name:
            return not is_asked_for  # a pending start comes first
        return not self.is_ending and self._begin(key)

    def _begin(self, key: str) -> bool:
        """Start a step once. Return whether its request is settled."""
        folder = os.path.join(os.path.dirname(self.place.folder), key)
        try:
            step = HeldStep(self._place_of(folder))
            if step.place.job["step"]["allocation"] != self.place.job["key"]:
                return True
            process = step.place.job["step"].get("process")
            if process and not self._takes_more(process):
                return False
            begun = os.open(os.path.join(folder, "begun"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with contextlib.suppress(OSError):  # a full disk: the file itself is what counts
                os.write(begun, os.fsencode(os.environ.get("SLURM_RESTART_COUNT") or "0"))
            os.close(begun)
        except FileExistsError:
            return True
        except Exception as error:  # noqa: BLE001 - it may not be seen from here yet; the other steps go on
            first = self._late.setdefault(key, time.monotonic())
            if time.monotonic() - first < _MAX_VISIBILITY_DELAY_S:
                return False
            self._give_up(key, folder, error)
            return True
        self._used = time.monotonic()
        if process:
            self._hand_over(key, step, self._instead.get(process, process))
            return True
        if step.is_process and (other := self._process()) is not None:
            self._instead[key] = other
            self._end(step, 0)
            return True
        try:
            step.start()
            self.running[key] = step
        except Exception as error:  # noqa: BLE001 - whatever it is, the other steps go on
            said = f"srun could not be started: {type(error).__name__}: {error}\n"
            sys.stderr.write(f"step {key}: {said}")
            step.write_message(said)
            self._end(step, 127)
        return True

    def _process(self) -> str | None:
        """Return the key of the running process."""
        return next((key for key, step in self.running.items() if step.is_process), None)

    def _takes_more(self, process: str) -> bool:
        """Return whether a process accepts a cell now: it has started, and its queue of cells is not full."""
        owner = self.running.get(self._instead.get(process, process))
        if owner is not None:
            return owner.listens()
        folder = os.path.join(os.path.dirname(self.place.folder), process)
        return any(os.path.exists(os.path.join(folder, name)) for name in ("begun", "end.json"))

    def _hand_over(self, key: str, cell: HeldStep, process: str) -> None:
        """Forward a cell to its process."""
        owner = self.running.get(process)
        if owner is None:
            self._lose(cell.place, *self._ends.get(process, (0, "")))
            return
        owner.send_line(key)  # a process that is about to end ignores it: the cell then ends with the process
        owner.cells[key] = cell.place

    def _lose(self, place: JobDirectory, code: int, said: str = "") -> None:
        """End a cell whose process has ended."""
        has_run, is_ending = os.path.exists(os.path.join(place.folder, "started.json")), self.is_ending

        def record() -> None:
            leave_end(place.folder, code or 1, is_ending or not has_run, is_ending, lost=said)
            place.publish_event("ended")

        self._record(os.path.basename(place.folder), record)

    def _record(self, key: str, record: Callable[[], None]) -> None:
        """Record the end of a step or a cell; on a full disk, later."""
        try:
            record()
        except OSError as error:
            self._unrecorded.append(record)
            sys.stderr.write(f"the end of step {key} could not be recorded: {error}\n")

    def _dismiss(self) -> None:
        """End processes that nobody uses."""
        for step in self.running.values():
            step.send("KILL")
            with contextlib.suppress(subprocess.TimeoutExpired):
                step.process.wait(_UNUSED_END_TIMEOUT_S)
        self._reap()

    def _is_busy(self) -> bool:
        return any(step.cells or not step.is_process for step in self.running.values())

    def _give_up(self, key: str, folder: str, error: Exception) -> None:
        """End a step whose job directory cannot be read."""
        sys.stderr.write(f"step {key} cannot be read: {type(error).__name__}: {error}\n")
        self._late.pop(key, None)
        self.last = 127
        try:
            with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):
                if "step" not in self._place_of(folder).job:  # a job of another kind: must not be ended by this program
                    return
            leave_end(folder, 127, is_interrupted=False, with_allocation=False)
            self.place.write(os.path.join(self.place.job["events"], f"{key}.ended"), self.place.job_id)
        except Exception as trouble:  # noqa: BLE001 - the other steps go on
            sys.stderr.write(f"the end of step {key} could not be recorded: {trouble}\n")

    def _end(self, step: HeldStep, code: int) -> None:
        """Record the end of a step."""
        self.last = step.code(code)
        self._await_own_end(step)
        record = functools.partial(step.end, self.last, with_allocation=self.is_ending)
        self._record(os.path.basename(step.place.folder), record)
        if step.place.job["kind"] == "kernel":
            load("kernel.folder").sweep()  # folders of a keeper that was killed
        step.forget_ended()
        if not step.takes_cells:
            return
        ended = self._ends[os.path.basename(step.place.folder)] = self.last, step.obituary(self.last)
        for place in step.cells.values():  # after that: a reader of their end must find the end of the process
            self._lose(place, *ended)

    def _await_own_end(self, step: HeldStep) -> None:
        """Wait a moment for a signal to this job: at the end of an allocation, Slurm ends the steps first."""
        until = time.monotonic() + _END_NOTICE_DELAY_S
        sign = "CANCELLED AT" if step.place.job["kind"] == "kernel" else " DUE TO "
        while not (self.is_ending or step.is_interrupted) and any(sign in line for line in step.slurm_messages()):
            if time.monotonic() > until:
                break
            select.select([self._wake], [], [], 0.1)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)  # otherwise the next wait would return at once

    def _reap(self) -> bool:
        """Record the steps that have ended."""
        late, self._unrecorded = self._unrecorded, []
        for record in late:
            try:
                record()
            except FileNotFoundError:
                pass  # its directory was removed
            except OSError:
                self._unrecorded.append(record)
        for step in self.running.values():
            step.forget_ended()
        over = [(key, one, one.process.poll()) for key, one in self.running.items()]
        for key, one, result in over:
            if result is not None:
                del self.running[key]
                self._end(one, result)
        return self._is_busy() or any(result is not None for _, _, result in over)

    def _is_forgotten(self) -> bool:
        renewed = None
        with contextlib.suppress(OSError), open(os.path.join(self.place.folder, "lease"), "rb") as file:
            renewed = file.read(100), os.fstat(file.fileno()).st_mtime_ns
        if renewed is not None and renewed != self._renewed:
            self._renewed, self._used = renewed, time.monotonic()
        return time.monotonic() - self._used > self.lease


def main() -> int:
    """Claim the directory, hold the allocation, record the end."""
    cell = load("cell.run")
    cell.heedless()
    with open(os.path.join(sys.argv[1], "job.json"), encoding="utf-8", errors="surrogateescape") as file:
        is_joined = "joined" in json.load(file)
    if is_joined:
        leave_step(os.environ)
    place = cell.JobDirectory(sys.argv[1])
    if not place.is_ours("holds this allocation"):
        return 0
    holder = AllocationHolder(place, cell.JobDirectory)
    place.put(os.path.join(place.folder, "granted.json"), json.dumps(granted()))
    place.publish_event("started")
    load("lifecycle.usage").watch(place)
    code = holder.hold()
    if is_joined:
        place.end(code, interrupted=holder.is_ending or holder.is_left)
    elif not holder.is_ending:  # otherwise Slurm reports the reason of the end
        place.end(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
