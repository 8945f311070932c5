"""Tests of widgets in a real JupyterLab and Notebook 7: their content, and clicks while a cell runs."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from notebooks import open_notebook, run_cell, write_notebook
from playwright.sync_api import Browser, Locator, Page, expect
from playwright.sync_api import TimeoutError as PlaywrightTimeout

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

Look = Callable[[Page, str], None]
HOSTILE = "<img src=x onerror=alert(1)><b>a b</b>"
MONITOR = f"""%load_ext jupyter_slurm
import jupyter_slurm
text = 'import time\\nprint("hello")\\ntime.sleep(600)'
job = get_ipython().run_cell_magic("sbatch", "-p devwork -t 10 -J '{HOSTILE}'", text)
get_ipython().run_cell_magic("sbatch", "--begin now+3600 -a 1-20 -J sweep", "#!/bin/sh")
jupyter_slurm.monitor()"""
NOTEBOOK = "c.JupyterNotebookApp.expose_app_in_browser = True"


@pytest.fixture(scope="module")
def lab_files(lab_files: dict[str, str]) -> dict[str, str]:
    """Provide the site's settings of sessions."""
    return {**lab_files, ".jupyter/jupyter_slurm_config.py": 'c.JupyterSlurm.launch = {"memory": "2G"}\n'}


def _mean_it(place: Locator, word: str, done: re.Pattern[str] | None = None) -> None:
    """Press a button and its confirmation, which lasts five seconds: a busy browser misses it, or the kernel does."""
    question = place.get_by_role("button", name=f"Really {word.lower()}?")
    for _ in range(10):
        place.get_by_role("button", name=word, exact=True).click()
        with contextlib.suppress(PlaywrightTimeout):
            question.click(delay=500, timeout=4000)  # not a double click
            if done is not None:
                place.get_by_text(done).first.wait_for(timeout=20_000)
            return
    raise AssertionError(f"{word} asks nothing")


def _takes_clicks_meanwhile(page: Page) -> bool:
    """Return whether clicks arrive while a cell runs: with JupyterLab 4.4, Notebook 7.4, or newer."""
    version: str = page.evaluate("window.jupyterapp.version")
    return int(version.split(".")[1]) >= 4


def _cancel_while_a_cell_runs(page: Page, go: Path, screenshot: Look, axe: Look, name: str) -> None:
    """Run the table, the card of a job and an endless cell; look at the job, and cancel it meanwhile."""
    table = run_cell(page, 0)
    row = table.locator(".widget-hbox", has=page.locator(".jupyter-slurm-row"), has_text="<img").first
    expect(row).to_contain_text("RUNNING", timeout=90_000)
    controls = run_cell(page, 1).get_by_role("button", name="Cancel")
    expect(controls).to_be_visible()
    cell, takes_clicks = run_cell(page, 2), _takes_clicks_meanwhile(page)
    expect(row).to_contain_text("of 10:00")
    if not takes_clicks:
        expect(table).to_contain_text("This front end sends your clicks only when the cell has ended.")
        go.touch()
        expect(cell).to_contain_text("over")
    row.get_by_role("button", name="Log").click()
    expect(table.locator(".jupyter-slurm-job")).to_contain_text("hello")
    waiting = table.locator(".widget-hbox", has=page.locator(".jupyter-slurm-row"), has_text="sweep").first
    waiting.get_by_role("button", name="Hold").click()
    expect(waiting.get_by_role("button", name="Release")).to_be_visible()
    state, head = row.get_by_text("RUNNING"), table.get_by_text("State", exact=True)
    assert abs(state.bounding_box()["x"] - head.bounding_box()["x"]) < 2  # type: ignore[index]
    screenshot(page, name)
    axe(page, ".jupyter-slurm-monitor")
    _mean_it(row, "Cancel", re.compile("COMPLETING|CANCELLED"))
    expect(row).to_contain_text("CANCELLED")
    expect(controls).to_have_count(0)
    if takes_clicks:
        expect(cell).not_to_contain_text("over")
    expect(table).not_to_contain_text("sends your clicks")
    assert page.locator("img[src=x]").count() == 0
    go.touch()
    expect(cell).to_contain_text("over")


