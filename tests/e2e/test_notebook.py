"""Test of Notebook 7: a cell that becomes a job, the list of jobs, and a session from the form to its page."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from notebooks import open_notebook, run_cell, write_notebook
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

CONFIG = """
c.JupyterNotebookApp.expose_app_in_browser = True
"""


def _submit_a_cell(page: Page, served: Any) -> None:
    script = "%%sbatch as=training\n#!/bin/bash\nsleep 600"
    write_notebook(served.home / "one.ipynb", "%load_ext jupyter_slurm", script, "training.cancel()")
    open_notebook(page, f"{served.url}notebooks/one.ipynb?token={served.token}")
    run_cell(page, 0)
    expect(run_cell(page, 1)).to_contain_text("RUNNING")


def _launch_and_open(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    form = page.get_by_role("form", name="GPU notebook on arandu")
    expect(form.get_by_label("Partition")).to_contain_text(re.compile("arandu .*8 a100"))
    screenshot(page, "notebook-form")
    form.get_by_role("button", name="Launch", exact=True).click()
    session = page.locator(".jp-Slurm-session")
    expect(session).to_have_attribute("data-session", "ready", timeout=120_000)
    with page.context.expect_page() as opened:
        session.get_by_role("link", name="Open session").click()
    expect(opened.value.locator(".jp-LauncherCard[data-category=Notebook]").first).to_be_visible(timeout=120_000)
    opened.value.close()
    session.get_by_role("button", name=re.compile("^Stop session ")).click()
    page.get_by_role("button", name="Stop the session").click()
    expect(session).to_have_attribute("data-session", "ended")


HAS_ROOM = """row => {
    const { left } = row.querySelector(".jp-Slurm-action").getBoundingClientRect();
    return [...row.querySelectorAll(".jp-Slurm-cell")].every(cell => cell.getBoundingClientRect().right <= left + 1);
}"""


@pytest.mark.timeout(600)
def test_notebook_7(
    new_page: Callable[[], Page], start_jupyter: Callable[..., Any], screenshot: Callable[[Page, str], None]
) -> None:
    """Notebook 7 has no launcher and no status bar; the menu exists, and the extension's pages stand beside its own."""
    served = start_jupyter("notebook", "--config=nb.py", files={"nb.py": CONFIG})
    notebook = new_page()
    _submit_a_cell(notebook, served)
    page = notebook.context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto(f"{served.url}tree")
    menu = page.locator(".lm-MenuBar-item", has_text="Slurm")
    menu.click()
    page.locator(".lm-Menu-item[data-command='jupyter-slurm:open']").click()
    panel = page.locator("#jupyter-slurm-panel")
    expect(panel).to_contain_text("training")
    assert panel.locator(".jp-Slurm-body [role=row]").first.evaluate(HAS_ROOM), "Cancel lies over no other cell"
    screenshot(page, "notebook-jobs")
    menu.click()
    page.locator(".lm-Menu-item", has_text="New GPU Notebook").click()
    _launch_and_open(page, screenshot)
    run_cell(notebook, 2)
    expect(notebook.locator(".jupyter-slurm-job").first).to_contain_text("CANCELLED")
    expect(page.locator(".Toastify__toast")).to_have_count(0)
    assert not [text for text in wrong if "lurm" in text]
