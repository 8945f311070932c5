"""Checks of a submission before sbatch: Python, working directory, Jupyter. They warn, or refuse the request."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Mapping
from typing import TYPE_CHECKING

from jupyter_slurm.errors import SlurmError, UsageError
from jupyter_slurm.services.environments.jupyter_check import jupyter_warnings
from jupyter_slurm.services.environments.path_visibility import visibility_warning
from jupyter_slurm.services.environments.session_folders import folder_paths, missing_folders
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable
from jupyter_slurm.services.slurm.location import ClusterLocation
from jupyter_slurm.services.submission.sbatch_plan import Plan, PlanRequest

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["Preflight"]

_FOLDER_TIMEOUT_S = 5.0
_JUPYTER_TIMEOUT_S = 10.0
_CREATES_FOLDERS = (24, 11)  # this version creates the folders of the output; 22.05 does not
_LACKING = 3  # runner/session/serve.py's exit code for no Jupyter


class Preflight:
    """Check a submission before sbatch.

    Parameters
    ----------
    where : ClusterLocation
        Location of the cluster.
    client : SlurmClient
        Client of the cluster.
    entries : mapping
        Known jobs, by key.
    """

    def __init__(self, where: ClusterLocation, client: SlurmClient, entries: Mapping[str, TrackedJob]) -> None:
        self._where, self._client, self._entries, self._transport = where, client, entries, client.transport
        self._hosts: list[str] | None = None

    async def warnings(self, request: PlanRequest, plan: Plan) -> list[str]:
        """Return warnings about a submission, which do not prevent it."""
        asked, record = request.asked, plan.record
        named = asked.get("python") if asked["kind"] in ("allocation", "session") else None
        if record.cell is not None:
            named = record.cell.python
        warnings = [*asked.get("warnings", ()), *await self._doubts(None if _is_contained(plan) else named)]
        warnings += self._doubt_about_cuda(request)
        return [*warnings, *await self._doubt_about_folder(plan), *await self._doubt_about_outputs(plan)]

    async def check_cluster(self, plan: Plan) -> None:
        """Refuse a job for another cluster: only jobs of this one are followed, by their numbers here.

        Raises
        ------
        UsageError
            ``--clusters``, or the variable of that name, names another cluster.
        """
        own = (await self._client.cached_configuration()).get("ClusterName", "").lower()
        for request in plan.requests if own else ():
            for name in request.clusters:
                if name != own:
                    option = "clusters" if request.chosen.get("clusters") else "cluster"
                    raise UsageError(
                        f"{request.written(option)}: only jobs of cluster {own} can be followed.",
                        hint="Leave it out, or use a site profile of that cluster: `%slurm use NAME`.",
                    )

    async def folder_problems(self, request: PlanRequest, plan: Plan) -> list[api.OptionProblem]:
        """Return the problems of the folders of a session that the login node does not have.

        They prevent no submission: a folder may exist on the nodes only, or be made later.
        """
        record, home = plan.record, self._where.home
        if record.session is None or _is_contained(plan) or record.stage is not None:
            return []
        folders = request.asked.get("folders", {})
        paths = folder_paths(home, record.work_dir or home, record.session.dir or "", folders)
        return [one.to_api(self._where.host) for one in await missing_folders(self._transport, self._where, paths)]

    async def jupyter(self, request: PlanRequest, plan: Plan) -> list[str]:
        """Refuse a session whose Python has no Jupyter; only warn if that is uncertain."""
        session = plan.record.session
        if session is None or session.command is not None or session.jupyter is not None:
            return []
        if _is_contained(plan):
            return await jupyter_warnings(self._transport, self._entries.values(), plan.record)
        return await self._check_jupyter(request)

    async def _check_jupyter(self, request: PlanRequest) -> list[str]:
        """Refuse a session whose Python has no Jupyter; only warn if the node may find another Python."""
        prepared = request.prepared
        python, wrapper = (prepared.python, prepared.wrapper()) if prepared else (request.asked.get("python"), ())
        argv = [*wrapper, python or "python3", request.runner, "--check"]
        try:
            checked = await self._transport.run(argv, context=request.context, timeout=_JUPYTER_TIMEOUT_S)
            why, hint = json.loads(checked.stdout) if checked.exit_code == _LACKING else ("", "")
        except (SlurmError, ValueError, TypeError, RecursionError):
            return []  # the node may have software that this machine lacks
        if why and not posixpath.isabs(python or ""):
            return [f"{self._where.host}: {why} {hint}"]
        if why:
            raise UsageError(str(why), hint=str(hint))
        return []

    def _doubt_about_cuda(self, request: PlanRequest) -> list[str]:
        """Warn if the packages of the environment are built for a newer CUDA than the profile allows."""
        environment = request.prepared.environment if request.prepared else None
        limit = self._where.advice.get("cuda")
        if environment is None or limit is None or environment.cuda <= int(limit.partition(".")[0]):
            return []
        return [
            f"The packages of {printable(environment.name)} are built for CUDA {environment.cuda}, but the drivers of "
            f"{self._where.id} run CUDA {limit} at most."
        ]

    async def _doubts(self, python: str | None) -> list[str]:
        """Return warnings about a Python on the nodes, which do not prevent a submission."""
        if not python or not posixpath.isabs(python):  # the node's PATH decides
            return []
        try:
            if self._hosts is None:
                self._hosts = [node.hostname or node.name for node in await self._client.nodes()]
            mounts = decode_output(await self._transport.read("/proc/self/mounts"))
            here = self._where.host
            if self._where.is_remote:  # one name may stand for several login nodes, with a different one each day
                here = decode_output(await self._transport.read("/proc/sys/kernel/hostname")).strip()
        except (SlurmError, FileNotFoundError):
            return []
        doubt = visibility_warning(python, self._hosts, here, mounts)
        return [doubt] if doubt else []

    async def _doubt_about_folder(self, plan: Plan) -> list[str]:
        """Warn if the folder of --chdir does not exist: Slurm silently runs the job elsewhere."""
        path = plan.record.work_dir if plan.record.stage is None else None
        home = self._where.home
        if path and self._where.storage.get("home_on_nodes") is False and f"{path}/".startswith(f"{home}/"):
            return [
                (
                    f"The nodes do not see {printable(path)}, like all of {home}. Copy a folder to the "
                    "cluster with stage=DIR."
                )
            ]
        path = path if "chdir" in plan.chosen else None
        if not path or not posixpath.isabs(path):
            return []
        if not await self._lacks(path):
            return []
        return [
            (
                f"The directory {printable(path)} does not exist where sbatch runs. On a node without it, "
                "the job runs in /tmp."
            )
        ]

    async def _doubt_about_outputs(self, plan: Plan) -> list[str]:
        """Warn if the folder of --output or --error does not exist: without it, the job fails before Slurm 24.11."""
        if (await self._client.version() or (0, 0)) >= _CREATES_FOLDERS:
            return []
        record, found = plan.record, list[str]()
        for option, path in (("output", record.outputs.stdout), ("error", record.outputs.stderr)):
            folder = posixpath.join(record.work_dir or "", posixpath.dirname(path or ""))
            is_known = posixpath.isabs(folder) and "/" in (path or "") and not {"%", "\\"} & set(folder)
            is_named = option in plan.chosen and record.stage is None
            if is_named and is_known and await self._lacks(folder):
                found.append(
                    f"The directory {printable(folder)} of --{option} does not exist where sbatch runs. On a node "
                    "without it, the job fails before it starts."
                )
        return found

    async def _lacks(self, folder: str) -> bool:
        """Return whether a folder does not exist where sbatch runs; False if that is not known."""
        try:
            return (await self._transport.run(["test", "-d", folder], timeout=_FOLDER_TIMEOUT_S)).exit_code == 1
        except SlurmError:
            return False


def _is_contained(plan: Plan) -> bool:
    """Return whether a job runs in an image, in which folders of the node have no meaning."""
    return bool(plan.record.environment and plan.record.environment.image)
