"""Usage of a job over time, as measured by its runner (``runner/lifecycle/usage.py``), for a plot."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from jupyter_slurm.errors import TransportError
from jupyter_slurm.services.jobdir.job_written_files import read_untrusted
from jupyter_slurm.services.jobdir.ownership import is_owned
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["sampled"]

_MAX_SAMPLES_BYTES = 200_000  # bytes; a runner writes fewer
_MAX_NODE_NAME_CHARACTERS = 255  # characters of a node name
_MEASURED = ("python", "allocation", "session")
_EMPTY_SAMPLE: api.Usage = {"node": None, "cpus": None, "memory": None, "gpus": 0, "points": [], "note": ""}


async def sampled(transport: Transport, entry: TrackedJob) -> api.Usage:
    """Return the measurements in the form of the API; if there are none, ``note`` gives the reason."""
    if why := _unmeasured(entry):
        return {**_EMPTY_SAMPLE, "note": why}
    assert entry.folder is not None
    try:
        if not await is_owned(transport, entry.folder.path):
            raise FileNotFoundError
        told = await read_untrusted(transport, entry.folder.file("usage.json"), _MAX_SAMPLES_BYTES)
        return {**_read(told), "note": _note(told)}
    except (FileNotFoundError, TransportError):
        pass
    except (ValueError, LookupError, TypeError, RecursionError, OverflowError):
        return {**_EMPTY_SAMPLE, "note": "The measured values cannot be read, because their file is damaged."}
    if entry.is_finished:
        return {**_EMPTY_SAMPLE, "note": "The job ended before anything was measured."}
    return {**_EMPTY_SAMPLE, "note": "Nothing has been measured yet. Try again in a minute."}


def _unmeasured(entry: TrackedJob) -> str:
    if entry.is_step:
        return "Steps are not measured, but their allocation is."
    if entry.folder is None:
        return "The job was not submitted by jupyter_slurm, so it is not measured."
    if entry.kind not in _MEASURED:
        return "Scripts are not measured. Python cells, allocations and sessions are measured."
    if entry.is_array:
        return "The tasks of an array are not measured, because each would leave a file."
    return ""


def _read(data: Any) -> api.Usage:
    raw = [(*map(_number, point[:3]), *point[3:5]) for point in data["points"]]
    points: list[api.UsagePoint] = []
    for (before, cpu_before, *_), (time, cpu, memory, busy, gpu_memory) in pairwise(raw):
        if time > before:
            points.append(
                {
                    "time": time,
                    "cpus": max(0.0, (cpu - cpu_before) / (time - before)),
                    "memory": int(memory),
                    "gpu": None if busy is None else _number(busy),
                    "gpu_memory": None if gpu_memory is None else int(_number(gpu_memory)),
                }
            )
    given = {name: None if data[name] is None else int(_number(data[name])) for name in ("cpus", "memory")}
    node, gpus = str(data["node"])[:_MAX_NODE_NAME_CHARACTERS], int(_number(data["gpus"]))
    cpus, memory = given["cpus"], given["memory"]
    return {"node": node, "gpus": gpus, "cpus": cpus, "memory": memory, "points": points, "note": ""}


def _number(value: Any) -> float:
    """Return a number that is valid in JSON: the job can write anything, including NaN."""
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value} is not a number")
    return number


def _note(data: Any) -> str:
    said = []
    if data["source"] != "cgroup":
        said.append(
            "Only the processes of the job's runner are measured, because Slurm has made no control group for the job."
        )
    if not data["gpus"]:
        said.append("The job has no GPU that can be measured.")
    elif all(point[3] is None for point in data["points"]):
        said.append("Its GPUs are not measured: on its node, neither nvidia-smi nor rocm-smi nor xpu-smi answers.")
    return " ".join(said)