@pytest.mark.timeout(300)
def test_a_job_is_looked_at_and_cancelled_while_a_cell_runs(
    page: Page, lab: Any, browser: Browser, start_jupyter: Callable[..., Any], screenshot: Look, axe: Look
) -> None:
    wait = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.1)\nprint('over')"
    write_notebook(lab.home / "monitor.ipynb", MONITOR, "job", wait)
    open_notebook(page, f"{lab.url}lab/tree/monitor.ipynb")
    _cancel_while_a_cell_runs(page, lab.home / "go", screenshot, axe, "widget-monitor")

    other = start_jupyter("notebook", "--config=nb.py", files={"nb.py": NOTEBOOK})
    write_notebook(other.home / "monitor.ipynb", MONITOR, "job", wait)
    context = browser.new_context(viewport={"width": 1200, "height": 900})
    page = context.new_page()
    open_notebook(page, f"{other.url}notebooks/monitor.ipynb?token={other.token}")
    _cancel_while_a_cell_runs(page, other.home / "go", screenshot, axe, "widget-monitor-notebook")
    context.close()


@pytest.mark.timeout(300)
def test_forms_submit_and_launch(page: Page, lab: Any, screenshot: Look, axe: Look) -> None:
    start = "import jupyter_slurm\nlauncher = jupyter_slurm.launcher()\nlauncher"
    write_notebook(lab.home / "forms.ipynb", start, "jupyter_slurm.submit_form()", "jupyter_slurm.cluster_view()")
    page.set_viewport_size({"width": 1200, "height": 1500})
    open_notebook(page, f"{lab.url}lab/tree/forms.ipynb")
    launcher = run_cell(page, 0)
    expect(launcher.get_by_label("Memory")).to_have_value("2G")  # from the profile
    expect(launcher.get_by_label("GPUs")).to_have_value("1")  # as in the form of JupyterLab
    launcher.get_by_label("Partition").fill("arandu")
    launcher.get_by_label("GPUs").fill("9")
    expect(launcher.get_by_role("alert")).to_have_text("This partition has 8 GPUs in all.")
    launcher.get_by_label("GPUs").fill("a100:1")
    launcher.get_by_label("App").fill("tensorboard")
    launcher.get_by_label("Log directory").fill("-runs")
    launcher.get_by_role("button", name="Launch").click()
    expect(launcher.get_by_role("alert")).to_contain_text("logdir=-runs begins with a dash")  # nothing was submitted
    launcher.get_by_label("App").fill("jupyter")
    expect(launcher.get_by_label("Log directory")).to_have_count(0)
    launcher.get_by_label("Name").fill("training")
    expect(launcher.get_by_role("alert")).to_have_count(0)
    expect(launcher.get_by_text("= 4 h", exact=True)).to_be_visible()  # the time, in one form
    launcher.get_by_role("button", name="Launch").click()

    form = run_cell(page, 1)
    form.get_by_label("Partition").fill("arandu")
    form.get_by_label("GPUs").fill("9")
    expect(form.get_by_role("alert")).to_have_text("This partition has 8 GPUs in all.")
    expect(form.locator("code")).to_have_text("%%sbatch -p arandu --gpus=9")
    form.get_by_role("button", name="New cell").click()
    expect(form).to_contain_text("Added a new cell below.")
    written = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell .cm-content", has_text="%%sbatch")
    expect(written).to_have_text("%%sbatch -p arandu --gpus=9")
    free = run_cell(page, 3)
    expect(free).to_contain_text("of 8 a100 free")

    link = launcher.get_by_role("link", name="Open training")
    expect(link).to_be_visible(timeout=90_000)
    expect(launcher).to_contain_text("on dgx01")
    screenshot(page, "widget-forms")
    for name in ("launcher", "form", "cluster"):
        axe(page, f".jupyter-slurm-{name}")
    with page.context.expect_page() as opened:
        link.click()
    inner = opened.value
    expect(inner.locator(".jp-LauncherCard[data-category=Notebook]").first).to_be_visible(timeout=60_000)
    expect(inner).to_have_url(re.compile(f"^{re.escape(lab.url)}jupyter-slurm/"))
    (file,) = lab.home.rglob("serving/token")
    assert file.read_text() not in page.content() + inner.content()
    inner.close()
    _mean_it(launcher, "Stop")
    expect(launcher).not_to_contain_text("training", timeout=60_000)
