"""Tests of a hostile node in a browser that is logged in to the user's own Jupyter server."""

from __future__ import annotations

import os
import secrets
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from hostile_page import FILES, WRITTEN, attack
from playwright.sync_api import Browser, BrowserContext, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]


@pytest.fixture(scope="module")
def lab_files(lab_files: dict[str, str]) -> dict[str, str]:
    """Provide a home in which every session is hostile."""
    return {**lab_files, **FILES}


class Owner:
    """Client of the user's own server, with its token."""

    def __init__(self, lab: Any) -> None:
        self.lab, self.home = lab, Path(lab.home)
        self.http = httpx.Client(headers={"Authorization": f"token {lab.token}"}, timeout=120)
        (self.cluster,) = self.http.get(lab.api("v1/clusters")).json()

    def _address(self, *more: str) -> str:
        return str(self.lab.api("/".join(["v1/clusters", self.cluster["id"], "sessions", *more])))

    def launch(self) -> str:
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        env = {"PATH": os.environ["PATH"], "HOME": str(self.home), "SLURM_CONF": self.cluster["slurm_conf"]}
        context = {"cwd": str(self.home), "env": env, "umask": 0o22, "limits": {}}
        options = ["-p", "arandu", "-t", "10"]
        asked = {"key": key, "idle": 86_400.0, "options": options, "python": sys.executable, "context": context}
        answer = self.http.post(self._address(), json=asked)
        assert answer.status_code == 201, answer.text
        return key

    def is_ready(self, key: str) -> Any:
        told = self.http.get(self._address(key)).json()
        assert told["session"]["state"] != "ended", told
        return told if told["session"]["state"] == "ready" else None

    def open(self, key: str) -> dict[str, Any]:
        told: dict[str, Any] = self.http.post(self._address(key, "open"), json={}).raise_for_status().json()
        return told

    def stop(self, key: str) -> None:
        self.http.post(self._address(key, "stop"))

    def harm(self) -> list[str]:
        """Return what an attack has left on the user's own server."""
        found = [path.name for path in self.home.glob(WRITTEN)]
        for kind in ("kernels", "terminals"):
            found += [f"{kind}: {one}" for one in self.http.get(f"{self.lab.url}api/{kind}").json()]
        return found


@pytest.fixture(scope="module")
def owner(lab: Any) -> Iterator[Owner]:
    """Provide the owner of a JupyterLab."""
    owner = Owner(lab)
    yield owner
    owner.http.close()


@pytest.fixture(scope="module")
def sessions(owner: Owner, wait_for: Callable[..., Any]) -> Iterator[list[dict[str, Any]]]:
    """Provide two ready sessions on hostile nodes."""
    keys = [owner.launch(), owner.launch()]
    yield [wait_for(lambda key=key: owner.is_ready(key), "a session") for key in keys]
    for key in keys:
        owner.stop(key)


@pytest.fixture
def context(browser: Browser, lab: Any) -> Iterator[BrowserContext]:
    """Provide a browser that is logged in to the user's own server, under both of its names."""
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    context.set_default_timeout(60_000)
    page = context.new_page()
    for url in (lab.url, lab.url.replace("localhost", "127.0.0.1")):
        page.goto(f"{url}lab?token={lab.token}")
    page.close()
    yield context
    context.close()


def _session_works(page: Page) -> None:
    """Run a cell in the JupyterLab of a session."""
    page.locator(".jp-LauncherCard[data-category=Notebook]").first.click()
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible()
    cell = page.locator(".jp-Notebook .jp-Cell .cm-content").first
    cell.fill("import os; print('in job', bool(os.environ['SLURM_JOB_ID']))")
    cell.press("Shift+Enter")
    expect(page.locator(".jp-OutputArea-output").first).to_have_text("in job True")


