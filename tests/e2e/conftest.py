"""Fixtures: a browser, and an open JupyterLab."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from jupyter_slurm.embedded import EmbeddedCluster

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
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster without the jobs of other tests, for the pictures."""
    with EmbeddedCluster(directory=short_tmp / "browser") as running:
        yield running


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


@pytest.fixture
def page(browser: Browser, lab: Any) -> Iterator[Page]:
    """Provide a logged-in tab on that JupyterLab. A failed test shows its console."""
    _close_all(lab)
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.on("pageerror", lambda error: logging.error("%s\n%s", error.message, error.stack))
    page.on("console", lambda message: logging.info("%s: %s", message.type, message.text))
    page.goto(f"{lab.url}lab?token={lab.token}")
    page.wait_for_selector("#jp-main-statusbar")
    page.evaluate("window.jupyterapp.restored")  # before that, JupyterLab closes new documents again
    yield page
    context.close()


def _wear(page: Page, theme: str) -> None:
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """Return ``screenshot(page, name)``, which writes both themes into test-results/."""
    folder = Path(request.config.rootpath, "test-results")

    def take(page: Page, name: str) -> None:
        folder.mkdir(exist_ok=True)
        for theme, short in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
            _wear(page, theme)
            page.screenshot(path=folder / f"{name}-{short}.png")

    return take


FINDINGS = """async selector => {
    const { violations } = await window.axe.run(selector, { resultTypes: ["violations"] });
    return violations.flatMap(({ id, help, nodes }) =>
        nodes.map(({ html, any, all, none }) =>
            `${id}: ${help}\n  ${html}\n  ${[...any, ...all, ...none].map(({ message }) => message).join("; ")}`));
}"""


@pytest.fixture
def axe(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """Return ``axe(page, selector)``, a check by axe-core of an element in light, dark and high contrast."""
    script = Path(request.config.rootpath, "labextension", "node_modules", "axe-core", "axe.min.js")

    def check(page: Page, selector: str) -> None:
        page.locator(selector).locator("visible=true").first.wait_for()  # the side bar may exist, but be hidden
        if not page.evaluate("Boolean(window.axe)"):
            page.add_script_tag(path=script)
        found = {}
        for theme in ("JupyterLab Dark High Contrast", "JupyterLab Dark", "JupyterLab Light"):
            _wear(page, theme)
            found[theme] = page.evaluate(FINDINGS, selector)
        complaints = [f"{theme}: {text}" for theme, texts in found.items() for text in texts]
        assert not complaints, "\n".join(complaints)

    return check
