"""Detection of Jupyter in an image before a session is queued, without running the image."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_slurm.errors import SlurmError
from jupyter_slurm.services.jobdir.job_json_model import JobRecordFile
from jupyter_slurm.services.jobs.job import TrackedJob
from jupyter_slurm.services.slurm.client import printable
from jupyter_slurm.transport.base import Transport

__all__ = ["ended_without_jupyter", "jupyter_warnings"]

_HINT = "Install one with jupyter=install, or name another Python of the image with python=PATH."
_CHECK_TIMEOUT_S = 5.0  # seconds
_NO_JUPYTER_EXIT_CODE = 3
# Of an unpacked image: the package folders of Python, conda and the user's home, which is bound.
_SCRIPT = r"""[ -d "$1/usr" ] || exit 0
for lib in "$1"/usr/lib "$1"/usr/lib64 "$1"/usr/local/lib "$1"/usr/local/lib64 "$1"/opt/*/lib "$1"/opt/*/envs/*/lib \
    "$1"/*conda*/lib "$1"/*conda*/envs/*/lib "$1"/srv/*/lib "$1"/usr/local/*/lib "$HOME"/.local/lib
do
    for place in "$lib"/python3*/site-packages "$lib"/python3*/dist-packages; do
        for name in jupyterlab notebook jupyter_server; do
            [ ! -e "$place/$name" ] || exit 0
        done
    done
done
exit 3"""


async def jupyter_warnings(transport: Transport, entries: Iterable[TrackedJob], record: JobRecordFile) -> list[str]:
    """Warn if the image of a session has no Jupyter, judged by its last session or its folder."""
    image = record.environment.image if record.environment else None
    if image is None:
        return []
    last = max(
        (entry for entry in entries if _in_image(entry.record) == _in_image(record) and _has_reported(entry)),
        key=lambda entry: entry.submit_time or 0.0,
        default=None,
    )
    if last is not None:
        said = f"Job {last.id}, the last session in {image}, failed: {last.error.message if last.error else ''}"
        return [printable(f"{said} {_HINT}")] if ended_without_jupyter(last.error) else []
    if not image.startswith("/") or any(_session_python(record)):
        return []
    try:
        looked = await transport.run(["/bin/sh", "-c", _SCRIPT, "sh", image], timeout=_CHECK_TIMEOUT_S)
    except SlurmError:
        return []
    return (
        [printable(f"{image} seems to have no Jupyter. {_HINT}")] if looked.exit_code == _NO_JUPYTER_EXIT_CODE else []
    )


def ended_without_jupyter(error: SlurmError | None) -> bool:
    """Return whether a missing Jupyter ended the session."""
    return error is not None and error.details.get("lacks") == "jupyter"


def _has_reported(entry: TrackedJob) -> bool:
    """Return whether a session shows the state of Jupyter in its image: ready, or missing."""
    return bool(entry.record and entry.record.granted and entry.record.granted.ready) or ended_without_jupyter(
        entry.error
    )


def _in_image(record: JobRecordFile | None) -> tuple[str | None, ...] | None:
    """Return the Python and the image of a session that uses the image's own Jupyter; None: any other session."""
    if record is None or record.session is None or record.environment is None or not record.environment.image:
        return None
    if record.session.command is not None or record.session.jupyter is not None:
        return None
    return record.environment.image, *_session_python(record)


def _session_python(record: JobRecordFile) -> tuple[str | None, str | None]:
    asked, environment = record.request, record.environment
    return asked.python if asked else None, environment.python if environment else None
