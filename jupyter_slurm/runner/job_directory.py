"""The job directory, as a runner in its job has it: what is asked, who may do it, and what is left there of its end.

Python 3.8+, standard library only. A session begins with this: what takes long to load has no place here.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long as all the rest here
    from typing import Any

if "load" not in globals():  # load() gives it to what it loads
    import runpy

    load = runpy.run_path(__file__[: -len("job_directory.py")] + "loader.py")["load"]

FORMAT = 1
_GRANTED_VARIABLES = {"account": "SLURM_JOB_ACCOUNT", "nodes": "SLURM_JOB_NODELIST", "partition": "SLURM_JOB_PARTITION"}
_GRANTED_VARIABLES["qos"] = "SLURM_JOB_QOS"
_STARTED_AT_S = time.monotonic()


class JobDirectory:
    """The job directory and this job's own names in it."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "job.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.job: dict[str, Any] = json.load(file)
        self.job_id = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
        self.task = os.environ.get("SLURM_ARRAY_TASK_ID")
        self.suffix = "" if self.task is None else "." + self.task
        # Of an array in parts, each part has a directory, and the first one has what all share.
        part = self.job.get("part")
        self.shared = os.path.join(os.path.dirname(folder), part["of"]) if part else folder
        self.offset: int = part["number"] * part["size"] if part else 0

    def claim(self) -> str:
        """Return the id of the job that has the directory: ours (also after a requeue), or whose came first."""
        path = os.path.join(self.folder, "claim")
        draft = f"{path}.{self.job_id}{self.suffix}"
        self.write(draft, self.job_id)
        try:
            os.link(draft, path)  # in one step and with its content; exclusive on NFS too
        except OSError:
            pass  # somebody has it; who, stands in the file
        finally:
            os.unlink(draft)
        with open(path, encoding="utf-8") as file:
            return file.read()

    def is_ours(self, does: str = "runs this cell") -> bool:
        """Claim the directory; say so where another job has it, which ``does`` what this one was to do."""
        owner = self.claim()
        if owner != self.job_id:
            sys.stderr.write(f"job {owner} {does} already; this one ({self.job_id}) does nothing\n")
        return owner == self.job_id

    def display(self) -> Any:
        """Return the record of what the cell shows."""
        path = os.path.join(self.folder, f"display{self.suffix}.jsonl")
        return load("cell.display").DisplayRecord(path, self.job_id, int(os.environ.get("SLURM_RESTART_COUNT") or 0))

    def note(self) -> None:
        """Leave word of the Python and the environment that were found here; never a reason to fail.

        Of an array the first task does: ten thousand files would say the same.
        """
        path = os.path.join(self.folder, "used.json")
        if os.path.exists(path):
            return
        ipython = sys.modules.get("IPython")
        env = os.environ.get
        used = {
            "format": FORMAT,
            "python": "{}.{}.{}".format(*sys.version_info[:3]),
            "executable": sys.executable,
            "prefix": sys.prefix,
            "ipython": getattr(ipython, "__version__", None),
            "node": env("SLURMD_NODENAME") or os.uname().nodename,
            "modules": [name for name in env("LOADEDMODULES", "").split(":") if name],
            "conda": env("CONDA_PREFIX"),
            "container": env("JUPYTER_SLURM_CONTAINER") or env("APPTAINER_CONTAINER") or env("SINGULARITY_CONTAINER"),
        }
        with contextlib.suppress(OSError):
            self.write(path, json.dumps(used))

    def publish_event(self, event: str) -> None:
        """Leave a sign in the events folder; never a reason to fail. Tasks leave none: there may be thousands."""
        folder = self.job.get("events")
        try:
            if folder and self.task is None:
                self.write(os.path.join(folder, self.job["key"] + "." + event), self.job_id)
        except OSError:
            pass

    def stage(self, text: str) -> None:
        """Leave word of where a session is, and how far, that does not serve yet; never a reason to fail."""
        told: dict[str, Any] = {"format": FORMAT, "stage": text, "nodes": os.environ.get("SLURM_JOB_NODELIST", "")}
        told["restarts"] = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        with contextlib.suppress(OSError):
            self.put(os.path.join(self.folder, "served.json"), json.dumps(told))

    def end(self, exit_code: int, **more: Any) -> None:
        """Write the end marker, in one step, with more in it where there is more to tell."""
        path = os.path.join(self.folder, f"end{self.suffix}.json")
        restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        end: dict[str, Any] = {"format": FORMAT, "job": self.job_id, "task": self.task, "exit_code": exit_code}
        end.update(time=time.time(), restarts=restart)
        end["had"] = {name: told for name, variable in _GRANTED_VARIABLES.items() if (told := os.environ.get(variable))}
        end.update({"used": used(), **more})
        try:
            self.put(path, json.dumps(end))
        except OSError as error:
            sys.stderr.write(f"the end of this job could not be recorded: {error}\n")
        self.publish_event("ended")

    def offer(self) -> None:
        """Let the cell, and what it starts, find what is theirs (``job.py``)."""
        if not self.job.get("resume"):
            os.environ.pop("JUPYTER_SLURM_RESUME_DIR", None)  # of the job that submitted this one
        os.environ["JUPYTER_SLURM_CHECKPOINT_DIR"] = os.path.join(self.folder, f"checkpoint{self.suffix}")
        sys.meta_path.append(JobModule())  # type: ignore[arg-type, unused-ignore]

    @classmethod
    def put(cls, path: str, text: str) -> None:
        """Write a file in one step; see :meth:`write`."""
        cls.write(path + ".tmp", text)
        os.replace(path + ".tmp", path)

    @staticmethod
    def write(path: str, text: str) -> None:
        """Write a file that only this user can read."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)


class UncheckedModule:
    """What is said on a stream, and is no reason to fail where the disk is full."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write it, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write what was kept, if that is possible."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def used() -> dict[str, float]:
    """Return what this process and its children have used: seconds of CPU time and of time, bytes of memory.

    The peak is that of the control group where there is one, else that of the largest process. What the job
    was given is 0 where Slurm does not say it.
    """
    import resource

    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return {
        "cpu": sum(one.ru_utime + one.ru_stime for one in both),
        "memory": _group_peak() or max(one.ru_maxrss for one in both) * 1024,
        "memory_asked": _requested_memory(),
        "cpus": _cpus(),
        "elapsed": time.monotonic() - _STARTED_AT_S,
    }


