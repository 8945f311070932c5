"""Usage of a job over time, for a plot: a child of the runner measures twice a minute, and keeps few points.

The child writes one small file, ``usage.json``, only for a job that lasts longer than the first interval::

    {"format": 1, "job": …, "node": …, "source": "cgroup", "cpus": 8, "memory": BYTES, "gpus": 1,
     "points": [[TIME, SECONDS OF CPU SO FAR, BYTES, GPU 0 TO 1, BYTES OF THE GPUS], …]}

Beyond the maximum number of points, every second one is removed and the interval doubles. The control group of the job
on this node, its first one, is measured, else the processes of the runner. Tasks of arrays are not measured: thousands
of tasks would make thousands of files.

Python 3.8+, standard library only.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import re
import select
import signal
import time
from typing import TYPE_CHECKING, Any, Iterator

if TYPE_CHECKING:
    from jupyter_slurm.runner.job_directory import JobDirectory

FORMAT = 1
_INTERVAL_S = 30.0  # seconds
_MAX_POINTS = 240  # points
_QUERY_TIMEOUT_S = 10.0  # seconds for nvidia-smi, rocm-smi or xpu-smi
_GPU_VARIABLES = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "ZE_AFFINITY_MASK", "GPU_DEVICE_ORDINAL")
_NVIDIA_QUERY = ("nvidia-smi", "--query-gpu=utilization.gpu,memory.used", "--format=csv,noheader,nounits")
_AMD_QUERY = ("rocm-smi", "--showuse", "--showmeminfo", "vram", "--json")
_INTEL_QUERY = ("xpu-smi", "dump", "-d", "-1", "-m", "0,18", "-n", "1")  # utilization, memory in use


def watch(place: JobDirectory) -> None:
    """Start to measure the job of a runner. Errors are ignored.

    Uses a separate process without a waiting parent: a thread would disturb a cell that forks. The process ends with
    the runner, whose end of the pipe closes then.
    """
    if place.task is not None:
        return
    try:
        runner, (lives, ours) = os.getpid(), os.pipe()
        child = os.fork()
        if child:
            os.close(lives)
            os.waitpid(child, 0)
            return
    except OSError:
        return
    try:
        os.close(ours)
        if not os.fork():
            _measure(place, runner, lives)
    finally:
        os._exit(0)


def _measure(place: JobDirectory, runner: int, lives: int) -> None:
    os.setsid()  # signals to the runner's group must not reach this process
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    with contextlib.suppress(OSError), open("/proc/self/comm", "w") as name:
        name.write("usage")  # to distinguish it from the runner
    gc.freeze()  # the memory stays shared with the runner while it is not changed
    group, every = ControlGroup(), _interval()
    points = [_point(group, runner)]
    while not select.select([lives], [], [], every)[0] and _is_alive(runner):
        points.append(_point(group, runner))
        if len(points) > _MAX_POINTS:
            points, every = points[::2], every * 2
        with contextlib.suppress(OSError):
            place.put(os.path.join(place.folder, "usage.json"), json.dumps(_to_record(place, group, points)))


def _is_alive(pid: int) -> bool:
    """Return whether a process exists: forked processes of the runner keep its end of the pipe open, too."""
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True


def _interval() -> float:
    with contextlib.suppress(KeyError, ValueError):
        return max(0.1, float(os.environ["JUPYTER_SLURM_USAGE_SECONDS"]))
    return _INTERVAL_S


def _point(group: ControlGroup, runner: int) -> list[float | None]:
    cpu, memory = group.used() or _family_used(runner)
    return [time.time(), cpu, memory, *_gpus()]


def _to_record(place: JobDirectory, group: ControlGroup, points: list[Any]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "job": place.job_id,
        "node": os.environ.get("SLURMD_NODENAME") or os.uname().nodename,
        "source": "cgroup" if group.used() else "processes",
        "cpus": _number("SLURM_CPUS_ON_NODE"),
        "memory": _granted_memory(),
        "gpus": len(visible(os.environ)),
        "points": points,
    }


def _number(name: str) -> int | None:
    text = os.environ.get(name, "")
    return int(text) if text.isdigit() else None


def _granted_memory() -> int | None:
    """Return the bytes of memory of the job on this node, from variables of sbatch(1); None: unknown."""
    of_node, of_cpu, cpus = map(_number, ("SLURM_MEM_PER_NODE", "SLURM_MEM_PER_CPU", "SLURM_CPUS_ON_NODE"))
    if of_node:
        return of_node << 20
    return of_cpu * cpus << 20 if of_cpu and cpus else None


class ControlGroup:
    """Control group of this job on this node (cgroups(7), version 2 or 1), if Slurm has created one."""

    def __init__(self) -> None:
        self._cpu: tuple[str, float] | None = None  # a file, and the number of its units in a second
        self._memory: str | None = None
        for kinds, folder in _groups():
            if kinds == "":
                self._cpu, self._memory = (folder + "/cpu.stat", 1e6), folder + "/memory.current"
            elif "cpuacct" in kinds.split(","):
                self._cpu = folder + "/cpuacct.usage", 1e9
            elif kinds == "memory":
                self._memory = folder + "/memory.usage_in_bytes"

    def used(self) -> tuple[float, int] | None:
        """Return the seconds of CPU time so far and the current bytes of memory; None: unknown."""
        if self._cpu is None or self._memory is None:
            return None
        try:
            path, unit = self._cpu
            cpu = int(_read(path).replace("usage_usec", "").split(None, 1)[0]) / unit
            statistics = _read(os.path.join(os.path.dirname(self._memory), "memory.stat"))
            # Inactive file cache is subtracted: the system frees it on demand, and users do not count it as memory.
            kept = re.search(r"^(?:total_)?inactive_file (\d+)", statistics, re.MULTILINE)
            return cpu, max(0, int(_read(self._memory)) - int(kept[1] if kept else 0))
        except (OSError, ValueError, IndexError):
            return None


def _groups() -> Iterator[tuple[str, str]]:
    """Yield controllers and folder of each hierarchy in which Slurm has created a group for this job."""
    try:
        lines = _read("/proc/self/cgroup").splitlines()
    except OSError:
        return
    for line in lines:
        _, kinds, path = line.split(":", 2)
        found = re.match(r"(.*/job_\d+)(?:/|$)", path)
        if found and "slurm" in path:
            top = "/sys/fs/cgroup" + ("" if kinds == "" else "/" + kinds)
            yield kinds, top + found[1]


def _read(path: str) -> str:
    with open(path, encoding="ascii", errors="replace") as file:
        return file.read()


def _family_used(first: int) -> tuple[float, int]:
    """Return the same of a process and its descendants. Ended processes count with the parent that waited for them."""
    ticks, page = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    told: dict[int, list[str]] = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError):
            told[int(pid)] = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    family = {first} & told.keys()
    while True:
        more = {pid for pid, fields in told.items() if int(fields[1]) in family} - family
        if not more:
            break
        family |= more
    cpu = sum(sum(map(int, told[pid][11:15])) for pid in family) / ticks
    return cpu, sum(int(told[pid][21]) for pid in family) * page


def for_steps(env: Any) -> list[str]:
    """Return the options of srun that give a step the GPUs of its job.

    A job of whole nodes (``--exclusive``) requests no GPUs. Slurm then gives all to its batch script, but none to its
    steps.
    """
    gpus, asked = env.get("SLURM_GPUS_ON_NODE"), ("GPUS", "GPUS_PER_NODE", "GPUS_PER_SOCKET", "NTASKS_PER_GPU")
    has_own = counts_gpus_by_task(env) or any(env.get(f"SLURM_{name}") for name in asked)
    return [f"--gres=gpu:{gpus}"] if gpus and not has_own else []


def counts_gpus_by_task(env: Any) -> bool:
    """Return whether the job was asked for with GPUs for each task; a job of Slurm 24.11 has the second variable."""
    return bool(env.get("SLURM_GPUS_PER_TASK")) or "gpu" in (env.get("SLURM_TRES_PER_TASK") or "")


def visible(env: Any) -> list[str]:
    """Return the GPUs of this job, those of NVIDIA in the form of nvidia-smi.

    Slurm sets the variables of the makers that it detects or that the site names, else those of all. For a part of a
    GPU (shard), Slurm 22.05 leaves out that of NVIDIA.
    """
    for name in _GPU_VARIABLES:
        given = (word.strip() for word in (env.get(name) or "").split(","))
        if found := [word for word in given if re.fullmatch(r"\d+(?:\.\d+)?|(?:GPU|MIG)-[\w/-]+", word)]:
            return found
    return []


def _gpus() -> tuple[float | None, int | None]:
    """Return the utilization of the job's GPUs, 0 to 1, and the bytes of their memory; None: unknown."""
    if not visible(os.environ):
        return None, None
    for argv, read in (
        ([*_NVIDIA_QUERY, "--id=" + ",".join(visible(os.environ))], _nvidia),
        (list(_AMD_QUERY), _amd),
        (list(_INTEL_QUERY), _intel),
    ):
        with contextlib.suppress(OSError, ValueError, LookupError, AttributeError, TypeError):
            busy, memory = zip(*read(_ask(argv)))
            return sum(busy) / len(busy), sum(memory)
    return None, None


