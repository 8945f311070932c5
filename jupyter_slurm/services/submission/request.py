"""Request of a submission: that of the API, and what the services themselves add for sessions and images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NotRequired

from jupyter_slurm.domain import api_types as api

__all__ = ["SubmissionRequest"]


class SubmissionRequest(api.Submission):
    """A submission; ``session`` and ``image`` are as job.json has them, ``files`` go into the job directory."""

    session: NotRequired[Mapping[str, Any]]
    image: NotRequired[Mapping[str, Any]]
    files: NotRequired[Mapping[str, bytes]]
    warnings: NotRequired[Sequence[str]]
