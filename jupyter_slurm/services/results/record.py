"""What is recorded of a job: all that it takes to know it again, and to submit it again."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.runner.cell.sweep import FILE
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json import JobRecordFile
from jupyter_slurm.services.jobdir.ownership import is_owned, ownership_error
from jupyter_slurm.services.jobdir.untrusted import read_untrusted, read_whole
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["read_job_values", "recorded", "sweep_table"]

_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_OWNERSHIP_HINT = "Whoever owns the folder can give it back (chown, chmod go-w); else run the cell again."
_RECORD_KEYS = (
    "key",
    "kind",
    "created",
    "label",
    "name",
    "argv",
    "work_dir",
    "values",
    "git",
    "notebook",
    "sweep",
    "part",
    "script",
    "resume",
    "launcher",
    "image",
    "resubmitted_from",
)
_REQUESTED = ("options", "args", "default_python", "env", "stage", "cwd")


async def recorded(transport: Transport, entry: TrackedJob, reference: str) -> api.Record:
    """Return what is recorded of a job as the API tells it.

    Raises
    ------
    UsageError
        It was not submitted here, or somebody else can have changed what is recorded.
    """
    record = entry.record
    if record is None or entry.folder is None:
        raise UsageError(
            f"job {printable(reference)} was submitted in another way: nothing is recorded of it",
            hint="`job.script` is its script, `%sbatch` submits one again.",
        )
    if why := await ownership_error(transport, entry.folder.path):
        raise UsageError(f"what is recorded of job {printable(reference)} is not believed: {why}", hint=_OWNERSHIP_HINT)
    request, slurm, used = record.request, record.slurm_version, await _used(transport, entry)
    document = record.to_json()
    told = {
        **{name: document.get(name) for name in _RECORD_KEYS},
        **{name: getattr(request, name, None) for name in _REQUESTED},
        "key": entry.part.of if entry.part else record.key,  # what its parts share is with the first
        "environment": _without_secrets(document.get("environment")),
        "id": str(entry.id) if entry.id else None,
        "python": _python(record),
        "filename": record.cell.filename if record.cell else None,
        "versions": {
            "jupyter_slurm": record.writer,
            "slurm": "{}.{:02d}".format(*slurm[:2]) if slurm and len(slurm) > 1 else None,
            "python": used.get("python"),
            "ipython": used.get("ipython"),
        },
        "used": used or None,
        "watched": True if record.run is not None else None,
    }
    return cast("api.Record", told)


def _python(record: JobRecordFile) -> str | None:
    """Return the Python that was asked for; of a step, of which no request is recorded, the one that it has."""
    if record.request is not None and "python" in record.request.given:
        return record.request.python
    return record.cell.python if record.cell else None


def _without_secrets(environment: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an environment as a notebook may keep it: what its name calls a secret has no value."""
    if environment is None or "variables" not in environment:
        return environment
    told = {name: "(hidden)" if _SECRET.search(name) else value for name, value in environment["variables"].items()}
    return {**environment, "variables": told}


async def _used(transport: Transport, entry: TrackedJob) -> dict[str, Any]:
    """Return what the runner found when the cell began; nothing where it did not."""
    if entry.folder is None or entry.kind != "python" or not await is_owned(transport, entry.folder.path):
        return {}
    try:
        used = await read_untrusted(transport, entry.folder.file("used.json"), 1_000_000)
    except (FileNotFoundError, TransportError, ValueError, RecursionError):
        return {}
    return used if isinstance(used, dict) else {}


async def read_job_values(transport: Transport, folder: JobFolder, limit: int) -> bytes:
    """Return the values that travelled with a job, to travel again: at most so many bytes.

    Raises
    ------
    UsageError
        They are gone, or more than that, or somebody else can write to their folder.
    """
    if await is_owned(transport, folder.path):
        try:
            return await read_whole(transport, folder.file("in.values"), limit)
        except FileNotFoundError:
            pass
    raise UsageError(
        f"the values that travelled with {folder.key} are gone", hint="Run its cell again, with in= and the variables."
    )


async def sweep_table(transport: Transport, folder: JobFolder) -> api.Sweep | None:
    """Return the table of parameters of a job, as a submission has it; None where it has none."""
    try:
        told = json.loads(await read_whole(transport, folder.file(FILE)))
        return {"names": told["names"], "rows": told["rows"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"the parameters of {folder.key} cannot be read: {error}", hint="Run its cell again."
        ) from None
