"""Job directory, as seen by a runner in its job: the request, the claim, and the record of the end.

Python 3.8+, standard library only. A session loads this module first, so slow imports do not belong in it.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing takes as long to load as everything else in this module
    from typing import Any

    from jupyter_slurm.runner.job_document import JobDocument

if "load" not in globals():  # load() sets it in the modules that it loads
    import runpy

    load = runpy.run_path(__file__[: -len("job_directory.py")] + "loader.py")["load"]

FORMAT = 1
_GRANTED_VARIABLES = {"account": "SLURM_JOB_ACCOUNT", "nodes": "SLURM_JOB_NODELIST", "partition": "SLURM_JOB_PARTITION"}
_GRANTED_VARIABLES["qos"] = "SLURM_JOB_QOS"
_STARTED_AT_S = time.monotonic()


class JobDirectory:
    """Job directory, with the names of files that belong to this job."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        with open(os.path.join(folder, "job.json"), encoding="utf-8", errors="surrogateescape") as file:
            self.job: JobDocument = json.load(file)
        self.job_id = os.environ.get("SLURM_ARRAY_JOB_ID") or os.environ.get("SLURM_JOB_ID", "")
        self.task = os.environ.get("SLURM_ARRAY_TASK_ID")
        self.suffix = "" if self.task is None else "." + self.task
        # Each part of an array in parts has a directory. The first one holds the shared files.
        part = self.job.get("part")
        self.shared = os.path.join(os.path.dirname(folder), part["of"]) if part else folder
        self.offset: int = part["number"] * part["size"] if part else 0

    def claim(self) -> str:
        """Return the id of the job that owns the directory: this job (also after a requeue), or the first claimant."""
        path = os.path.join(self.folder, "claim")
        with contextlib.suppress(FileNotFoundError), open(path, encoding="utf-8") as file:
            return file.read()  # nothing is written after a requeue: the disk may be full
        draft = f"{path}.{self.job_id}{self.suffix}"
        self.write(draft, self.job_id)
        try:
            os.link(draft, path)  # atomic and with its content; exclusive on NFS, too
        except OSError:
            pass  # claimed by another job, whose id is in the file
        finally:
            os.unlink(draft)
        with open(path, encoding="utf-8") as file:
            return file.read()

    def is_ours(self, does: str = "runs this cell") -> bool:
        """Claim the directory. If another job owns it, report that this other job ``does`` the work."""
        owner = self.claim()
        if owner != self.job_id:
            sys.stderr.write(f"Job {owner} already {does}. This job ({self.job_id}) does nothing.\n")
        return owner == self.job_id

    def display(self) -> Any:
        """Return the display file of the cell."""
        path = os.path.join(self.folder, f"display{self.suffix}.jsonl")
        return load("cell.display").DisplayRecord(path, self.job_id, int(os.environ.get("SLURM_RESTART_COUNT") or 0))

    def note(self) -> None:
        """Record the Python and the environment of this job. Errors are ignored.

        In an array only the first task does so: ten thousand files would hold the same content.
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
        """Create a file in the events folder. Errors are ignored. Tasks create none: there may be thousands."""
        folder = self.job.get("events")
        try:
            if folder and self.task is None:
                self.write(os.path.join(folder, self.job["key"] + "." + event), self.job_id)
        except OSError:
            pass

    def stage(self, text: str) -> None:
        """Record place and progress of a session that does not serve yet. Errors are ignored."""
        told: dict[str, object] = {"format": FORMAT, "stage": text, "nodes": os.environ.get("SLURM_JOB_NODELIST", "")}
        told["restarts"] = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        with contextlib.suppress(OSError):
            self.put(os.path.join(self.folder, "served.json"), json.dumps(told))

    def end(self, exit_code: int, **more: Any) -> None:
        """Write the end marker atomically, with additional fields if given."""
        path = os.path.join(self.folder, f"end{self.suffix}.json")
        restart = int(os.environ.get("SLURM_RESTART_COUNT") or 0)
        end: dict[str, object] = {"format": FORMAT, "job": self.job_id, "task": self.task, "exit_code": exit_code}
        end.update(time=time.time(), restarts=restart)
        end["had"] = {name: told for name, variable in _GRANTED_VARIABLES.items() if (told := os.environ.get(variable))}
        end.update({"used": used(), "sizes": self._sizes(), **more})
        try:
            self.put(path, json.dumps(end))
        except OSError as error:
            sys.stderr.write(f"The end of this job could not be recorded: {error}.\n")
        self.publish_event("ended")

    def _sizes(self) -> dict[str, int]:
        """Return the bytes of each output file: other hosts may see fewer for a while."""
        found = {}
        display = os.path.join(self.folder, f"display{self.suffix}.jsonl")
        files: dict[str, int | str] = {"stdout": 1, "stderr": 2, "display": display}
        for name, file in files.items():
            with contextlib.suppress(OSError):
                told = os.stat(file)
                if stat.S_ISREG(told.st_mode):
                    found[name] = told.st_size
        return found

    def offer(self) -> None:
        """Give the cell and its programs the paths of their files (``job.py``)."""
        if not self.job.get("resume"):
            os.environ.pop("JUPYTER_SLURM_RESUME_DIR", None)  # of the job that submitted this one
        os.environ["JUPYTER_SLURM_CHECKPOINT_DIR"] = os.path.join(self.folder, f"checkpoint{self.suffix}")
        sys.meta_path.append(JobModule())  # type: ignore[arg-type, unused-ignore]

    @classmethod
    def put(cls, path: str, text: str) -> None:
        """Write a file atomically; see :meth:`write`."""
        cls.write(path + ".tmp", text)
        os.replace(path + ".tmp", path)

    @staticmethod
    def write(path: str, text: str) -> None:
        """Write a file that only this user can read."""
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600), "w") as file:
            file.write(text)


class UncheckedModule:
    """Stream that ignores errors, for example of a full disk."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """Write the text, if possible."""
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        """Write buffered text, if possible."""
        with contextlib.suppress(OSError):
            self._stream.flush()


def used() -> dict[str, float]:
    """Return the resources used by this process and its children: CPU seconds, elapsed seconds, bytes of memory.

    The peak is that of the control group if there is one, else that of the largest process. Granted resources are 0 if
    Slurm does not report them.
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
    """Return the number of CPUs of the job on its nodes, from sbatch(1)'s form ``2(x3),4``; 0: unknown."""
    import re

    found = re.findall(r"(\d+)(?:\(x(\d+)\))?", os.environ.get("SLURM_JOB_CPUS_PER_NODE", ""))
    return sum(int(cpus) * int(nodes or 1) for cpus, nodes in found)


