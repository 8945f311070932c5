"""Notebook kernels on nodes: the plan of a step that runs a kernel, and the address of the kernel.

``runner/kernel/keeper.py`` runs in the step and keeps the kernel. The secret shared by the keeper and its clients is
only in ``kernel.json`` of the job directory: in no command line, environment or record.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import posixpath
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.services.allocations.step_plan import KernelStepFile
from jupyter_slurm.services.environments.resolver import PreparedEnvironment
from jupyter_slurm.services.jobdir.job_json_model import EnvironmentRecord, KernelRecord
from jupyter_slurm.services.jobdir.job_written_files import read_untrusted
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.jobs.notebook_process import to_kernel_record
from jupyter_slurm.services.jobs.tracker import Tracker
from jupyter_slurm.services.slurm.client import SlurmClient

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Kernels", "PlannedKernel"]

_MAX_NOTE_BYTES = 65_536  # bytes of a file written by a keeper
_MIN_CHECK_INTERVAL_S, _MAX_CHECK_INTERVAL_S = 0.1, 1.0  # seconds between two checks whether the keeper listens
_UNUSED_EVENTS = ("idle_over", "lease_over")  # of a keeper that ended its kernel because nobody used it
_NODE_PYTHON = "python3"  # runs the keeper if the kernel's own Python is in a container


@dataclass(frozen=True)
class PlannedKernel:
    """Additions that make a step a kernel: to ``step.json``, to the record, and as files."""

    step: KernelStepFile
    kernel: KernelRecord
    environment: EnvironmentRecord | None
    files: Mapping[str, bytes]


class Kernels:
    """Kernels of one cluster.

    Parameters
    ----------
    client, tracker
        Services of the cluster.
    home : str
        User's home directory on the cluster.
    """

    def __init__(self, client: SlurmClient, tracker: Tracker, home: str) -> None:
        self._client, self._tracker, self._home = client, tracker, home

    def plan(self, requested: api.Step, prepared: PreparedEnvironment | None) -> PlannedKernel:
        """Plan a step that runs the requested kernel, in an environment if there is one.

        Raises
        ------
        UsageError
            The request cannot become a kernel.
        """
        kernel = requested.get("kernel")
        if not kernel:
            raise UsageError(
                "The request for a kernel has no kernel ID or no secret.",
                hint="Update jupyter_slurm on this computer, then start the kernel again.",
            )
        context = self._client.submission_context(requested.get("context") or {})
        environment = prepared.environment if prepared else None
        own = requested.get("python") or requested.get("default_python")
        python = (prepared.python if prepared else own) or _NODE_PYTHON
        described = environment.as_dict() if environment else None
        image = {**described, "python": python} if described and "image" in described else None
        folder = kernel.get("dir") or (environment.work_dir if environment else None)
        cwd = self._absolute(folder, context.cwd) if folder else None
        started = {"name": kernel.get("kernel") or "python3"} if not kernel.get("argv") else {"argv": kernel["argv"]}
        known = {**started, **{name: kernel[name] for name in ("secret", "idle", "lease")}}
        known["transport"] = kernel.get("transport")
        step: KernelStepFile = {
            "python": _NODE_PYTHON if image else python,
            "wrapper": list(prepared.wrapper()) if prepared else [],
            "variables": dict(environment.variables) if environment else {},
        }
        if cwd:
            step["cwd"] = cwd
        recorded = EnvironmentRecord.from_json(image or described) if described else None
        files = {"kernel.json": json.dumps({**known, "image": image, "cwd": cwd}).encode()}
        return PlannedKernel(step, to_kernel_record(kernel), recorded, files)

    async def connection_to_api(self, entry: TrackedJob, wait: float) -> api.KernelPlace:
        """Return the address of a kernel as soon as the address is known.

        Parameters
        ----------
        entry : TrackedJob
            Step of the kernel.
        wait : float
            Seconds to wait at most.

        Raises
        ------
        UsageError
            The step is not a kernel.
        """
        if entry.kind != "kernel" or entry.folder is None:
            raise UsageError(
                f"Job {entry.key or entry.id} is not a remote kernel.",
                hint="`jupyter slurm kernel list` shows the remote kernels.",
            )
        until, pause = asyncio.get_running_loop().time() + wait, _MIN_CHECK_INTERVAL_S
        while True:
            told = await self._read_place(entry)
            if told["port"] or entry.is_finished or asyncio.get_running_loop().time() >= until:
                return {**told, "state": entry.state.name, "finished": entry.is_finished}
            await asyncio.sleep(pause)
            pause = min(_MAX_CHECK_INTERVAL_S, 1.2 * pause)

    async def _read_place(self, entry: TrackedJob) -> api.KernelPlace:
        """Return the files written by the keeper and the starter of its kernel; nothing before both can have begun."""
        found: api.KernelPlace = {
            "state": entry.state.name,
            "finished": entry.is_finished,
            "node": None,
            "port": None,
            "stage": None,
        }
        if entry.is_finished:
            found["unused"] = await self._read_unused_event(entry)
            return found
        allocation = self._tracker.find(entry.allocation or "")
        if entry.state.is_pending and not (allocation and allocation.state.is_running):
            return found
        assert entry.folder is not None
        transport = self._client.transport
        with contextlib.suppress(FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            told = await read_untrusted(transport, entry.folder.file("keeper.json"), _MAX_NOTE_BYTES)
            port = int(told["port"])
            if 0 < port < 65_536:
                found["node"], found["port"] = str(told["node"]), port
        with contextlib.suppress(FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            if entry.record and entry.record.environment and entry.record.environment.image:
                found["stage"] = str(
                    (await read_untrusted(transport, entry.folder.file("served.json"), _MAX_NOTE_BYTES))["stage"]
                )
        return found

    async def _read_unused_event(self, entry: TrackedJob) -> str | None:
        """Return why the keeper of a finished kernel has ended it: a proxy without connection misses the note."""
        assert entry.folder is not None
        with contextlib.suppress(FileNotFoundError, TransportError, ValueError, KeyError, TypeError):
            told = await read_untrusted(self._client.transport, entry.folder.file("keeper.json"), _MAX_NOTE_BYTES)
            event = told["over"]["event"]
            return str(event) if event in _UNUSED_EVENTS else None
        return None

    def _absolute(self, path: str, cwd: str | None) -> str:
        if path == "~" or path.startswith("~/"):
            path = self._home + path[1:]
        return posixpath.normpath(posixpath.join(cwd or self._home, path))
