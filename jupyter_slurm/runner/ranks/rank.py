"""Rank of a Python cell: ``python -u rank.py JOBDIR [args]``, started by srun or torchrun for ``launch.py``.

This process reads the output of the cell, and sends it in frames (``frames.py``) to its own standard output. The cell
runs in a child, so that no output of a killed cell is lost. Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import os
import re
import runpy
import select
import signal
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

# The runner is not a package: its files are loaded by path.
load = runpy.run_path(__file__[: -len("ranks/rank.py")] + "loader.py")["load"]

_SHOW_DELAY_S = 0.2  # seconds after which an incomplete line is shown
_END_DELAY_S = 1.0  # seconds for simultaneous failures to be reported, before the end of the first rank ends the others
_READ_SIZE = 65536
_PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM)
_DECISION_TIMEOUT_S = (
    10.0  # seconds in which a job with resume detects its preemption: until then the cell is not ended yet
)


def set_variables(env: Any) -> None:
    """Set variables of ``torch.distributed`` (``env://``) and others, if unset: torchrun sets them, srun does not."""
    if name := env.pop("JUPYTER_SLURM_JOB_NAME", ""):
        env["SLURM_JOB_NAME"] = name
    if "RANK" in env:
        return
    env["RANK"] = env.get("SLURM_PROCID", "0")
    env["WORLD_SIZE"] = env.get("SLURM_STEP_NUM_TASKS") or env.get("SLURM_NTASKS") or "1"
    env["LOCAL_RANK"] = env.get("SLURM_LOCALID", "0")
    node = int(env.get("SLURM_NODEID") or 0)
    env["LOCAL_WORLD_SIZE"] = str(tasks_per_node(env.get("SLURM_STEP_TASKS_PER_NODE") or "1")[node])
    if not env.get("MASTER_ADDR"):
        env["MASTER_ADDR"] = env.get("SLURM_LAUNCH_NODE_IPADDR", "127.0.0.1")


def tasks_per_node(text: str) -> list[int]:
    """Return the tasks of each node: ``4(x2),1`` stands for three nodes."""
    counts = []
    for count, times in re.findall(r"(\d+)(?:\(x(\d+)\))?", text):
        counts += [int(count)] * int(times or 1)
    return counts


def record_of(cell: Any, place: JobDirectory, sink: int) -> Any:
    """Return a display file that writes into a pipe."""
    display = cell.load("cell.display")

    class PipedOutput(display.DisplayRecord):  # type: ignore[name-defined, misc, unused-ignore]
        def _open(self) -> None:
            self._file = sink

    return PipedOutput(os.path.join(place.folder, "display.jsonl"), place.job_id, 0)


def run_cell(cell: Any, place: JobDirectory, args: list[str], rank: int, sink: int) -> int:
    """Run the cell as this rank. Values are taken from rank 0."""
    place.display = lambda: record_of(cell, place, sink)  # type: ignore[method-assign]  # a rank has no file
    if rank:
        place.note = lambda: None  # type: ignore[method-assign]  # rank 0 notes it for all
        if place.job.get("values"):
            place.job["values"] = {**place.job["values"], "out": []}
    place.offer()
    code = int(cell.run(place, args))
    if not code and not rank and place.job["launcher"] == "mpi":
        check_mpi(int(os.environ["WORLD_SIZE"]))
    return code


def check_mpi(ranks: int) -> None:
    """Warn if an MPI that is incompatible with this Slurm took each rank for the only one."""
    mpi: Any = sys.modules.get("mpi4py.MPI")
    if mpi is not None and mpi.Is_initialized() and not mpi.Is_finalized() and mpi.COMM_WORLD.Get_size() < ranks:
        sys.stderr.write(
            f"Warning: MPI of {sys.executable} sees {mpi.COMM_WORLD.Get_size()} of {ranks} ranks, so it does not "
            "match this Slurm. List the types with `srun --mpi=list`, and set SLURM_MPI_TYPE=NAME in the environment.\n"
        )
        sys.stderr.flush()


class OutputPump:
    """Sender of the child's output, until its end."""

    def __init__(self, sender: Any, pipes: dict[int, bytes], child: int, warning: str | None) -> None:
        self._sender, self._pipes, self._child = sender, pipes, child
        self._warning = warning  # path of a file that exists if this run is only interrupted
        self._ends_at = 0.0
        self._wake, wake = os.pipe()
        for end in (self._wake, wake, *pipes):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in _PASSED_ON:  # Slurm and torchrun send them only to the task, which is this process
            signal.signal(number, self._pass_on)
        signal.signal(signal.SIGCHLD, lambda *_: None)

    def _pass_on(self, number: int, _: Any) -> None:
        if number == signal.SIGTERM and self._warning:
            self._ends_at = self._ends_at or time.monotonic() + _DECISION_TIMEOUT_S
        else:
            self._send(number)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._child, number)

    def _decide(self) -> None:
        """End the cell of a job with resume, unless the run is only interrupted."""
        if self._ends_at and self._warning and os.path.exists(self._warning):
            self._ends_at = 0.0
        elif self._ends_at and time.monotonic() > self._ends_at:
            self._send(signal.SIGTERM)
            self._ends_at = 0.0

    def run(self) -> tuple[int, Any]:
        """Return the exit code that a shell would see, and the resources used by the child (resource(3))."""
        while True:
            pid, status, used = os.wait4(self._child, os.WNOHANG)
            if pid:
                break
            ready, _, _ = select.select([self._wake, *self._pipes], [], [], self._timeout())
            self._decide()
            if not ready:
                self._sender.show()
            for end, stream in list(self._pipes.items()):  # printed output precedes displayed output
                if end in ready:
                    self._read(end, stream)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)
        for end, stream in list(self._pipes.items()):  # to the end, unless a process left behind has it open
            while self._read(end, stream):
                pass
        return 128 + os.WTERMSIG(status) if os.WIFSIGNALED(status) else os.WEXITSTATUS(status), used

    def _timeout(self) -> float | None:
        return _SHOW_DELAY_S if self._sender.is_waiting or self._ends_at else None

    def _read(self, end: int, stream: bytes) -> bool:
        try:
            data = os.read(end, _READ_SIZE)
        except BlockingIOError:
            return False
        if not data:
            del self._pipes[end]
            return False
        self._sender.feed(stream, data)
        return True