def _requested_memory() -> int:
    """Return the bytes of memory of the job on its nodes, from variables of sbatch(1); 0: unknown."""
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ["SLURM_MEM_PER_NODE"]) * int(os.environ["SLURM_JOB_NUM_NODES"]) << 20
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ["SLURM_MEM_PER_CPU"]) * _cpus() << 20
    with contextlib.suppress(KeyError, ValueError):
        return int(os.environ["SLURM_MEM_PER_GPU"]) * _gpus() << 20
    return 0


def _gpus() -> int:
    """Return the number of GPUs of the job on its nodes; the nodes are taken to have equally many, as sbatch asks."""
    return int(os.environ["SLURM_GPUS_ON_NODE"]) * int(os.environ["SLURM_JOB_NUM_NODES"])


def _group_peak() -> int:
    """Return the peak memory of the control group of this job (cgroups(7), version 2 or 1); 0: unknown."""
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
    """Import finder for ``jupyter_slurm_job``, without cost for cells that do not import it."""

    @staticmethod
    def find_spec(name: str, *_: Any) -> Any:
        """Return the spec of the module."""
        if name != "jupyter_slurm_job":
            return None
        import importlib.util

        return importlib.util.spec_from_file_location(name, __file__[: -len("job_directory.py")] + "job.py")
