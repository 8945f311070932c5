"""Hold an allocation and start steps in it: ``python -u hold.py JOBDIR``. Python 3.8+, standard library only.

This is what the job that holds it runs. A directory ``steps/KEY`` in the job directory asks for the step whose job
directory is KEY, beside this one; ``steps/KEY.SIGNAL.DIGITS`` asks for a signal to it: INT interrupts what runs, KILL
ends the step. How a step ended is left in its ``end.json``. The content of the file ``lease`` changes while somebody
uses the allocation: when it did not change for as long as the record says, and no step runs, the allocation ends.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import re
import select
import signal
import subprocess
import sys
import time
from typing import Any

_REQUEST = re.compile(r"([0-9]{8}-[0-9]{6}-[0-9a-f]{8,32})(?:\.(INT|KILL)\.[0-9a-f]+)?")
_QUICK, _SLOW = 0.05, 1.0  # seconds between two looks for requests
_NODES_OWN = ("CUDA_VISIBLE_DEVICES", "GPU_DEVICE_ORDINAL", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "TMPDIR")
_SEEN = 120.0  # seconds in which a job directory becomes visible on every node


def beside(name: str) -> Any:
    """Load another file of the runner: it lies beside this one, under the same prefix."""
    spec = importlib.util.spec_from_file_location(f"jupyter_slurm_{name}", __file__[: -len("hold.py")] + f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.dont_write_bytecode = True
    spec.loader.exec_module(module)
    return module


def granted() -> dict[str, Any]:
    """Return what Slurm gave: node list, number of tasks, GPUs."""
    env = os.environ
    gpus = re.search(r"\d+$", env.get("SLURM_GPUS", ""))
    on_node, nodes = env.get("SLURM_GPUS_ON_NODE", "0"), env.get("SLURM_JOB_NUM_NODES", "1")
    count = int(gpus[0]) if gpus else int(on_node) * int(nodes) if on_node.isdigit() and nodes.isdigit() else 0
    return {"nodes": env.get("SLURM_JOB_NODELIST", ""), "gpus": count, "tasks": env.get("SLURM_NTASKS")}


class Step:
    """One step: its job directory and its srun."""

    def __init__(self, place: Any) -> None:
        self.place, self.is_interrupted = place, False
        self.process: Any = None
        with open(os.path.join(place.folder, "step.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.asked: dict[str, Any] = json.load(file)

    def start(self) -> None:
        """Start srun; where that cannot be, say so in the step's own output and end it."""
        out, err = (self._open(name) for name in ("stdout", "stderr"))
        try:
            cwd = self.asked.get("cwd")
            if cwd and not os.path.isdir(cwd):
                os.write(err, os.fsencode(f"{os.uname().nodename} has no folder {cwd}: the step begins in /\n"))
                cwd = "/"
            self.process = subprocess.Popen(
                self._argv(), stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=cwd, env=self._environment()
            )
        except (OSError, ValueError) as error:
            os.write(err, os.fsencode(f"srun could not be started: {error}\n"))
            self.end(127)
        finally:
            os.close(out)
            os.close(err)

    def _open(self, name: str) -> int:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
        return os.open(os.path.join(self.place.folder, name), flags, 0o600)

    def _argv(self) -> list[str]:
        cpus = os.environ.get("SLURM_CPUS_PER_TASK")  # srun of 22.05 to 23.02 does not look there
        argv = ["srun", "--disable-status"]  # so that one SIGINT is passed on
        if cpus and not self.asked["has_cpus"]:
            argv.append(f"--cpus-per-task={cpus}")
        python = self.asked.get("python") or sys.executable
        task = __file__[: -len("hold.py")] + "step.py"
        return [*argv, *self.asked["options"], python, "-u", task, self.place.folder, *self.asked["args"]]

    def _environment(self) -> dict[str, str]:
        """Return the environment of the cell, with what Slurm has set here."""
        given = self.asked.get("env")
        if given is None:
            return dict(os.environ)
        own = {k: v for k, v in os.environ.items() if k.startswith("SLURM") or k in _NODES_OWN}
        return {**given, **own}

    def send(self, name: str) -> None:
        """Interrupt what runs, or end the step."""
        self.is_interrupted = True
        self.process.send_signal(signal.SIGINT if name == "INT" else signal.SIGTERM)

    def end(self, code: int, *, with_allocation: bool = False) -> None:
        """Leave how it ended."""
        code = 128 - code if code < 0 else code
        end = {"format": 1, "exit_code": code, "time": time.time(), "restarts": 0}
        end["interrupted"], end["with_allocation"] = self.is_interrupted or with_allocation, with_allocation
        write(os.path.join(self.place.folder, "end.json"), json.dumps(end))
        self.place.tell("ended")


