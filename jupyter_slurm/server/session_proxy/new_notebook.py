"""New notebooks in a session: one click leads from the page of a session to an open notebook.

A page of this server cannot ask the session itself: only the session's own pages have a ticket for that.
"""

# `authorized` is typed for plain functions only.
# mypy: disable-error-code="untyped-decorator"

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from urllib.parse import quote

import httpx
from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_slurm.errors import SlurmError, TunnelUnproven
from jupyter_slurm.server.agent_access import AgentAccess
from jupyter_slurm.server.problem_handler import ProblemHandler
from jupyter_slurm.server.session_proxy.http_client import SessionHttpClient, page_of
from jupyter_slurm.server.session_route import SessionRoute, request_headers

__all__ = ["NEW_NOTEBOOKS", "NewNotebookHandler"]

NEW_NOTEBOOKS = r"jupyter-slurm/api/server/sessions/([0-9]{8}-[0-9]{6}-[0-9a-f]{8,32})/notebooks"
"""The address for new notebooks of a session, below that of the server."""

# The session is software of a node: its answers become a part of an address.
_FILE_NAME = re.compile(r"[\w-][\w .()-]{0,200}\.ipynb")
_TIMEOUT_S = 60.0
_KERNEL_NAME = re.compile(r"[A-Za-z0-9._-]{1,128}")


class NewNotebookHandler(ProblemHandler):
    """Creates a notebook in the root folder of a session, with the default kernel of that session."""

    def initialize(self, access: AgentAccess, caller: SessionHttpClient) -> None:
        """Initialize the handler (Tornado's constructor)."""
        self._access, self._caller = access, caller

    @web.authenticated
    @authorized("execute")
    async def post(self, key: str) -> None:
        """Create a notebook; return the path of its page below this server."""
        try:
            route = await self._access.session_route(key)
        except SlurmError as error:
            self.send_problem(error)
            return
        if not route.path.startswith(f"{self.base_url}jupyter-slurm/"):
            raise web.HTTPError(404, "This server cannot show the session: it was launched from another server.")
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                name = await self._create(route)
        except (httpx.TransportError, TunnelUnproven, TimeoutError, ValueError, RecursionError) as error:
            raise web.HTTPError(502, "The session did not create a notebook. Open the session instead.") from error
        self.set_status(201)
        self.finish(json.dumps({"path": f"{route.path}lab/tree/{quote(name)}"}))

    async def _create(self, route: SessionRoute) -> str:
        """Return the name of a new notebook."""
        kernel = _checked((await self._ask(route, "GET", "api/kernelspecs")).get("default"), _KERNEL_NAME)
        name = _checked((await self._ask(route, "POST", "api/contents", {"type": "notebook"})).get("name"), _FILE_NAME)
        kernelspec = {"name": kernel, "display_name": kernel}  # without one, JupyterLab asks for a kernel
        content = {"cells": [], "metadata": {"kernelspec": kernelspec}, "nbformat": 4, "nbformat_minor": 5}
        saved = {"type": "notebook", "format": "json", "content": content}
        await self._ask(route, "PUT", f"api/contents/{quote(name)}", saved)
        return name

    async def _ask(self, route: SessionRoute, method: str, path: str, body: object = None) -> dict[str, Any]:
        """Return the answer of the session's API."""
        async with self._caller.request(
            route.port,
            method,
            route.base_url + path,
            headers=request_headers([("Host", f"127.0.0.1:{route.port}"), ("Content-Type", "application/json")], route),
            body=b"" if body is None else json.dumps(body).encode(),
        ) as answer:
            assert isinstance(answer.stream, httpx.AsyncByteStream)
            told = json.loads(await page_of(answer.stream))
        if answer.status_code >= 400 or not isinstance(told, dict):
            raise ValueError(f"the session answers {method} {path} with {answer.status_code}")
        return told


def _checked(value: object, pattern: re.Pattern[str]) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise ValueError(f"an invalid name: {value!r:.200}")
    return value
