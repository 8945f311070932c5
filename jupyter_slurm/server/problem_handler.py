"""Base of the API's handlers: errors are answered with a problem document (RFC 9457)."""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import responses
from typing import Any

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from tornado import web

from jupyter_slurm.errors import SlurmError

__all__ = ["ProblemHandler"]


class ProblemHandler(APIHandler):
    """Answers errors with problem documents; Jupyter authorizes."""

    auth_resource = "jupyter-slurm"

    @web.authenticated
    @authorized("read")
    async def options(self, *_: str) -> None:  # type: ignore[override]  # theirs lets anybody in
        """Answer a preflight request: other origins get no permissions."""
        raise web.HTTPError(405)

    def write_error(self, status_code: int, **kwargs: Any) -> None:
        """Answer with a problem document."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        detail = getattr(error, "log_message", None) or responses.get(status_code, "The request failed.")
        self._answer(
            status_code,
            {
                "type": "about:blank",
                "title": responses.get(status_code, "Error"),
                "status": status_code,
                "detail": detail,
            },
        )

    def send_problem(self, error: SlurmError) -> None:
        """Answer with an error."""
        self._answer(error.status, error.to_problem())

    def _answer(self, status: int, problem: Mapping[str, object]) -> None:
        self.set_status(status)
        self.finish(json.dumps(problem), set_content_type="application/problem+json")
