"""Widgets in a real JupyterLab: what they show, and what a click does while a cell runs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

expect.set_options(timeout=30_000)

HOSTILE = "<img src=x onerror=alert(1)><b>a b</b>"


def _notebook(path: Path, *cells: str) -> None:
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    nbformat.write(made, path)


def _open(page: Page, lab: Any, name: str) -> None:
    page.goto(f"{lab.url}lab/tree/{name}")
    page.wait_for_function(
        """shown => {
            const current = window.jupyterapp.shell.currentWidget;
            return current?.context?.path === shown && current.sessionContext?.session?.kernel?.status === 'idle';
        }""",
        arg=name,
    )


def _run(page: Page, number: int) -> Locator:
    page.evaluate(
        """number => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
            void window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        number,
    )
    return page.locator(".jp-CodeCell").nth(number).locator(".jp-OutputArea").first


@pytest.mark.timeout(300)
def test_a_job_starts_and_is_cancelled_in_the_table_while_a_cell_runs(
    page: Page, lab: Any, screenshot: Callable[[Page, str], None]
) -> None:
    go = lab.home / "go"
    _notebook(
        lab.home / "monitor.ipynb",
        f"%load_ext jupyter_slurm\nimport jupyter_slurm\njob = get_ipython().run_cell_magic('sbatch', '-p devwork -t 10 -J \"{HOSTILE}\"', 'import time\\nprint(\"hello\")\\ntime.sleep(600)')\n"
        "for _ in '12': get_ipython().run_cell_magic('sbatch', '--hold -a 1-20 -J sweep', '#!/bin/sh')",
        "jupyter_slurm.monitor()",
        f"import os, time\nwhile not os.path.exists({str(go)!r}): time.sleep(0.1)\nprint('over')",
        "job",
    )
    _open(page, lab, "monitor.ipynb")
    _run(page, 0)
    table = _run(page, 1)
    row = table.locator(".widget-hbox", has=page.locator("[role=row]"), has_text="<img")
    expect(row).to_contain_text("RUNNING", timeout=90_000)
    card = _run(page, 3)
    expect(card.get_by_role("button", name="Cancel")).to_be_visible()
    cell = _run(page, 2)
    expect(row).to_contain_text("of 10:00")
    row.get_by_role("button", name="Log").click()
    expect(table.locator(".jupyter-slurm-job")).to_contain_text("hello")
    screenshot(page, "widget-monitor")
    cancel = row.get_by_role("button", name="Cancel")
    cancel.click()
    row.get_by_role("button", name="Really cancel?").click()
    expect(row).to_contain_text("CANCELLED")
    expect(cell).not_to_contain_text("over")
    expect(table).not_to_contain_text("hands over")
    assert page.locator("img[src=x]").count() == 0
    go.touch()
    expect(cell).to_contain_text("over")
    page.evaluate("window.jupyterapp.commands.execute('docmanager:save')")
