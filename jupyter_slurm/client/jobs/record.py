"""What is recorded of a job, and how it is submitted again."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from jupyter_slurm.client.render.terminal import printable

if TYPE_CHECKING:
    from jupyter_slurm.client.clusters.cluster import Cluster
    from jupyter_slurm.client.jobs.job import Job

__all__ = ["Record", "RecordMixin"]


class Record(dict[str, Any]):
    """What is recorded of a job, by name: options, environment, versions, commit …, shown as a list of lines."""

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
    """A job that knows what was submitted, and can submit it again."""

    _cluster: Cluster
    _task: int | None

    def _path(self, *parts: str) -> str:
        raise NotImplementedError

    @property
    def record(self) -> Record:
        """What was submitted: options, arguments, environment, versions, folder, commit of the notebook's folder.

        The text is in ``script`` and ``source``. It is there as long as the job's folder is.

        Raises
        ------
        UsageError
            The job was not submitted here.
        """
        return Record(self._cluster.client.get(self._path("record")))

    def resubmit(self, **options: Any) -> Job:
        """Submit the same again: text, options, arguments, environment, the values of ``in=``, from the same folder.

        The environment variables are those of now. A task of an array is submitted as an array of that one task.

        Parameters
        ----------
        **options
            Options of sbatch to change: ``time="4:00:00"``, ``mem_per_gpu="40G"``, ``p="long"``; True for one without
            a value, None to leave one out.

        Raises
        ------
        UsageError, SubmitRefused
            Nothing was submitted.
        """
        from jupyter_slurm.client.submission.submit import submit

        if self._task is not None:
            options.setdefault("array", self._task)
        return submit(self._cluster, _same(self._cluster, self._path, self.record, options))


def _same(cluster: Cluster, path: Any, record: Record, changes: Mapping[str, Any]) -> Any:
    """Return the submission of a record, with changes."""
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.submission.submit import RepeatedSubmission, Submission
    from jupyter_slurm.domain.scripts.resubmission import changed, check_repeatable, has_source

    check_repeatable(record)
    if not {"d", "dependency"} & changes.keys():
        changes = {**_dependency(cluster, record["options"]), **changes}
    is_python = record["kind"] == "python"
    raw, _ = cluster.client.get_bytes(path("source" if has_source(record) else "script"))
    text = raw.decode("utf-8", "surrogateescape")
    return Submission(
        record["kind"],
        text,
        changed(option_table(cluster, "sbatch"), record["options"], text, changes) if changes else record["options"],
        record["args"],
        python=record.get("python"),
        env=record.get("env"),
        default_python=record.get("default_python"),
        filename=record.get("filename"),
        script_name=None if is_python else record["script"],
        values=RepeatedSubmission(record["values"]) if record.get("values") else None,
        resume=record.get("resume"),
        launcher=record.get("launcher"),
        stage=record.get("stage"),
        again=record["key"],
        cwd=record.get("cwd"),
    )


def _dependency(cluster: Cluster, options: Sequence[str]) -> dict[str, str | None]:
    """Return what is to be changed of a dependency, since some of what it names is over by now."""
    if not any(option.startswith(("-d", "--d")) for option in options):
        return {}
    from jupyter_slurm.client.clusters.option_tables import option_table
    from jupyter_slurm.client.submission.dependencies import checked
    from jupyter_slurm.domain.scripts.resubmission import dependency_of

    value = dependency_of(option_table(cluster, "sbatch"), options)
    if value is None or (now := checked(cluster, value)) == value:
        return {}
    return {"dependency": now}