@pytest.mark.timeout(300)
def test_a_page_behind_the_server_cannot_act_as_the_user(
    lab: Any, owner: Owner, sessions: list[dict[str, Any]], context: BrowserContext
) -> None:
    hostile, other = sessions
    own, path = lab.url, hostile["session"]["path"]
    page = context.new_page()
    page.goto(f"{own}{path[1:]}hostile")
    assert page.title() == "Hostile"
    assert attack(page, own, other["session"]["path"]) == {}
    assert owner.harm() == []
    assert not [cookie for cookie in context.cookies() if cookie["name"] == "hostile"]
    # Neither do its cookies or its policies reach the server, nor the cookies of the server reach the node.
    seen = page.evaluate("async () => (await (await fetch(location.pathname + '-seen')).json()).cookies")
    assert seen
    assert not any(seen)
    page.goto(f"{own}lab/tree")  # still logged in
    expect(page.locator("#jp-main-statusbar")).to_be_visible()


@pytest.mark.timeout(300)
def test_a_sandboxed_session_works(
    lab: Any, owner: Owner, sessions: list[dict[str, Any]], context: BrowserContext
) -> None:
    page = context.new_page()
    answers: list[tuple[str, int]] = []
    page.on("response", lambda answer: answers.append((answer.url, answer.status)))
    page.goto(f"{lab.url}{sessions[1]['session']['path'][1:]}")
    expect(page.locator("#jp-main-statusbar")).to_be_visible()
    assert page.evaluate("window.origin") == "null"
    _session_works(page)
    address = page.url
    page.reload()
    expect(page.locator("#jp-main-statusbar")).to_be_visible()
    assert page.url.partition("?")[0] == address.partition("?")[0]
    refused = [(url, status) for url, status in answers if status in (401, 403)]
    assert refused == []
    log = (owner.home / "server.log").read_text()
    ticket = address.partition("~")[2].partition("/")[0]
    assert len(ticket) == 43
    assert ticket not in log
    page.close()


@pytest.mark.timeout(300)
def test_a_page_on_a_local_port_shares_nothing_with_other_programs(
    lab: Any, owner: Owner, sessions: list[dict[str, Any]], context: BrowserContext
) -> None:
    hostile, other = sessions
    told = owner.open(hostile["key"])
    url = told["session"]["browser_url"]
    assert url == told["session"]["url"].replace("127.0.0.1", f"{hostile['key']}.localhost")
    names = [lab.url, lab.url.replace("localhost", "127.0.0.1")]
    page = context.new_page()
    page.goto(f"file://{told['page']}")
    expect(page.locator("#jp-main-statusbar")).to_be_visible()
    assert page.url.startswith(f"{url}lab/workspaces/")
    _session_works(page)
    page.goto(f"{url}hostile")
    for own in names:
        port = urlsplit(url).port
        for way in (f"proxy/{port}", f"proxy/absolute/{port}"):  # no other address leads to a port of this computer
            assert page.request.get(f"{own}{way}/hostile").status == 404
        assert attack(page, own, other["session"]["path"]) == {}
    assert owner.harm() == []
    seen = page.evaluate("async () => (await (await fetch(location.pathname + '-seen')).json()).cookies")
    known = {cookie["name"] for name in names for cookie in context.cookies(name)}
    assert [name for name in known if name.startswith("username-")]
    assert not [cookie for text in seen for cookie in text.split("; ") if cookie.partition("=")[0] in known - {"_xsrf"}]
    assert not known & {"hostile", f"username-{hostile['key']}-localhost"}
    page.close()


def test_a_browser_that_knows_no_such_name_opens_the_port(
    owner: Owner, sessions: list[dict[str, Any]], context: BrowserContext
) -> None:
    told = owner.open(sessions[1]["key"])
    page = context.new_page()
    page.route(f"{told['session']['browser_url']}**", lambda route: route.abort("namenotresolved"))
    page.goto(f"file://{told['page']}")
    page.wait_for_url(f"{told['session']['url']}lab/**")
    page.close()
