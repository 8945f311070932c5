"""Tests of a terminal of a cluster in JupyterLab: from the card in the launcher, over a reload, to its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

SAVED = """async () => {
    const { values } = await window.jupyterapp.serviceManager.workspaces.list();
    return values.some(({ data }) => Object.keys(data).some(name => name.startsWith('jupyter-slurm-terminal:')
        && JSON.stringify(data['layout-restorer:data']?.main ?? '').includes(name)));
}"""


# The text is drawn on a canvas.
SHOWN = """() => {
    const buffer = window.jupyterapp?.shell.currentWidget?.content?._term?.buffer.active;
    return Array.from({ length: buffer?.length ?? 0 }, (_, at) => buffer.getLine(at).translateToString(true)).join("\\n");
}"""


def shown(page: Page) -> str:
    return str(page.evaluate(SHOWN))


def enter(page: Page, text: str) -> None:
    page.locator(".jp-Terminal .xterm-helper-textarea").focus()
    page.keyboard.type(f"{text}\n")


@pytest.mark.timeout(300)
def test_a_terminal_is_there_after_a_reload(
    page: Page, lab: Any, screenshot: Callable[[Page, str], None], wait_for: Callable[..., Any]
) -> None:
    page.evaluate("window.jupyterapp.commands.execute('launcher:create').then(() => null)")
    card = page.locator(".jp-LauncherCard[data-category=Slurm]", has_text="Terminal on arandu")
    card.scroll_into_view_if_needed()
    card.click()
    wait_for(
        lambda: any(sign in shown(page) for sign in "$#"), "a prompt"
    )  # start-up files may drop what is typed before
    enter(page, "echo $((6 * 7))-hi")
    wait_for(lambda: "42-hi" in shown(page), "the output")
    screenshot(page, "terminal")
    wait_for(lambda: page.evaluate(SAVED), "the layout is saved")
    page.reload()
    wait_for(lambda: "42-hi" in shown(page), "the output after the reload")
    enter(page, "exit 5")
    wait_for(lambda: "exit code 5" in shown(page), "the exit code")