def write(path: str, text: str) -> None:
    """Write a file in one step."""
    with os.fdopen(os.open(path + ".tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
        file.write(text)
    os.replace(path + ".tmp", path)


class Holder:
    """The allocation, from its first moment to its end."""

    def __init__(self, place: Any, kind: Any) -> None:
        self.place, self._place_of = place, kind
        self.requests = os.path.join(place.folder, "steps")
        self.lease, self.is_once = float(place.job["lease"]["seconds"]), bool(place.job["lease"].get("once"))
        self.running: dict[str, Step] = {}
        self.last: Any = None
        self.is_ending = False
        self._late: dict[str, float] = {}
        self._renewed, self._used = "", time.monotonic()
        self._wake, wake = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGTERM, self._stop)

    def _stop(self, *_: Any) -> None:
        self.is_ending = True

    def hold(self) -> int:
        """Serve requests until the end; return the exit code of the job."""
        pause = _QUICK
        while True:
            news = self._serve()
            pause = _QUICK if news else min(_SLOW if not self.running else 0.2, pause * 1.1)
            if self._reap():
                self._used = time.monotonic()
            if not self.running:
                if self.is_ending:
                    return 143
                if self.is_once and self.last is not None:
                    return int(self.last)
                if self._is_forgotten():
                    sys.stderr.write(f"Nobody has used this allocation for {self.lease:g} s: it ends.\n")
                    return 0
            select.select([self._wake], [], [], pause)
            with contextlib.suppress(BlockingIOError):
                os.read(self._wake, 4096)

    def _serve(self) -> bool:
        try:
            names = sorted(os.listdir(self.requests))
        except OSError:
            return False
        for match in filter(None, map(_REQUEST.fullmatch, names)):
            path = os.path.join(self.requests, match[0])
            if match[2]:
                if match[1] not in names or match[1] in self.running:  # what has not begun yet, does first
                    with contextlib.suppress(OSError):
                        os.rmdir(path)
                    if match[1] in self.running:
                        self.running[match[1]].send(match[2])
            elif match[1] not in self.running and not self.is_ending and self._begin(match[1]):
                with contextlib.suppress(OSError):
                    os.rmdir(path)
        return bool(names)

    def _begin(self, key: str) -> bool:
        """Start a step, once; return whether its request is settled."""
        folder = os.path.join(os.path.dirname(self.place.folder), key)
        try:
            step = Step(self._place_of(folder))
            if step.place.job["step"]["allocation"] != self.place.job["key"]:
                return True
            os.close(os.open(os.path.join(folder, "begun"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            return True
        except (OSError, ValueError, KeyError, TypeError) as error:  # it may not be seen from here yet
            first = self._late.setdefault(key, time.monotonic())
            if time.monotonic() - first < _SEEN:
                return False
            sys.stderr.write(f"step {key} cannot be read: {error}\n")
            return True
        self._used = time.monotonic()
        step.start()
        if step.process is None:
            self.last = 127
        else:
            self.running[key] = step
        return True

    def _reap(self) -> bool:
        """Note which steps are over."""
        over = [(key, step, step.process.poll()) for key, step in self.running.items()]
        for key, step, code in over:
            if code is not None:
                del self.running[key]
                self.last = 128 - code if code < 0 else code
                try:
                    step.end(code, with_allocation=self.is_ending)
                except OSError as error:
                    sys.stderr.write(f"the end of step {key} could not be recorded: {error}\n")
        return bool(self.running) or any(code is not None for _, _, code in over)

    def _is_forgotten(self) -> bool:
        try:
            with open(os.path.join(self.place.folder, "lease"), encoding="utf-8") as file:
                content = file.read(100)
        except (OSError, ValueError):
            content = ""
        if content != self._renewed:
            self._renewed, self._used = content, time.monotonic()
        return time.monotonic() - self._used > self.lease


def main() -> int:
    """Claim the directory, hold the allocation, tell the end."""
    cell = beside("cell")
    place = cell.Place(sys.argv[1])
    owner = place.claim()
    if owner != place.job_id:
        sys.stderr.write(f"job {owner} holds this allocation already; this one ({place.job_id}) does nothing\n")
        return 0
    holder = Holder(place, cell.Place)
    write(os.path.join(place.folder, "granted.json"), json.dumps(granted()))
    place.tell("started")
    code = holder.hold()
    if not holder.is_ending:  # else Slurm says why it ends
        place.end(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
