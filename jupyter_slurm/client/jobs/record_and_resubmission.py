"""Record of a job, and its resubmission."""

from __future__ import annotations

import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.client.render.job_card import is_finished, title
from jupyter_slurm.client.render.terminal import printable
from jupyter_slurm.errors import JobNotFound, UsageError

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.domain import api_types as api

__all__ = ["Record", "RecordMixin", "repeat"]


class Record(dict[str, Any]):
    """Facts of a submission by name: options, environment, versions, commit …, shown as a list of lines."""

    def __repr__(self) -> str:
        lines = [(name, _as_text(name, value)) for name, value in self.items() if value not in (None, [], {})]
        width = max(len(name) for name, _ in lines)
        return "\n".join(f"{name.replace('_', ' '):<{width}}  {printable(text)}" for name, text in lines)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(repr(self))


def _as_text(name: str, value: Any) -> str:
    if name in ("argv", "options", "args"):
        return shlex.join(value)
    if name == "created":
        return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(value))
    if name == "git":
        branch = f" ({value['branch']})" if value.get("branch") else ""
        return f"{value['commit']}{branch}{', with changes that are not committed' if value.get('dirty') else ''}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_as_text('', item)}" for key, item in value.items() if item not in (None, [], {}))
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)


class RecordMixin:
    """Access of a job to its submission."""

    _cluster: Cluster

    def _path(self, *parts: str) -> str:
        raise NotImplementedError

    @property
    def record(self) -> Record:
        """Return the submission: options, arguments, environment, versions, directory, commit of the notebook's folder.

        The text is in ``script`` and ``source``. The record exists as long as the job directory.

        Raises
        ------
        UsageError
            jupyter_slurm did not submit the job.
        """
        return Record(self._cluster.client.get(self._path("record")))


def repeat(cluster: Cluster, path: Callable[[str], str], record: Record, changes: Mapping[str, object]) -> Any:
    """Submit a job again, once, print warnings, and return the API object of the new job.

    Parameters
    ----------
    cluster : Cluster
        Cluster of the job.
    path : callable
        Function that returns the API path of a part of the job.
    record : Record
        Record of the submission.
    changes : mapping
        Options of sbatch to change.
    """
    # This import is heavy: a handle that is only read does not need it.
    from jupyter_slurm.client.clusters.cluster import context
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.jobs.request import check_lengths, new_key, origin, report_warnings, request_job
    from jupyter_slurm.domain.scripts.resubmission import changed, check_repeatable, has_source, repeated

    check_repeatable(record)
    options = record["options"]
    if not {"d", "dependency"} & changes.keys():
        changes = {**_changed_dependency(cluster, options), **changes}
    raw, _ = cluster.client.get_bytes(path("source" if has_source(record) else "script"))
    text = raw.decode("utf-8", "surrogateescape")
    if changes:
        options = changed(option_table(cluster, "sbatch"), options, text, changes)
    around = context(cluster)
    check_lengths((*options, *record["args"]), around.get("env") or {})
    if record.get("cwd") is not None:
        around["cwd"] = record["cwd"]
    same = {name: value for name, value in repeated(record, text, options).items() if value is not None}
    data = request_job(
        cluster, cast("api.Submission", {"key": new_key(), "context": around, "origin": origin(), **same})
    )
    report_warnings(data)
    return data


def _changed_dependency(cluster: Cluster, options: Sequence[str]) -> dict[str, str | None]:
    """Return the change of a dependency of which some jobs are finished by now."""
    if not any(option.startswith(("-d", "--d")) for option in options):
        return {}
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.domain.scripts.resubmission import (
        OMIT_DEPENDENCY_HINT,
        JobEnd,
        awaited,
        dependency_value,
        remaining_dependency,
    )

    value = dependency_value(option_table(cluster, "sbatch"), options)
    if value is None:
        return {}
    endings = dict[str, JobEnd]()
    for number in awaited(value):
        try:
            job = cluster.client.get(cluster.path("jobs", number))
        except JobNotFound as error:
            raise UsageError(f"--dependency={value}: {error.message}", hint=OMIT_DEPENDENCY_HINT) from None
        endings[number] = JobEnd(title(job), job["state"] if is_finished(job) else None)
    now = remaining_dependency(value, endings)
    return {} if now == value else {"dependency": now}