def _ask(argv: list[str]) -> str:
    import subprocess  # a cell without a GPU does not wait for this import

    try:
        null = subprocess.DEVNULL
        done = subprocess.run(
            argv, stdin=null, stdout=subprocess.PIPE, stderr=null, timeout=_QUERY_TIMEOUT_S, check=True
        )
    except subprocess.SubprocessError as error:
        raise OSError(str(error)) from error
    return done.stdout.decode("ascii", "replace")


def _on_node() -> set[str]:
    """Return the numbers of the job's GPUs among all of the node, which the programs of AMD and Intel count."""
    told = os.environ.get("SLURM_STEP_GPUS") or os.environ.get("SLURM_JOB_GPUS") or ""
    return {word.partition(".")[0] for word in told.split(",") if word} or {
        word.partition(".")[0] for word in visible(os.environ)
    }


def _nvidia(text: str) -> list[tuple[float, int]]:
    rows = [line.split(",") for line in text.splitlines()]
    return [(float(row[0]) / 100, int(row[1]) << 20) for row in rows]


def _amd(text: str) -> list[tuple[float, int]]:
    """Read ``rocm-smi --json``; warnings may stand before the document."""
    known, ours = json.loads(text[text.index("{") :]), _on_node()
    cards = [one for name, one in known.items() if name[len("card") :] in ours and name.startswith("card")]
    return [(float(one["GPU use (%)"]) / 100, int(one["VRAM Total Used Memory (B)"])) for one in cards]


def _intel(text: str) -> list[tuple[float, int]]:
    """Read ``xpu-smi dump``: a line of names, then a line for each device."""
    names, *rows = ([word.strip() for word in line.split(",")] for line in text.splitlines() if "," in line)
    found, ours = [dict(zip(names, row)) for row in rows], _on_node()
    return [
        (float(one["GPU Utilization (%)"]) / 100, int(float(one["GPU Memory Used (MiB)"]) * (1 << 20)))
        for one in found
        if one["DeviceId"] in ours
    ]
