"""Route to a session, and the filter of headers between session and browser."""

from __future__ import annotations

import re
import string
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote_plus, urlsplit, urlunsplit

__all__ = ["Headers", "SessionRoute", "request_headers", "response_headers", "without_token"]

# Headers of one connection, or credentials of this server.
_HOP_HEADERS = frozenset(
    "accept-encoding authorization connection content-length cookie expect forwarded host keep-alive origin referer te "
    "trailer transfer-encoding upgrade proxy x-real-ip x-scheme x-xsrftoken".split()
)
_HOP_HEADER_PREFIXES = ("proxy-", "sec-websocket-", "x-forwarded-", "x-jupyterhub-")
# The session's cookies, its permissions for other sites, its requests for passwords, and what a browser would apply to
# all of this server.
_SESSION_HEADERS = frozenset(
    "accept-ch activate-storage-access alt-svc authentication-info clear-site-data connection critical-ch expect-ct "
    "keep-alive nel origin-agent-cluster report-to reporting-endpoints server service-worker-allowed set-cookie "
    "set-cookie2 set-login speculation-rules strict-transport-security trailer transfer-encoding upgrade "
    "use-as-dictionary www-authenticate".split()
)
_SESSION_HEADER_PREFIXES = ("access-control-", "proxy-", "public-key-pins", "sec-session-", "secure-session-")

_SAFE_CHARACTERS = "".join(sorted(set(string.punctuation) - {"#"}))

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class SessionRoute:
    """Address of a ready session (``SessionWay`` of the API).

    Attributes
    ----------
    port : int
        Port on 127.0.0.1.
    path : str
        Path below this server; ends with a slash.
    base_url : str
        Base URL of the session: equal to the path, or ``/``.
    token : str or None
    scheme : str
        Scheme of the token in the header ``Authorization``.
    """

    port: int
    path: str
    base_url: str
    token: str | None
    scheme: str = "token"

    def target(self, path: str, query: str) -> str:
        """Return the target of the request to the session: its path, and the query without credentials."""
        asked = self.base_url + path.removeprefix(self.path) + without_token(query)
        return quote(asked, safe=_SAFE_CHARACTERS, encoding="latin-1")  # invalid characters are encoded, byte for byte

    def with_ticket(self, ticket: str) -> SessionRoute:
        """Return the route of a page whose address contains a ticket."""
        return replace(self, path=f"{self.path.rstrip('/')}~{ticket}/")

    def location(self, url: str) -> str:
        """Return the redirection of a session as an address of this server."""
        try:
            parts = urlsplit(url)
        except ValueError:  # not a valid address, as the browser will find
            return url
        if parts.netloc and parts.netloc not in (f"127.0.0.1:{self.port}", f"localhost:{self.port}"):
            return url
        path = re.sub(r"^[/\\]+", "/", parts.path)  # two slashes would start a host name
        if self.base_url != self.path and path.startswith(self.base_url):
            path = self.path + path.removeprefix(self.base_url)
        return urlunsplit(("", "", path, parts.query, parts.fragment))


def without_token(query: str) -> str:
    """Return the query of a request without credentials, after a question mark; empty if nothing is left."""
    kept = [part for part in query.split("&") if unquote_plus(part.partition("=")[0]) != "token"]
    return "?" + "&".join(kept) if any(kept) else ""


def request_headers(headers: Iterable[tuple[str, str]], route: SessionRoute) -> Headers:
    """Return the headers of a request to forward, with the session's own credentials."""
    kept = _filter_headers(headers, _HOP_HEADERS, _HOP_HEADER_PREFIXES)
    kept.append(("Accept-Encoding", "identity"))  # the page will be modified
    return [*kept, ("Authorization", f"{route.scheme} {route.token}")] if route.token else kept


def response_headers(headers: Iterable[tuple[str, str]], route: SessionRoute) -> Headers:
    """Return the headers of an answer to forward."""
    kept = _filter_headers(headers, _SESSION_HEADERS, _SESSION_HEADER_PREFIXES)
    return [(name, route.location(value) if name.lower() == "location" else value) for name, value in kept]


def _filter_headers(headers: Iterable[tuple[str, str]], names: Collection[str], beginnings: tuple[str, ...]) -> Headers:
    """Return the headers without the given names, and without those of one connection (RFC 9110, 7.6.1)."""
    given = [(name, value, _spelt(name)) for name, value in headers]
    stay = {_spelt(part.strip()) for _, value, name in given if name == "connection" for part in value.split(",")}
    return [
        (name, value)
        for name, value, spelt in given
        if spelt not in {*stay, *names} and not spelt.startswith(beginnings)
    ]


def _spelt(name: str) -> str:
    """Return the name of a header as a WSGI program sees it, so that equivalent names are equal."""
    return name.lower().replace("_", "-")
