"""Python environments on clusters: jobs and commands that make one (``runner/environment/build.py``), list, removal."""

from __future__ import annotations

import json
import posixpath
import re
import shlex
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, cast

from jupyter_slurm.domain.scripts.script import job_script
from jupyter_slurm.errors import CommandError, UsageError
from jupyter_slurm.services.environment_builds.environment_request import build_part, check_cuda
from jupyter_slurm.services.environments.created_environments import environment_folder
from jupyter_slurm.services.jobdir.job_written_files import parse_untrusted
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import decode_output, printable

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api
    from jupyter_slurm.services.clusters.cluster import Cluster
    from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
    from jupyter_slurm.services.submission.request import SubmissionRequest

__all__ = ["EnvironmentBuilds"]

_PYTHON: Final = "python3"  # of the login node, and of any node: it only starts the runner
_TIMEOUT_S: Final = 300.0  # seconds; a removal deletes many files
_MAX_NAMED_JOBS: Final = 5
_MAX_TIME_S: Final = 1e11  # within the years that have four digits
_DRIVER: Final = re.compile(r"[1-9][0-9]{2}(\.[0-9]{1,4}){1,2}")
_TEXTS: Final = ("tool", "python", "source", "job")
_NOTHING: Final[api.MakeEnvironmentResponse] = {"job": None, "environment": None, "preview": None, "command": None}


