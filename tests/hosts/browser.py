"""Fixtures of the tests in a browser: the Chromium of this machine, and an open JupyterLab.

Import them with ``from browser import *`` in the ``conftest.py`` of a folder, whose modules may override them.
"""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Error, Page, expect, sync_playwright

__all__ = ["browser", "lab", "lab_files", "new_page", "page"]

expect.set_options(timeout=60_000)  # for all tests of the browser, on a busy machine

QUIET = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

LAB = """
c.LabApp.expose_app_in_browser = True
c.LabApp.check_for_updates_class = "jupyterlab.NeverCheckForUpdate"
"""
# Without a setting, JupyterLab asks in every picture whether it may fetch news.
NOTIFICATIONS = ".jupyter/lab/user-settings/@jupyterlab/apputils-extension/notification.jupyterlab-settings"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Provide the Chromium of this machine."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        if os.environ.get("CI"):
            pytest.fail("Chromium is missing; `make test` installs it")
        pytest.skip("Chromium is not installed")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, headless=True, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def lab_files() -> dict[str, str]:
    """Provide the home files of a JupyterLab whose commands a test can call: ``--config=lab.py``."""
    return {"lab.py": LAB, NOTIFICATIONS: '{"fetchNews": "false"}'}


@pytest.fixture(scope="module")
def lab(start_jupyter: Callable[..., Any], lab_files: dict[str, str]) -> Any:
    """Provide a JupyterLab whose commands a test can call."""
    return start_jupyter("lab", "--config=lab.py", files=lab_files)


def _close_all(lab: Any) -> None:
    """Reset the workspace of JupyterLab to that without documents of earlier tests."""
    headers, address = {"Authorization": f"token {lab.token}"}, f"{lab.url}lab/api/workspaces"
    for name in httpx.get(address, headers=headers, timeout=60).raise_for_status().json()["workspaces"]["ids"]:
        httpx.delete(f"{address}/{name.lstrip('/')}", headers=headers, timeout=60).raise_for_status()


def _go_on_without_theme(page: Page) -> None:
    """Close JupyterLab's message that a busy server did not send a theme in time; the next one is loaded again."""
    message = page.locator("dialog.jp-Dialog", has_text="Error Loading Theme")
    page.add_locator_handler(message, lambda shown: shown.locator("button.jp-mod-accept").click())


@pytest.fixture
def new_page(browser: Browser) -> Iterator[Callable[[], Page]]:
    """Return ``new_page()``, which opens a tab of its own; closed at the end."""
    opened: list[Page] = []

    def make() -> Page:
        opened.append(browser.new_context(viewport={"width": 1400, "height": 900}).new_page())
        opened[-1].set_default_timeout(60_000)
        _go_on_without_theme(opened[-1])
        return opened[-1]

    yield make
    for one in opened:
        one.context.close()


def _open(page: Page, address: str) -> None:
    """Open JupyterLab; again if the browser gave requests up, because other tests made network interfaces meanwhile."""
    given_up: list[str] = []
    page.on("requestfailed", lambda request: given_up.append(request.failure or ""))
    for _ in range(5):
        given_up.clear()
        try:
            _wait_until_restored(page, address)
        except (Error, AssertionError):
            if not any("ERR_NETWORK_CHANGED" in failure for failure in given_up):
                raise
        if not any("ERR_NETWORK_CHANGED" in failure for failure in given_up):
            return


def _wait_until_restored(page: Page, address: str) -> None:
    page.goto(address)
    expect(page.locator("#jp-main-statusbar")).to_be_visible(timeout=60_000)
    page.evaluate("window.jupyterapp.restored")  # before that, JupyterLab closes new documents again


@pytest.fixture
def page(new_page: Callable[[], Page], lab: Any) -> Page:
    """Provide a logged-in tab on that JupyterLab. A failed test shows its console."""
    _close_all(lab)
    page = new_page()
    page.on("pageerror", lambda error: logging.error("%s\n%s", error.message, error.stack))
    page.on("console", lambda message: logging.info("%s: %s", message.type, message.text))
    _open(page, f"{lab.url}lab?token={lab.token}")
    return page