def _cpus() -> int:
    """Return how many CPUs the job has on its nodes: sbatch(1) tells them as ``2(x3),4``; 0: not known."""
    import re

    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return sum(int(cpus) * int(nodes or 1) for cpus, nodes in found)


def _requested_memory() -> int:
    """Return the bytes of memory that the job has on its nodes, as sbatch(1) tells them; 0: not known."""
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ["SLURM_MEM_PER_NODE"]) * int(os.environ["SLURM_JOB_NUM_NODES"]) << 20
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ["SLURM_MEM_PER_CPU"]) * _cpus() << 20
    return 0


def _group_peak() -> int:
    """Return the most memory that the control group of this job had (cgroups(7), version 2 or 1); 0: not known."""
    try:
        with open("/proc/self/cgroup", encoding="ascii") as file:
            groups = [line.rstrip("\n").split(":", 2) for line in file]
        for _, kind, path in groups:
            names = {"": "memory.peak", "memory": "memory/memory.max_usage_in_bytes"}
            if kind in names and "/slurm" in path:
                top, _, name = names[kind].rpartition("/")
                with open(f"/sys/fs/cgroup/{top}{path}/{name}", encoding="ascii") as file:
                    return int(file.read())
    except (OSError, ValueError):
        pass
    return 0


class JobModule:
    """Finds ``jupyter_slurm_job`` for a cell that imports it; others pay nothing for it."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        """Return where it is."""
        if name != "jupyter_slurm_job":
            return None
        import importlib.util

        return importlib.util.spec_from_file_location(name, __file__[: -len("job_directory.py")] + "job.py")
