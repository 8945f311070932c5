"""Isolation of session pages: a sandbox without the origin of this server, and tickets in place of cookies.

A page of a session is software of a node. In a sandbox, the browser gives the page an origin of its own: it has no
cookies of this server, cannot read its answers, and cannot register a service worker. A sandboxed page also sends no
cookies to its own session. So its address contains a ticket, which is valid for this one session only, and as long as
the login that it was issued for.
"""

from __future__ import annotations

import re
import secrets
import time
from dataclasses import dataclass, field
from typing import Protocol
from weakref import WeakSet

from jupyter_server.auth import User

from jupyter_slurm.server.session_proxy.login import Login
from jupyter_slurm.server.session_route import Headers, SessionRoute

__all__ = ["TICKET_HEADERS", "Tickets", "isolated_headers", "isolated_page", "preflight_headers"]

_LOGIN_CHECK_INTERVAL_S = 5.0  # seconds between two checks of the login behind a ticket
_MAX_UNUSED_S = 86_400.0  # seconds without use until a ticket is invalid; a hidden tab may send nothing overnight

_SANDBOX = (
    "sandbox allow-scripts allow-forms allow-modals allow-downloads allow-popups allow-popups-to-escape-sandbox "
    "allow-pointer-lock allow-orientation-lock allow-presentation"
)
TICKET_HEADERS: Headers = [
    ("Access-Control-Allow-Origin", "null"),  # the origin of a sandboxed page; only such a page knows the ticket
    ("Access-Control-Expose-Headers", "*"),
    ("Referrer-Policy", "no-referrer"),  # the address contains the ticket
]
"""Headers of every answer to a request with a ticket."""

_METHODS = "GET, HEAD, POST, PUT, PATCH, DELETE"
_PREFLIGHT_AGE_S = 7200

_COMMENTS = rb"\s*(?:<!--.*?-->\s*)*"
_BEGINNING = re.compile(
    _COMMENTS + rb"(?:<!doctype[^>]*>)?" + _COMMENTS + rb"(?:<html(?:\s[^>]*)?>)?", re.IGNORECASE | re.DOTALL
)
# Without an origin, reading these attributes is an error, for which few programs are prepared.
_STORAGE = b"""<script>(function () {
function storage() {
  var kept = new Map();
  return {
    getItem: function (name) { return kept.has(String(name)) ? kept.get(String(name)) : null; },
    setItem: function (name, value) { kept.set(String(name), String(value)); },
    removeItem: function (name) { kept.delete(String(name)); },
    clear: function () { kept.clear(); },
    key: function (index) { return Array.from(kept.keys())[index] || null; },
    get length() { return kept.size; }
  };
}
["localStorage", "sessionStorage"].forEach(function (name) {
  try { window[name]; } catch (error) {
    Object.defineProperty(window, name, { value: storage(), configurable: true });
  }
});
try { document.cookie; } catch (error) {
  Object.defineProperty(document, "cookie", { get: function () { return ""; }, set: function () {} });
}
})();</script>"""


class _Holder(Protocol):
    """A request or a WebSocket with a ticket."""

    def end(self) -> None: ...


@dataclass
class _Ticket:
    key: str
    user: User
    login: Login
    used: float  # seconds since the epoch: other clocks stand still while a computer sleeps
    checked: float
    holders: WeakSet[_Holder] = field(default_factory=WeakSet)


class Tickets:
    """Tickets of one server: each gives its holder access to one session, with the permissions of one login."""

    def __init__(self) -> None:
        self._tickets: dict[str, _Ticket] = {}

    def issue(self, key: str, user: User, login: Login) -> str:
        """Return a ticket for a session; pages of one login and session share it."""
        now = time.time()
        self._tickets = {text: ticket for text, ticket in self._tickets.items() if _is_valid(ticket, now)}
        for text, ticket in self._tickets.items():
            if (ticket.key, ticket.user.username, ticket.login) == (key, user.username, login):
                ticket.user, ticket.used = user, now
                return text
        text = secrets.token_urlsafe(32)
        self._tickets[text] = _Ticket(key, user, login, now, now)
        return text

    async def use(self, text: str, key: str, holder: _Holder) -> User | None:
        """Return the user of a ticket, whose holder is ended with the login.

        None: it is not valid for this session, was not used for a day, or its user has logged out.
        """
        ticket, now = self._tickets.get(text), time.time()
        if ticket is None or ticket.key != key or not _is_valid(ticket, now):
            return None
        ticket.used = now
        ticket.holders.add(holder)
        if abs(now - ticket.checked) >= _LOGIN_CHECK_INTERVAL_S:
            ticket.checked = now
            if not await ticket.login.is_valid():
                self._tickets.pop(text, None)
                for each in list(ticket.holders):
                    each.end()
        return ticket.user if text in self._tickets else None


def _is_valid(ticket: _Ticket, now: float) -> bool:
    return ticket.used <= now + _MAX_UNUSED_S and now <= ticket.used + _MAX_UNUSED_S


def isolated_headers(headers: Headers) -> Headers:
    """Return the headers of an answer of a session with the sandbox, whatever the type of its content."""
    # A browser shows an error in place of a sandboxed page with such a policy.
    kept = [(name, value) for name, value in headers if not name.lower().startswith("cross-origin-opener-policy")]
    kept = [(name, value) for name, value in kept if name.lower() != "referrer-policy"]
    return [*kept, ("Content-Security-Policy", _SANDBOX)]


def preflight_headers(requested: str) -> Headers:
    """Return the permissions of a sandboxed page for requests to its own session."""
    return [
        ("Access-Control-Allow-Methods", _METHODS),
        ("Access-Control-Allow-Headers", requested),
        ("Access-Control-Max-Age", str(_PREFLIGHT_AGE_S)),
    ]


def isolated_page(page: bytes, key: str, route: SessionRoute, *, is_document: bool) -> bytes:
    """Return a page with addresses that contain the ticket; a document also gets a storage that lasts as long as it."""
    known, path = f"jupyter-slurm/{key}".encode(), route.path.rpartition("jupyter-slurm/")[2].rstrip("/").encode()
    page = re.sub(re.escape(known) + rb"(?![0-9a-f~])", b"jupyter-slurm/" + path, page)
    found = _BEGINNING.match(page) if is_document else None
    return page[: found.end()] + _STORAGE + page[found.end() :] if found else page
