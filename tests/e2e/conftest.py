"""Fixtures: a cluster for each module, pictures, and axe-core. The browser is in tests/hosts/browser.py."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from browser import *  # noqa: F403 - fixtures: Chromium, and an open JupyterLab
from playwright.sync_api import Error, Page

from jupyter_slurm.embedded import EmbeddedCluster


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster without the jobs of other tests, for the pictures."""
    with EmbeddedCluster(directory=short_tmp / "browser") as running:
        yield running


def _wear(page: Page, theme: str) -> None:
    page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_selector(f"body[data-jp-theme-name='{theme}']", state="attached")
    page.wait_for_selector("#jupyterlab-splash", state="detached")


@pytest.fixture
def screenshot(request: pytest.FixtureRequest) -> Callable[[Page, str], None]:
    """Return ``screenshot(page, name)``, which writes both themes into test-results/.

    A change of the theme closes a list; ``again`` opens it.
    """
    folder = Path(request.config.rootpath, "test-results")

    def take(page: Page, name: str, again: Callable[[], object] = lambda: None) -> None:
        folder.mkdir(exist_ok=True)
        for theme, short in (("JupyterLab Dark", "dark"), ("JupyterLab Light", "light")):
            _wear(page, theme)
            again()
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

    def check(page: Page, selector: str, again: Callable[[], object] = lambda: None) -> None:
        page.locator(selector).locator("visible=true").first.wait_for()  # the side bar may exist, but be hidden
        if not page.evaluate("Boolean(window.axe)"):
            page.add_script_tag(path=script)
        found = {}
        for theme in ("JupyterLab Dark High Contrast", "JupyterLab Dark", "JupyterLab Light"):
            _wear(page, theme)
            again()
            found[theme] = page.evaluate(FINDINGS, selector)
        complaints = [f"{theme}: {text}" for theme, texts in found.items() for text in texts]
        assert not complaints, "\n".join(complaints)

    return check


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    """Attach the text of the page of a failed test, and write its picture and markup into test-results/."""
    report = yield
    page = getattr(item, "funcargs", {}).get("page")
    if report.failed and call.when == "call" and isinstance(page, Page):
        folder, name = Path(item.config.rootpath, "test-results"), re.sub(r"\W+", "-", f"failed-{item.name}")
        folder.mkdir(exist_ok=True)
        try:
            report.sections.append(("page", page.locator("body").inner_text()))
            (folder / f"{name}.html").write_text(page.content(), encoding="utf-8")
            page.screenshot(path=folder / f"{name}.png")
        except Error as error:  # the page is gone
            report.sections.append(("page", error.message))
    return report