def warning_of(place: JobDirectory) -> str | None:
    """Return the file that announces an interruption of this run in a job with resume (``lifecycle/resume.py``)."""
    folder = os.environ.get("JUPYTER_SLURM_RESUME_DIR") if place.job.get("resume") else None
    return os.path.join(folder, f"warned.{os.environ.get('SLURM_RESTART_COUNT') or 0}") if folder else None


def write_all(data: bytes) -> None:
    """Write to the standard output of this process. A missing reader is ignored."""
    view = memoryview(data)
    with contextlib.suppress(BrokenPipeError):
        while view:
            view = view[os.write(1, view) :]


def main() -> int:
    """Run the cell in a child, and send its output."""
    cell = load("cell.run")
    place = cell.JobDirectory(sys.argv[1])
    set_variables(os.environ)
    rank = int(os.environ["RANK"])
    ends = {stream: os.pipe() for stream in (b"o", b"e", b"d")}
    child = os.fork()
    if not child:
        for stream, number in ((b"o", 1), (b"e", 2)):
            os.dup2(ends[stream][1], number)
        for stream, pair in ends.items():
            for end in pair if stream != b"d" else pair[:1]:
                os.close(end)
        return run_cell(cell, place, sys.argv[2:], rank, ends[b"d"][1])
    for pair in ends.values():
        os.close(pair[1])
    sender = cell.load("ranks.frames").Sender(rank, write_all)
    pipes = {pair[0]: stream for stream, pair in ends.items()}
    code, used = OutputPump(sender, pipes, child, warning_of(place)).run()
    told = {"exit_code": code, "node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename}
    told["ranks"] = int(os.environ["WORLD_SIZE"])
    sender.end({**told, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * 1024})
    if code:
        time.sleep(_END_DELAY_S)
    return code


if __name__ == "__main__":
    sys.exit(main())
