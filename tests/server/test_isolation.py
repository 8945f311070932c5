"""Tests of pages and tickets of isolated sessions."""

from __future__ import annotations

import time

import pytest
from jupyter_server.auth import User

from jupyter_slurm.server.session_proxy.isolation import Tickets, isolated_headers, isolated_page
from jupyter_slurm.server.session_route import SessionRoute

KEY = "20260101-000000-0123456789abcdef"
ROUTE = SessionRoute(8000, f"/user/ana/jupyter-slurm/{KEY}/", "/", None).with_ticket("T")


@pytest.mark.parametrize(
    ("page", "before"),
    [
        (b"<!DOCTYPE html>\n<html lang='en'><head><title>x</title>", b"<!DOCTYPE html>\n<html lang='en'>"),
        (b"\n<!-- x --><!doctype html><!-- <html> --><meta>", b"\n<!-- x --><!doctype html><!-- <html> -->"),
        (b"<header>x</header>", b""),
        (b"<script>1</script><head>", b""),
    ],
)
def test_no_script_of_a_page_runs_before_there_is_a_storage(page: bytes, before: bytes) -> None:
    found = isolated_page(page, KEY, ROUTE, is_document=True)
    assert found.startswith(before + b"<script>(function () {")
    assert found.endswith(page[len(before) :])
    assert isolated_page(page, KEY, ROUTE, is_document=False) == page


def test_addresses_of_a_page_get_the_ticket_once() -> None:
    page = f'"/user/ana/jupyter-slurm/{KEY}/lab" /jupyter-slurm/{KEY} jupyter-slurm/{KEY}a jupyter-slurm/{KEY}~T/'
    found = isolated_page(page.encode(), KEY, ROUTE, is_document=False).decode()
    assert found == (
        f'"/user/ana/jupyter-slurm/{KEY}~T/lab" /jupyter-slurm/{KEY}~T jupyter-slurm/{KEY}a jupyter-slurm/{KEY}~T/'
    )


class _Login:
    """A login that a test ends."""

    is_open = True

    async def is_valid(self) -> bool:
        return self.is_open


class _Holder:
    """A request or a WebSocket with a ticket."""

    ended = 0

    def end(self) -> None:
        self.ended += 1


async def test_a_ticket_ends_without_use(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets, now, login, holder = Tickets(), time.time(), _Login(), _Holder()
    first = tickets.issue(KEY, User("ana"), login)
    assert tickets.issue(KEY, User("ana"), login) == first
    assert tickets.issue(KEY, User("bob"), login) != first
    assert tickets.issue("20260101-000000-0123456789abcdee", User("ana"), login) != first
    assert await tickets.use(first, "20260101-000000-0123456789abcdee", holder) is None
    found = await tickets.use(first, KEY, holder)
    assert found is not None
    assert found.username == "ana"
    monkeypatch.setattr(time, "time", lambda: now + 80_000)
    assert await tickets.use(first, KEY, holder)
    monkeypatch.setattr(time, "time", lambda: now + 160_000)
    assert await tickets.use(first, KEY, holder)
    monkeypatch.setattr(time, "time", lambda: now + 260_000)
    assert await tickets.use(first, KEY, holder) is None
    assert tickets.issue(KEY, User("ana"), login) != first
    assert not holder.ended


async def test_a_ticket_ends_with_its_login(monkeypatch: pytest.MonkeyPatch) -> None:
    tickets, now, login, other, holder = Tickets(), time.time(), _Login(), _Login(), _Holder()
    first, second = tickets.issue(KEY, User("ana"), login), tickets.issue(KEY, User("ana"), other)
    assert first != second
    assert await tickets.use(first, KEY, holder)
    login.is_open = False
    monkeypatch.setattr(time, "time", lambda: now + 60)
    assert await tickets.use(first, KEY, _Holder()) is None
    assert holder.ended == 1
    assert await tickets.use(first, KEY, holder) is None
    assert await tickets.use(second, KEY, holder)


def test_the_sandbox_adds_to_the_policy_of_the_session() -> None:
    given = [("Content-Security-Policy", "frame-ancestors 'self'"), ("Cross-Origin-Opener-Policy", "same-origin")]
    own, sandbox = isolated_headers([*given, ("referrer-policy", "unsafe-url")])
    assert own == given[0]
    assert sandbox[0] == "Content-Security-Policy"
    assert "allow-same-origin" not in sandbox[1]
    assert "allow-top-navigation" not in sandbox[1]
