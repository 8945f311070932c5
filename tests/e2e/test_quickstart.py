"""Tests of the quickstart notebook in a browser: all cells, in a real JupyterLab, as jobs of a real Slurm."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/quickstart.ipynb"


def outputs(page: Page, code: str) -> Locator:
    """Return the outputs of the cell with this text."""
    editor = page.locator(".jp-InputArea-editor", has_text=code)
    return page.locator(".jp-CodeCell", has=editor).locator(".jp-OutputArea").first


@pytest.mark.timeout(600)
def test_every_cell_shows_what_its_job_did(
    page: Page, lab: Any, screenshot: Callable[[Page, str], None], wait_for: Callable[..., Any]
) -> None:
    shutil.copy(NOTEBOOK, lab.home / "quickstart.ipynb")
    page.set_viewport_size({"width": 1400, "height": 3000})  # invisible cells are not drawn
    page.goto(f"{lab.url}lab/tree/quickstart.ipynb")
    page.wait_for_function("window.jupyterapp.shell.currentWidget?.sessionContext?.session?.kernel?.status === 'idle'")
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.ready")
    page.evaluate("() => { void window.jupyterapp.commands.execute('notebook:run-all-cells'); }")  # not awaited

    expect(outputs(page, 'echo "GPUs: $CUDA_VISIBLE_DEVICES"')).to_contain_text(re.compile(r"node: dgx01\s+GPUs: \d"))
    listing = outputs(page, "jupyter_slurm.jobs()")
    expect(listing).to_contain_text(re.compile(r"quickstart\.ipynb \[\d+\]"), timeout=240_000)
    for state in ("COMPLETED", "CANCELLED", "FAILED"):
        expect(listing).to_contain_text(state)
    # While other cells ran, the output of the job was added to its own cell.
    fit = outputs(page, "# Fit sin(x) by")
    expect(fit).to_contain_text(re.compile(r"step\s+1 +loss\s+99\.5000.*step 2000 +loss", re.DOTALL))
    expect(fit).to_contain_text("COMPLETED")
    expect(outputs(page, "fit.wait()")).to_contain_text("sin(x) is about")
    expect(outputs(page, "long.state")).to_contain_text("CANCELLED")
    failed = outputs(page, "cat /data/that/is/not/there")
    expect(failed).to_contain_text("No such file or directory")
    expect(failed).to_contain_text("JobFailed")
    expect(page.locator("[data-mime-type='application/vnd.jupyter.stderr']")).to_have_count(1)  # no other cell failed
    expect(page.locator(".jp-Slurm-status button")).to_have_text(re.compile("^Slurm: "))
    screenshot(page, "quickstart")
