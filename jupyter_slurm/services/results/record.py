"""Record of a job: all data to identify it and to submit it again."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

from jupyter_slurm.errors import TransportError, UsageError
from jupyter_slurm.runner.cell.sweep_parameters import FILE
from jupyter_slurm.services.jobdir.job_directory import JobFolder
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobdir.job_written_files import read_untrusted, read_whole
from jupyter_slurm.services.jobdir.ownership import is_owned, ownership_error
from jupyter_slurm.services.jobdir.untrusted_json import parse_json
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.large_answers import call_off_loop
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport

if TYPE_CHECKING:
    from jupyter_slurm.domain import api_types as api

__all__ = ["read_job_values", "recorded", "sweep_table"]

_SECRET = re.compile("TOKEN|KEY|SECRET|PASS|CREDENTIAL", re.IGNORECASE)
_OWNERSHIP_HINT = "Ask the owner of the directory to correct it (chown, chmod go-w), or run the cell again."
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
    """Return the record of a job in the form of the API.

    Raises
    ------
    UsageError
        The job was not submitted by jupyter_slurm, or another user can have changed the record.
    """
    record = entry.record
    if record is None or entry.folder is None:
        raise UsageError(
            f"Job {printable(reference)} was not submitted by jupyter_slurm, so there is no record of it.",
            hint="Read its script with `job.script`, and submit a script with `%sbatch`.",
        )
    if why := await ownership_error(transport, entry.folder.path):
        raise UsageError(f"The record of job {printable(reference)} is not trusted: {why}.", hint=_OWNERSHIP_HINT)
    request, slurm, used = record.request, record.slurm_version, await _used(transport, entry)
    document = record.to_json()
    told = {
        **{name: document.get(name) for name in _RECORD_KEYS},
        **{name: getattr(request, name, None) for name in _REQUESTED},
        "key": entry.part.of if entry.part else record.key,  # shared data is in the directory of the first part
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
    """Return the requested Python; for a step, whose request is not recorded, the Python in use."""
    if record.request is not None and "python" in record.request.given:
        return record.request.python
    return record.cell.python if record.cell else None


def _without_secrets(environment: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return an environment without the values of variables whose names suggest a secret: a notebook may keep it."""
    if environment is None or "variables" not in environment:
        return environment
    told = {name: "(hidden)" if _SECRET.search(name) else value for name, value in environment["variables"].items()}
    return {**environment, "variables": told}


async def _used(transport: Transport, entry: TrackedJob) -> dict[str, Any]:
    """Return the runner's data about the start of the cell; empty without a start."""
    if entry.folder is None or entry.kind != "python" or not await is_owned(transport, entry.folder.path):
        return {}
    try:
        used = await read_untrusted(transport, entry.folder.file("used.json"), 1_000_000)
    except (FileNotFoundError, TransportError, ValueError, RecursionError):
        return {}
    return used if isinstance(used, dict) else {}


async def read_job_values(transport: Transport, folder: JobFolder, limit: int) -> bytes:
    """Return the values sent with a job, to send them again, up to a maximum size in bytes.

    Raises
    ------
    UsageError
        The values are missing or too large, or another user can write to their folder.
    """
    if await is_owned(transport, folder.path):
        try:
            return await read_whole(transport, folder.file("in.values"), limit)
        except FileNotFoundError:
            pass
    raise UsageError(
        f"The values that were sent with {folder.key} no longer exist.",
        hint="Run its cell again, with in= and the variables.",
    )


async def sweep_table(transport: Transport, folder: JobFolder) -> api.Sweep | None:
    """Return the parameter table of a job in the form of a submission; None if there is no table."""
    try:
        told = await call_off_loop(parse_json, await read_whole(transport, folder.file(FILE)))
        return {"names": told["names"], "rows": told["rows"]}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(
            f"The parameters of {folder.key} cannot be read: {error}", hint="Run its cell again."
        ) from None
