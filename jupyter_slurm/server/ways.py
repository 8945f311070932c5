"""Where a session answers, and what of a request and of its answer travels between it and a browser."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from urllib.parse import unquote_plus, urlsplit, urlunsplit

__all__ = ["Way", "kept_back", "kept_on"]

# Of one connection, or what this server and nobody else knows a person by.
_STAY = frozenset(
    "accept-encoding authorization connection content-length cookie expect forwarded host keep-alive origin referer te "
    "trailer transfer-encoding upgrade x-real-ip x-scheme x-xsrftoken".split()
)
_STAY_BEGINNINGS = ("proxy-", "sec-websocket-", "x-forwarded-", "x-jupyterhub-")
# The session's own cookies, and whom it would let in from other sites.
_STAY_THERE = frozenset("connection keep-alive server set-cookie trailer transfer-encoding upgrade".split())
_STAY_THERE_BEGINNINGS = ("access-control-", "proxy-")

Headers = list[tuple[str, str]]


@dataclass(frozen=True)
class Way:
    """What the agent tells of a session that is ready (``SessionWay`` of the API).

    Attributes
    ----------
    port : int
        On 127.0.0.1.
    path : str
        Under which this server shows it; ends with a slash.
    base_url : str
        Under which it serves: the same, or ``/``.
    token : str or None
    """

    port: int
    path: str
    base_url: str
    token: str | None

    def target(self, path: str, query: str) -> str:
        """Return what is asked of the session: its path, and the query without what logs in here."""
        kept = [part for part in query.split("&") if unquote_plus(part.partition("=")[0]) != "token"]
        found = self.base_url + path.removeprefix(self.path)
        return found + ("?" + "&".join(kept) if any(kept) else "")

    def location(self, told: str) -> str:
        """Return where a redirection of the session leads here."""
        parts = urlsplit(told)
        if parts.netloc and parts.netloc != f"127.0.0.1:{self.port}":
            return told
        path = parts.path
        if self.base_url != self.path and path.startswith("/"):
            path = self.path + path.removeprefix(self.base_url)
        return urlunsplit(("", "", path, parts.query, parts.fragment))


def kept_on(headers: Iterable[tuple[str, str]], way: Way) -> Headers:
    """Return the headers of a request that travel on, with what the session knows its person by."""
    kept = [(name, value) for name, value in headers if not _is_among(name, _STAY, _STAY_BEGINNINGS)]
    kept.append(("Accept-Encoding", "identity"))  # a page is looked through
    return [*kept, ("Authorization", f"token {way.token}")] if way.token else kept


def kept_back(headers: Iterable[tuple[str, str]], way: Way) -> Headers:
    """Return the headers of an answer that travel back."""
    kept = [(name, value) for name, value in headers if not _is_among(name, _STAY_THERE, _STAY_THERE_BEGINNINGS)]
    return [(name, way.location(value) if name.lower() == "location" else value) for name, value in kept]


def _is_among(name: str, names: Collection[str], beginnings: tuple[str, ...]) -> bool:
    return name.lower() in names or name.lower().startswith(beginnings)
