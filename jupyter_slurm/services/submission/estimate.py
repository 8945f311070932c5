"""Estimated start and nodes of a job from ``sbatch --test-only``; nothing is submitted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from jupyter_slurm.domain.queries.start_estimate import parse_start_estimate
from jupyter_slurm.services.inventory.facts import FeasibilityWarnings
from jupyter_slurm.services.slurm.client import SlurmClient, decode_output, printable, unanswered
from jupyter_slurm.services.submission import sbatch_execution
from jupyter_slurm.services.submission.sbatch_execution import SbatchAnswer
from jupyter_slurm.services.submission.sbatch_plan import Plan
from jupyter_slurm.transport.base import Context

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["estimate"]

_QUEUE_TIMEOUT_S = 0.5  # seconds to wait in the queue of requests: each request uses up a job ID


async def estimate(
    client: SlurmClient, plan: Plan, context: Context, timeout: float, known: FeasibilityWarnings
) -> api.Estimate:
    """Ask Slurm for an estimate.

    Parameters
    ----------
    client : SlurmClient
        Client of the cluster.
    plan : Plan
        The planned submission.
    context : Context
        Context in which sbatch runs.
    timeout : float
        Seconds.
    known : FeasibilityWarnings
        Known reasons against the job.

    Returns
    -------
    dict
        The API's ``Estimate``.

    Raises
    ------
    SubmitRefused
        sbatch would refuse the job.
    ControllerError
        Slurm does not answer.
    Throttled
        The requests are too frequent.
    """
    await client.people.acquire(max_wait=_QUEUE_TIMEOUT_S)
    script = plan.argv.index(plan.folder.file(plan.record.script))
    argv = ["sbatch", "--test-only", *plan.argv[2:script]]
    env: Mapping[str, str] = {**(context.env or {}), "SLURM_TIME_FORMAT": "%s"}
    asking = replace(context, env=env)
    done = await client.transport.run(argv, stdin=plan.script, context=asking, timeout=timeout)
    if done.exit_code:
        if (error := unanswered(argv, done)) is not None:
            raise error
        stderr = done.stderr.replace(b"allocation failure: ", b"")
        answer = SbatchAnswer(done.exit_code, done.stdout, stderr, None, argv)
        raise sbatch_execution.refusal(answer, argv, known, context.env)
    said = printable(decode_output(done.stdout + done.stderr))
    found = parse_start_estimate(said)
    return {
        "start": found.start,
        "cpus": found.cpus,
        "nodes": found.nodes,
        "partition": found.partition,
        "said": "\n".join(line.removeprefix("sbatch: ") for line in said.splitlines() if line.strip()),
    }
