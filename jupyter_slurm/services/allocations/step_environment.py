"""Environment of a step or a kernel: the one that its line names, else the one of its allocation."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jupyter_slurm.domain.scripts.environments import NO_ENVIRONMENT, Environment
from jupyter_slurm.services.environments.resolver import Environments, PreparedEnvironment
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import SlurmClient

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["StepEnvironments"]


class StepEnvironments:
    """Environments of the steps of one cluster.

    Parameters
    ----------
    client : SlurmClient
        Knows the context of a request.
    environments : Environments
        Finds environments.
    """

    def __init__(self, client: SlurmClient, environments: Environments) -> None:
        self._client, self._environments = client, environments

    async def find(self, requested: api.Step, allocation: TrackedJob) -> PreparedEnvironment | None:
        """Return the environment of a step or a kernel; None: it has none, or is a cell in a process.

        Raises
        ------
        UsageError
            The environment does not exist.
        """
        if requested.get("process") or requested.get("env") == NO_ENVIRONMENT:
            return None
        context = self._client.submission_context(requested.get("context") or {})
        if requested.get("env"):
            return await self._environments.prepare_step(requested, context)
        held = allocation.record.environment if allocation.record else None
        if held is None:
            return None
        told = held.to_json()
        environment = Environment.described(told.pop("name"), told)
        return await self._environments.prepare_step(requested, context, environment)
