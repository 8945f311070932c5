"""Request of a submission: that of the API, with additions of the services for sessions, images and environments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from jupyter_slurm.domain import api_types as api

__all__ = ["SubmissionRequest"]


class SubmissionRequest(api.Submission):
    """Submission; ``session``, ``image``, ``environment_build`` and ``copies_to`` have the form of job.json.

    ``files`` go into the job directory. ``folders`` are those of the keywords of an app.
    """

    session: NotRequired[Mapping[str, Any]]
    image: NotRequired[Mapping[str, Any]]
    environment_build: NotRequired[Mapping[str, Any]]
    copies_to: NotRequired[str]
    files: NotRequired[Mapping[str, bytes]]
    folders: NotRequired[Mapping[str, str]]
    warnings: NotRequired[Sequence[str]]
    process: NotRequired[int | None]
