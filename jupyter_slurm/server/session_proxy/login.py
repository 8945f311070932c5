"""Login behind a page of a session: whether it is still valid."""

from __future__ import annotations

from inspect import isawaitable
from types import SimpleNamespace
from typing import Any

from jupyter_server.base.handlers import JupyterHandler
from tornado import web
from tornado.httputil import HTTPServerRequest

__all__ = ["Login"]


class Login:
    """Login of the user who sent a request, as the identity provider of the server knows it.

    Two logins are equal if the requests have the same cookies and the same Authorization.
    """

    def __init__(self, request: HTTPServerRequest, application: Any) -> None:
        self._application = application
        self._uri, self._headers = request.uri, request.headers.copy()
        self._credentials = [request.headers.get_list(name) for name in ("Cookie", "Authorization")]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Login) and other._credentials == self._credentials

    def __hash__(self) -> int:
        return hash(str(self._credentials))

    async def is_valid(self) -> bool:
        """Return whether the same request would be authenticated now.

        A login that cannot be checked is valid: pages of sessions survive a restart of JupyterHub.
        """
        # The answer of this request is never sent: neither is a cookie of the identity provider.
        silent = SimpleNamespace(set_close_callback=lambda callback: None)
        repeated = HTTPServerRequest("GET", self._uri, headers=self._headers, connection=silent)  # type: ignore[arg-type]
        handler = JupyterHandler(self._application, repeated)
        try:
            user = handler.identity_provider.get_user(handler)
            return bool(await user if isawaitable(user) else user)
        except web.HTTPError as error:
            return error.status_code >= 500
