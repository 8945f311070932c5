"""Dependencies in ``after=train,runs[3]``: jobs that a new job waits for, by variable name or by id."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from jupyter_slurm.client.clusters.cluster import Cluster
from jupyter_slurm.client.jobs.array import ArrayJob, handle
from jupyter_slurm.client.jobs.job import Job
from jupyter_slurm.domain.options.option_parser import OptionTable
from jupyter_slurm.domain.scripts.pbs_and_lsf_headers import other_options
from jupyter_slurm.domain.scripts.resubmission import JobEnd, is_met
from jupyter_slurm.domain.scripts.script import header_options
from jupyter_slurm.domain.states import JobState
from jupyter_slurm.errors import UsageError
from jupyter_slurm.runner.variables.definitions import suggest_name

__all__ = ["KINDS", "dependency_options"]

KINDS: Final = {"after": "afterok", "afterany": "afterany", "afternotok": "afternotok", "aftercorr": "aftercorr"}
"""The keywords, and the names of their conditions in sbatch(1)."""

_ID = re.compile(r"\d{1,10}(?:_\d{1,10})?")
_ITEM = re.compile(rf"(?P<name>[^\W\d]\w*)(?:\[(?P<task>\d{{1,10}})\])?|(?P<id>{_ID.pattern})")


def dependency_options(
    keywords: Mapping[str, str | None],
    namespace: Mapping[str, object],
    cluster: Cluster,
    table: OptionTable,
    options: Sequence[str],
    text: str,
) -> list[str]:
    """Return the option of sbatch for the keywords; None if no dependency remains.

    Raises
    ------
    UsageError
        A name is not a job, or a condition can never be met.
    """
    asked = {word: keywords[word] or "" for word in KINDS if word in keywords}
    said = [option.name for words in (options, header_options(text)) for option in table.split(words).options]
    if "dependency" in (*said, *other_options(text)):
        word = next(iter(asked))
        raise UsageError(
            f"{word}= and --dependency cannot be combined.", hint="Write all conditions into --dependency, or none."
        )
    conditions = []
    for word, named in asked.items():
        jobs = [job for item in named.split(",") for job in _jobs(word, item.strip(), namespace, cluster)]
        left = list(dict.fromkeys(number for job in jobs if not _is_met(word, job) for number in _numbers(word, job)))
        conditions += [":".join([KINDS[word], *left])] if left else []
    return [f"--dependency={','.join(conditions)}"] if conditions else []


def _jobs(text: str, item: str, namespace: Mapping[str, object], cluster: Cluster) -> Iterator[Job]:
    match = _ITEM.fullmatch(item)
    if match is None:
        raise UsageError(f"{text}=: {item!r} is neither a variable nor a job ID.", hint=_hint(text))
    if match["id"]:
        yield _find_dependency(cluster, match["id"])
        return
    name = match["name"]
    if name not in namespace:
        raise UsageError(f"{text}=: There is no variable {name}.{suggest_name(name, namespace)}", hint=_hint(text))
    value = namespace[name]
    if match["task"] is not None:
        if not isinstance(value, ArrayJob | list | tuple):
            raise UsageError(f"{text}=: {name} has no tasks.", hint=_hint(text))
        whole: Sequence[object] | ArrayJob = value
        try:
            value = whole[int(match["task"])]
        except IndexError:
            raise UsageError(
                f"{text}=: {item} does not exist: {name} has {len(whole)} entries.", hint=_hint(text)
            ) from None
    for one in value if isinstance(value, list | tuple) else [value]:
        yield _find_job(text, item, one, cluster)


def _find_job(text: str, item: str, value: Any, cluster: Cluster) -> Job:
    if isinstance(value, int | str) and not isinstance(value, bool) and _ID.fullmatch(str(value)):
        return _find_dependency(cluster, str(value))
    if not isinstance(value, Job):
        raise UsageError(f"{text}=: {item} is a {type(value).__name__}, not a job.", hint=_hint(text))
    if value._data.get("allocation"):
        raise UsageError(
            f"{text}=: {item} is a step, and Slurm waits only for whole jobs.",
            hint="Wait in this notebook with step.wait(), or name the job: step.allocation.",
        )
    if value.cluster != cluster.name:
        raise UsageError(
            f"{text}=: {item} is a job of another cluster, {value.cluster}.", hint="Name a job of this cluster."
        )
    if value.id is None:
        raise UsageError(
            f"{text}=: {item} has no job ID yet: sbatch has not answered.", hint="Use job.refresh() to ask again."
        )
    return value


def _find_dependency(cluster: Cluster, number: str) -> Job:
    return handle(cluster, cluster.client.get(cluster.path("jobs", number)))


def _is_met(text: str, job: Job) -> bool:
    """Return whether a condition is already met.

    Raises
    ------
    UsageError
        The condition can never be met.
    """
    hint = "Use afterany= to wait for any end state, or afternotok= for a failure."
    return is_met(text, KINDS[text], _ending(job), hint)


def _ending(job: Job) -> JobEnd:
    return JobEnd(job.title, job.state if job.is_finished else None)


def _numbers(text: str, job: Job) -> list[str]:
    """Return the Slurm ids of a condition: for an array in parts, those for which it is not met yet.

    Raises
    ------
    UsageError
        The condition cannot apply to several arrays.
    """
    parts = [part for part in job._data.get("parts") or () if part["id"]]
    if len(parts) < 2:
        return [str(job)]
    if text in ("afternotok", "aftercorr"):
        raise UsageError(
            f"{text}=: {job.title} is {len(parts)} arrays for Slurm, and {text}= supports only one.",
            hint="Use after= or afterany= to wait for all of them, or name one task: NAME[3].",
        )
    over = [part for part in parts if JobState(part["state"]).is_finished]
    if text == "after" and any(part["state"] != "COMPLETED" for part in over):
        raise UsageError(
            f"{text}=: tasks of {job.title} have failed, so this job would never start.",
            hint="Use afterany= to wait for any end state.",
        )
    return [str(part["id"]) for part in parts if part not in over]


def _hint(text: str) -> str:
    return (
        f"Use for example {text}=train,runs[3],1234. after= waits until they have succeeded, afterany= until they have "
        "finished, afternotok= until they have failed, aftercorr= task by task."
    )
