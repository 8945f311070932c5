"""Step of an allocation, started by ``hold.py``: its job directory, its srun and its end.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import errno
import json
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
load = runpy.run_path(__file__[: -len("allocation/held_step.py")] + "loader.py")["load"]
if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory
    from jupyter_slurm.runner.job_document import StepRequest
else:
    JobDirectory = load("job_directory").JobDirectory

_NODE_VARIABLES = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "TMPDIR")
_NO_SUCH_FILE = os.strerror(errno.ENOENT)
_END_MARKERS = (
    " DUE TO ",
    " oom-kill event",
    " oom_kill event",
    " CANCELLED AT ",
)  # in messages of Slurm, the most telling first
# Up to 25.11 slurmstepd begins with its name, afterwards with the time: "[2026-05-04T10:11:12.345] error: ".
_OF_SLURM = re.compile(r"(?:srun|slurmstepd)[\w.-]*: |\[\d{4}-\d\d-\d\dT[\d:.]+\] error: ")
_NO_CONTAINER, _OF_CONTAINER = 125, "container: "  # exit code and beginning of the message of container/run.py
# printed although srun returns 0 after it killed the step
_KILLED_MARKER = "Timed out waiting for job step to complete"


class HeldStep:
    """Step with its job directory and its srun."""

    def __init__(self, place: JobDirectory) -> None:
        self.place, self.is_interrupted = place, False
        self.is_process = place.job["kind"] == "process"
        self.is_contained = bool((place.job.get("environment") or {}).get("image"))
        self.takes_cells = self.is_process or place.job["kind"] == "kernel"
        self.is_session = place.job["kind"] == "session"
        self.is_one_task = self.takes_cells or self.is_session  # with all resources of the allocation on its node
        self.cells: dict[str, JobDirectory] = {}  # job directories of cells that have not ended
        self.process: Any = None
        with open(os.path.join(place.folder, "step.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.request: StepRequest = json.load(file)

    def start(self) -> None:
        """Start srun."""
        with self._open("stdout") as out, self._open("stderr") as err:
            cwd = self.request.get("cwd")
            if cwd and not os.path.isdir(cwd):
                err.write(os.fsencode(f"{os.uname().nodename} has no folder {cwd}. The step starts in /.\n"))
                cwd = "/"
            self.process = subprocess.Popen(
                self._argv(),
                stdin=subprocess.PIPE if self.takes_cells else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=cwd,
                env=self._environment(),
            )

    def write_message(self, text: str) -> None:
        """Write a message to the step's own output. Errors are ignored."""
        with contextlib.suppress(OSError), self._open("stderr") as err:
            err.write(text.encode("utf-8", "backslashreplace"))

    def slurm_messages(self) -> list[str]:
        """Return Slurm's messages about the end of the step: the most telling one, else the last two lines."""
        told = self._lines()
        telling = [line for sign in _END_MARKERS for line in told if sign in line]
        return telling[:1] or [*told[-2:], *self._variables(told)]

    def _variables(self, messages: list[str]) -> list[str]:
        """Return a message with the cell's variables behind a refusal of srun, if any."""
        if not messages or os.path.exists(os.path.join(self.place.folder, "started.json")):
            return []
        # What Slurm has set for the allocation counts over the cell's; equal values have come with the submission.
        given = {k: v for k, v in (self.request.get("env") or {}).items() if os.environ.get(k, v) == v}
        inputs = load("allocation.input_variables")
        blamed = inputs.blamed_variables("srun", "\n".join(messages), given)
        return [f"{', '.join(blamed)}{inputs.ENVIRONMENT}"] if blamed else []

    def code(self, code: int) -> int:
        """Return the exit code of a step, from the exit code of its srun."""
        if code < 0:
            return 128 - code
        return code or (137 if any(_KILLED_MARKER in line for line in self._lines()) else 0)

    def _lines(self) -> list[str]:
        return [line[:300] for line in self._last_lines() if _OF_SLURM.match(line)]

    def _last_lines(self) -> list[str]:
        lines: list[str] = []
        with contextlib.suppress(OSError), open(os.path.join(self.place.folder, "stderr"), "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - 2000))
            lines = file.read().decode("utf-8", "replace").split("\n")
        return lines

    def obituary(self, code: int) -> str:
        """Return the reason why a process ended. Slurm's actions are known from the messages of srun."""
        if self.is_interrupted:
            return "it was asked to end"
        if self.is_contained and code == _NO_CONTAINER:
            refused = [line for line in self._last_lines() if line.startswith(_OF_CONTAINER)]
            if refused:
                return refused[-1][len(_OF_CONTAINER) :][:300]
        said = self.slurm_messages()
        if lacks := [
            line for line in said if line.endswith(f"execve(): {self.request.get('python')}: {_NO_SUCH_FILE}")
        ]:
            return f"the node has no {self.request['python']}: {lacks[-1]}"
        return "; ".join(said) or ("exit()" if code == 0 else f"exit code {code}")

    def _open(self, name: str) -> Any:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.fdopen(os.open(os.path.join(self.place.folder, name), flags, 0o600), "ab", buffering=0)

    def _argv(self) -> list[str]:
        cpus = os.environ.get("SLURM_CPUS_PER_TASK")  # srun 22.05 to 23.02 ignores this variable
        argv = ["srun", "--disable-status"]  # so that srun forwards a single SIGINT
        if cpus and not self.request["has_cpus"] and not self.is_one_task:
            argv.append(f"--cpus-per-task={cpus}")
        gpus, usage = os.environ.get("SLURM_GPUS_ON_NODE"), load("lifecycle.usage")
        if self.is_one_task and gpus and usage.counts_gpus_by_task(os.environ) and not self.request["has_gpus"]:
            argv.append(f"--gpus={gpus}")  # otherwise the step has the GPUs that Slurm counts for each task
        if not self.request["has_gpus"]:
            argv += usage.for_steps(os.environ)
        # In a container, the requested Python is that of the image, and another one starts the container.
        is_inside = self.is_contained and self.place.job["kind"] != "kernel"
        python = (None if is_inside else self.request.get("python")) or sys.executable
        task = __file__[: -len("held_step.py")] + "step.py"
        words = [*self.request.get("wrapper", ()), python, "-u", task, self.place.folder, *self.request["args"]]
        return [*argv, *self.request["options"], *words]

    def _environment(self) -> dict[str, str]:
        """Return the environment of the cell, together with the variables that Slurm has set for the allocation."""
        given, own = self.request.get("env"), dict(os.environ)
        # An allocation with --export=NONE would hand it on to its steps, which would have no HOME and no PATH.
        own.pop("SLURM_EXPORT_ENV", None)
        if given is not None:
            own = {k: v for k, v in own.items() if k.startswith("SLURM") or k in _NODE_VARIABLES}
        if self.is_one_task:  # srun must not see these: it would restrict the step to that part of the node
            cpus = own.get("SLURM_CPUS_PER_TASK")
            own = {k: v for k, v in own.items() if not re.fullmatch(r"SLURM_(\w+_PER_TASK|TRES_BIND)", k)}
            own.update({"JUPYTER_SLURM_CPUS_PER_TASK": cpus} if cpus else {})
        return {**(given or {}), **own, **self.request.get("variables", {})}

    def send(self, name: str) -> None:
        """Interrupt the running cell, or end the step. A session first gets the chance to end its server."""
        is_asked = name == "INT" or (self.is_session and not self.is_interrupted)
        self.is_interrupted = True
        self.process.send_signal(signal.SIGINT if is_asked else signal.SIGTERM)

    def listens(self) -> bool:
        """Return whether a process accepts input now. True also for a process that has ended: it ignores the input."""
        return bool(select.select([], [self.process.stdin], [], 0)[1])

    def send_line(self, line: str) -> bool:
        """Send a line to a process. Return whether it was sent."""
        try:
            self.process.stdin.write(f"{line}\n".encode("ascii"))
            self.process.stdin.flush()
        except OSError:
            return False
        return True

    def forget_ended(self) -> None:
        """Forget cells that have ended."""
        for key, place in list(self.cells.items()):
            if os.path.exists(os.path.join(place.folder, "end.json")):
                del self.cells[key]

    def _reason_of_session(self) -> dict[str, Any]:
        """Return the reason that the session has recorded in its end marker."""
        path = os.path.join(self.place.folder, "end.json")
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError), open(path, "rb") as file:
            return {"session": json.load(file)["session"]}
        return {}

    def end(self, code: int, *, with_allocation: bool = False) -> None:
        """Record how the step ended."""
        has_begun = os.path.exists(os.path.join(self.place.folder, "started.json"))
        said: dict[str, Any] = (
            {"said" if has_begun else "refused": "; ".join(self.slurm_messages())}
            if code and not self.is_interrupted
            else {}
        )
        if self.is_session:
            said.update(self._reason_of_session())
        leave_end(self.place.folder, code, self.is_interrupted or with_allocation, with_allocation, **said)
        self.place.publish_event("ended")
        # The environment of the cell may contain tokens, and the job directory is kept for days.
        with contextlib.suppress(OSError):
            self.place.put(os.path.join(self.place.folder, "step.json"), json.dumps({**self.request, "env": None}))


def leave_end(folder: str, code: int, is_interrupted: bool, with_allocation: bool, **said: Any) -> None:
    """Write the end marker of a step, with the messages in ``said`` (read by services/jobs/notebook_process.py)."""
    end: dict[str, object] = {"format": 1, "exit_code": code, "time": time.time(), "restarts": 0}
    end["interrupted"], end["with_allocation"] = is_interrupted, with_allocation
    JobDirectory.put(os.path.join(folder, "end.json"), json.dumps({**end, **said}))
