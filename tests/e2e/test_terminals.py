"""Tests of a terminal of a cluster in JupyterLab: from the card in the launcher, over a reload, to its end."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from playwright.sync_api import Page, expect

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


@pytest.fixture
def job(cluster: Any, request: pytest.FixtureRequest) -> Iterator[str]:
    """Provide the ID of a running job that was submitted by hand: ``longrun``, or by the name in the parameter."""
    env = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf)}
    argv = [
        "sbatch",
        "--parsable",
        "--output=/dev/null",
        "--chdir=/",
        "-J",
        getattr(request, "param", "longrun"),
        "--wrap=sleep 600",
    ]
    number = subprocess.run(argv, env=env, capture_output=True, check=True, text=True).stdout.strip()
    yield number
    subprocess.run(["scancel", number], env=env, check=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("job", ["sessionrun"], indirect=True)
def test_a_session_in_a_job_from_its_menu(
    page: Page, lab: Any, job: str, screenshot: Callable[[Page, str], None]
) -> None:
    """The entries of the menu have icons, as JupyterLab's; the session is a step of the job."""
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open').then(() => null)")
    row = page.locator(".jp-Slurm-row", has_text="sessionrun").filter(visible=True).first
    expect(row).to_contain_text("RUNNING", timeout=60_000)
    row.click(button="right")
    entries = page.locator(".lm-Menu-item").filter(has_text=re.compile("Job|Terminal"))
    expect(entries.locator(".lm-Menu-itemIcon svg")).to_have_count(10)
    page.locator(".lm-Menu-itemLabel", has_text="Start JupyterLab in Job").click()
    session = page.locator(".jp-Slurm-session")
    expect(session).to_have_attribute("data-session", "ready", timeout=120_000)
    expect(session).to_contain_text(job)
    screenshot(page, "session-in-a-job")


@pytest.mark.timeout(180)
def test_a_terminal_of_a_job_from_its_menu_and_again_after_its_tab_was_closed(
    page: Page, lab: Any, job: str, screenshot: Callable[[Page, str], None], wait_for: Callable[..., Any]
) -> None:
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open').then(() => null)")
    row = page.locator(".jp-Slurm-row", has_text="longrun").filter(visible=True).first
    expect(row).to_contain_text("RUNNING", timeout=60_000)
    row.click(button="right")
    page.locator(".lm-Menu-itemLabel", has_text="Open Terminal").click()
    wait_for(lambda: any(sign in shown(page) for sign in "$#"), "a prompt")
    enter(page, "echo in $SLURM_JOB_ID")
    wait_for(lambda: f"in {job}" in shown(page), "the output")
    title = page.evaluate("window.jupyterapp.shell.currentWidget.title.label")
    assert re.fullmatch(r"Terminal · longrun on \S+", title), title
    screenshot(page, "terminal-of-a-job")
    page.evaluate("window.jupyterapp.shell.currentWidget.close()")
    page.evaluate("void window.jupyterapp.commands.execute('jupyter-slurm:reattach-terminal')")
    choice = page.locator(".jp-Dialog select")  # only if there are others
    wait_for(lambda: choice.count() or f"in {job}" in shown(page), "a choice, or the terminal")
    if choice.count():
        choice.select_option(label=choice.locator("option", has_text=title).last.inner_text())
        page.locator(".jp-Dialog .jp-mod-accept").click()
    wait_for(lambda: f"in {job}" in shown(page), "the output after the tab was closed")
    assert page.evaluate("window.jupyterapp.shell.currentWidget.title.label") == title
    enter(page, "exit")
    wait_for(lambda: "The terminal has ended" in shown(page), "its end")