class EnvironmentBuilds:
    """Python environments that jobs make, of all clusters.

    Parameters
    ----------
    cluster : callable
        Returns a cluster by its name.
    """

    def __init__(self, cluster: Callable[[str], Cluster]) -> None:
        self._cluster = cluster

    async def submit_build(self, name: str, requested: api.EnvironmentWanted) -> api.MakeEnvironmentResponse:
        """Submit the job that makes an environment, once for each key, unless an equal environment exists.

        With ``where`` ``login``, return the command that makes it on the login node.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        cluster = self._cluster(name)
        location = cluster.location
        part = build_part(requested, environment_folder(location), location.environments)
        is_linked = not requested.get("dry_run") and not part.get("replace")
        action = {"action": "link", "name": part["name"], "hash": part["hash"]} if is_linked else {"action": "list"}
        present = await self._query_remote(cluster, **action)
        for one in present if is_linked else ():
            if (one["name"], one.get("hash")) == (part["name"], part["hash"]):
                return {**_NOTHING, "environment": _to_api(one)}
        if not requested.get("force"):
            check_cuda(part["files"], location.advice.get("cuda"), _drivers(present), location.id)
        if requested.get("where") == "login":
            return {**_NOTHING, "command": await self._write_command(cluster, requested, part)}
        job_folder = cluster.tracker.folder.job(requested["key"]).path
        argv = [_PYTHON, "-u", cluster.submitter.runner_path("environment/build.py"), job_folder]
        kept = ("key", "context", "origin", "dry_run")
        passed: dict[str, object] = {field: value for field, value in requested.items() if field in kept}
        script = {"kind": "script", "text": job_script(argv), "script_name": "env", "args": []}
        asked = {"python": None, "label": None, **passed, **script, "environment_build": part}
        asked["options"] = list(requested.get("options") or ())
        made = await cluster.submit(cast("SubmissionRequest", asked))
        if requested.get("dry_run"):
            return {**_NOTHING, "preview": cast("api.Preview", made)}
        return {**_NOTHING, "job": cast("api.Job", made)}

    async def _write_command(
        self, cluster: Cluster, requested: api.EnvironmentWanted, part: Mapping[str, object]
    ) -> str:
        """Write the request to the cluster, and return the command that makes the environment on the login node."""
        cluster.login_commands.check_allowed()
        folder = posixpath.join(environment_folder(cluster.location), ".made")
        request = posixpath.join(folder, f".request.{requested['key']}.json")
        if not requested.get("dry_run"):
            await cluster.submitter.prepare()
            await cluster.client.transport.make_dir(folder)
            await cluster.client.transport.write(request, json.dumps(part).encode())
        runner = cluster.submitter.runner_path("environment/build.py")
        return shlex.join([_PYTHON, "-u", runner, "--login", request])

    async def list_to_api(self, name: str) -> api.Environments:
        """Return the environments, by name, and their folder."""
        cluster = self._cluster(name)
        found = await self._query_remote(cluster, "list")
        return {"folder": environment_folder(cluster.location), "environments": [_to_api(one) for one in found]}

    async def remove(self, name: str, environment: str) -> api.RemoveEnvironmentResponse:
        """Remove an environment that no active job uses.

        Raises
        ------
        UsageError
            There is no such environment, or a job uses it.
        """
        cluster = self._cluster(name)
        active = [(str(entry.id or entry.key), entry.record) for entry in cluster.tracker.active()]
        users = [(folder, job) for job, record in active for folder in _folders(record)]
        answer = await self._ask(cluster, "remove", name=environment, used=sorted({folder for folder, _ in users}))
        used = answer.get("used")
        if jobs := [job for folder, job in users if isinstance(used, list) and folder in used]:
            raise UsageError(
                f"The environment {printable(environment)} is in use by {_listed(jobs)}.",
                hint="Wait for the end of the jobs, or cancel them.",
            )
        if not (removed := answer.get("removed")) or not isinstance(removed, list):
            raise UsageError(
                f"There is no environment {printable(environment)} that a job has made.",
                hint="List them with `%slurm env list`. Other environments are not removed.",
            )
        return {"removed": [printable(str(path)) for path in removed]}

    async def _query_remote(self, cluster: Cluster, action: str, **more: str) -> list[dict[str, Any]]:
        """Return the environments, after an action on the login node."""
        told = (await self._ask(cluster, action, **more)).get("environments")
        entries = [one for one in told if isinstance(one, dict)] if isinstance(told, list) else []
        return [one for one in entries if isinstance(one.get("name"), str) and isinstance(one.get("path"), str)]

    async def _ask(self, cluster: Cluster, action: str, **more: object) -> Mapping[str, Any]:
        await cluster.submitter.prepare()
        argv = [_PYTHON, cluster.submitter.runner_path("environment/store.py"), action]
        asked = {"folder": environment_folder(cluster.location), **more}
        done = await cluster.client.transport.run(argv, stdin=json.dumps(asked).encode(), timeout=_TIMEOUT_S)
        try:
            answer = await call_off_loop(parse_untrusted, done.stdout)
        except (ValueError, RecursionError):
            answer = None
        if done.exit_code or not isinstance(answer, dict):
            said = printable(decode_output(done.stderr)).strip().rpartition("\n")[2] or f"exit code {done.exit_code}"
            raise CommandError(
                f"The environments on {cluster.location.host} could not be listed: {said}.",
                hint=f"Check that python3 (3.8 or newer) is on the PATH of {cluster.location.host}.",
            )
        return answer


def _folders(record: JobRecordFile | None) -> list[str]:
    """Return the environment that a job uses, if any."""
    used = record.environment if record else None
    return [folder for folder in (used.venv, used.conda) if folder] if used else []


def _drivers(environments: list[dict[str, Any]]) -> dict[str, str]:
    """Return the drivers that jobs have found on their nodes, each with a job."""
    return {
        one["driver"]: one["job"]
        for one in environments
        if isinstance(one.get("driver"), str) and _DRIVER.fullmatch(one["driver"]) and isinstance(one.get("job"), str)
    }


def _listed(jobs: list[str]) -> str:
    more = f" and {len(jobs) - _MAX_NAMED_JOBS} more" if len(jobs) > _MAX_NAMED_JOBS else ""
    return f"{'jobs' if len(jobs) > 1 else 'job'} {', '.join(jobs[:_MAX_NAMED_JOBS])}{more}"


def _to_api(one: Mapping[str, Any]) -> api.MadeEnvironment:
    """Return an environment as the API shows it: what a cluster sends is checked field by field."""
    texts = {field: printable(one[field]) if isinstance(one.get(field), str) else None for field in _TEXTS}
    packages, made, failures = one.get("packages"), one.get("made"), one.get("failed_imports")
    failures = failures if isinstance(failures, str) else ""
    return {
        "name": printable(one["name"]),
        "path": printable(one["path"]),
        "tool": texts["tool"],
        "python": texts["python"],
        "source": texts["source"],
        "job": texts["job"],
        "made": float(made) if isinstance(made, int | float) and 0 <= made < _MAX_TIME_S else None,
        "packages": packages if isinstance(packages, int) else None,
        "cuda": one["cuda"] if isinstance(one.get("cuda"), int) else None,
        "failed_imports": [printable(line) for line in failures.split("\n") if line],
    }
