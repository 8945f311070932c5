"""Tests of a notebook with a remote kernel: added in the form, chosen in the launcher, restarted, shut down."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

NOTEBOOK = Path(__file__).resolve().parents[2] / "examples/quickstart.ipynb"
SHOWN = "arandu · 1 GPU · 20 min"
LONG = 120_000  # until the start of a kernel, on a busy machine
VARIABLES = """import os, threading
x, big, lock = [1, 2], bytes(40 << 20), threading.Lock()
class Fickle:
    def __reduce__(self):
        if os.path.exists("changed"):
            raise ValueError("it cannot be sent any more")
        return list, ()
fickle = Fickle(); print("here", x)"""
WHERE = "import os; print('job', os.environ['SLURM_JOB_ID'], 'GPU', os.environ['CUDA_VISIBLE_DEVICES'], x)"


def outputs(page: Page, code: str) -> Locator:
    """Return the outputs of the cell with this text."""
    editor = page.locator(".jp-InputArea-editor", has_text=code)
    return page.locator(".jp-CodeCell", has=editor).locator(".jp-OutputArea").first


def execute(page: Page, command: str, **args: Any) -> None:
    """Execute a command of JupyterLab without waiting for its end: it may open a dialog."""
    page.evaluate("([name, args]) => { void window.jupyterapp.commands.execute(name, args); }", [command, args])


def run_cell(page: Page, code: str) -> Locator:
    """Run the last cell of the active notebook, which is empty."""
    cell = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook .jp-Cell").last
    cell.locator(".cm-content").fill(code)
    cell.locator(".cm-content").press("Shift+Enter")
    return outputs(page, code.splitlines()[0])


def allocations(lab: Any) -> list[dict[str, Any]]:
    """Return the unfinished allocations, as the agent knows them."""
    headers = {"Authorization": f"token {lab.token}"}
    (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).raise_for_status().json()
    jobs = httpx.get(lab.api(f"v1/clusters/{known['id']}/jobs"), headers=headers, timeout=60).raise_for_status().json()
    return [job for job in jobs if job["kind"] == "allocation" and not job["finished"]]


@pytest.mark.timeout(900)
def test_from_the_form_to_a_notebook_whose_kernel_runs_on_a_node(
    page: Page,
    lab: Any,
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    _add(page, screenshot)
    execute(page, "launcher:create")
    page.locator(".jp-LauncherCard[data-category=Notebook]:visible", has_text=SHOWN).click()
    expect(page.get_by_text(f"{SHOWN} | Idle")).to_be_visible(timeout=LONG)  # shown before the node
    expect(run_cell(page, "x = 41; print('set', x)")).to_contain_text("set 41", timeout=LONG)
    status = page.locator("#jp-main-statusbar .jp-Slurm-status", has_text="Kernel on dgx01")
    expect(status).to_have_text(re.compile(r"Kernel on dgx01: [12]\d:\d\d left"))
    first = run_cell(page, WHERE)
    expect(first).to_have_text(re.compile(r"job \d+ GPU \d 41"), timeout=LONG)
    (before,) = allocations(lab)
    screenshot(page, "kernel")
    axe(page, "#jp-main-statusbar .jp-Slurm-status")

    # A restart is another step in the same allocation, without the variables.
    execute(page, "kernelmenu:restart")
    page.get_by_role("button", name="Confirm Kernel Restart").click()
    again = run_cell(page, "x = 'x' not in globals()  # anew\n" + WHERE)
    expect(again).to_contain_text(re.compile(rf"job {before['id']} GPU \d True"), timeout=LONG)
    (after,) = allocations(lab)
    assert after["key"] == before["key"]

    _run_the_quickstart(page, lab)
    screenshot(page, "kernel-quickstart")
    execute(page, "kernelmenu:shutdownAll")
    page.locator(".jp-Dialog .jp-mod-warn").click()
    wait_for(lambda: not allocations(lab), "the allocations are given back")
    expect(status).to_have_count(0)
    _remove(page)


@pytest.mark.timeout(600)
def test_a_notebook_moves_to_a_node_and_to_a_follow_up_allocation(
    page: Page,
    lab: Any,
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    words = ["arandu", "-p", "arandu", "--gpus", "1", "--mem", "1G", "--time", "20:00"]
    headers = {"Authorization": f"token {lab.token}"}
    httpx.post(lab.api("server/kernelspecs"), json={"words": words}, headers=headers, timeout=60).raise_for_status()
    execute(page, "notebook:create-new", kernelName="python3")
    expect(page.get_by_text("Python 3 (ipykernel) | Idle")).to_be_visible(timeout=LONG)
    expect(run_cell(page, VARIABLES)).to_contain_text("here", timeout=LONG)
    expect(run_cell(page, "def twice(a):\n    return [2 * each for each in a]\nprint('defined')")).to_contain_text(
        "defined"
    )
    run_cell(page, "%load_ext jupyter_slurm\n%salloc -p arandu --mem=1G --time=20:00 as=gpu")
    wait_for(lambda: [each["label"] for each in allocations(lab)] == ["gpu"], "the allocation is there")

    execute(page, "jupyter-slurm:move-notebook")
    dialog = page.locator(".jp-Dialog")
    expect(dialog.get_by_label("Kernel")).to_be_focused()
    for name, is_selected in [("x", True), ("twice", True), ("fickle", True), ("big", False)]:
        expect(dialog.locator(f"input[name={name}]")).to_be_checked(checked=is_selected)
    expect(dialog.locator("input[name=lock]")).to_be_disabled()
    expect(dialog).to_contain_text("cannot pickle")
    expect(dialog.get_by_role("checkbox", name="big bytes 40.0 MiB")).to_be_enabled()
    expect(dialog.get_by_label("Keep the allocation gpu")).to_be_checked()
    expect(dialog).to_contain_text("The next kernel of the notebook can use it.")
    expect(dialog).to_contain_text("4 variables selected, ")
    screenshot(page, "move")
    axe(page, ".jp-Dialog")

    (lab.home / "changed").touch()  # since it was listed
    dialog.get_by_role("button", name="Move").click()
    expect(dialog.get_by_role("alert")).to_contain_text("it cannot be sent any more")
    screenshot(page, "move-refused")
    for name in ("fickle", "Fickle"):
        dialog.locator(f"input[name={name}]").uncheck()
    expect(dialog).to_contain_text("2 variables selected, ")
    dialog.get_by_label("Kernel").press("Enter")
    expect(dialog).to_have_count(0)
    first = _there(page, "first", screenshot)
    found = re.search(r"job (\d+) GPU \d \[2, 4\]", first)
    assert found, first
    held, before = sorted(allocations(lab), key=lambda each: each["label"] != "gpu")
    assert (held["label"], held["keep"], Path(held["kept_for"]).suffix) == ("gpu", True, ".ipynb")
    assert before["id"] == found[1]
    execute(page, "jupyter-slurm:show-side-bar")
    row = page.locator(".jp-Slurm-panel [role=row]", has_text="kept allocation")
    expect(row).to_have_count(1)
    screenshot(page, "kept-allocation")

    # The kernel on the node takes it up, and it ends with that kernel unless it is kept again.
    step = run_cell(page, "%load_ext jupyter_slurm\n%srun -n1 printenv SLURM_JOB_ID")
    expect(step).to_contain_text(held["id"], timeout=LONG)
    wait_for(lambda: [each["keep"] for each in allocations(lab) if each["label"] == "gpu"] == [False], "taken up")

    execute(page, "jupyter-slurm:follow-up")
    expect(dialog).to_contain_text("2 variables selected, ")  # those of the last move
    dialog.get_by_label("Keep the allocation gpu").uncheck()
    expect(dialog).to_contain_text("releases its allocation gpu.")
    dialog.get_by_role("button", name="Request").click()
    second = _there(page, "second")
    wait_for(lambda: len(allocations(lab)) == 1, "the first allocation is given back, and gpu with it")
    (after,) = allocations(lab)
    assert after["id"] != before["id"]
    assert f"job {after['id']} GPU" in second
    assert "[2, 4]" in second
    execute(page, "kernelmenu:shutdownAll")
    page.locator(".jp-Dialog .jp-mod-warn").click()
    wait_for(lambda: not allocations(lab), "the allocation is given back")


def _there(page: Page, which: str, screenshot: Callable[[Page, str], None] | None = None) -> str:
    """Wait until the active notebook is on a node, without a reload; return the output of a cell."""
    status = page.locator("#jp-main-statusbar .jp-Slurm-status [data-move]")
    expect(status).to_have_text(re.compile(rf"(Waiting for|Moving to) {SHOWN}"))
    if screenshot is not None:
        screenshot(page, "moving")
    told = page.locator(".Toastify__toast", has_text=f"The notebook now uses {SHOWN}")
    expect(told).to_contain_text("Sent twice, x", timeout=LONG)
    told.get_by_role("button").last.click()
    expect(status).to_have_count(0)
    expect(page.get_by_text(f"{SHOWN} | Idle")).to_be_visible(timeout=LONG)
    printed = run_cell(page, f"# the {which} node\n" + WHERE.replace(", x)", ", twice(x))"))
    expect(printed).to_contain_text("job", timeout=LONG)
    return printed.inner_text()


def _add(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    execute(page, "launcher:create")
    page.locator(".jp-LauncherCard[data-category=Slurm]:visible", has_text="GPU notebook on arandu").click()
    form = page.get_by_role("form", name="GPU notebook on arandu")
    form.get_by_label("Partition").select_option("arandu")
    for field, text in [("CPUs", "1"), ("Memory", "1G"), ("Time limit", "20:00")]:
        form.get_by_label(field, exact=True).fill(text)
    form.get_by_role("button", name="Add as kernel…").click()
    name = page.locator(".jp-Dialog").get_by_label("Name in the launcher:")
    expect(name).to_have_value("arandu · 1 GPU · 20 min")
    name.fill(SHOWN)
    name.press("Enter")
    added = page.get_by_text(f"Kernel “{SHOWN}” was added to the launcher.")
    expect(added.first).to_be_visible(timeout=LONG)
    screenshot(page, "kernel-added")


def _run_the_quickstart(page: Page, lab: Any) -> None:
    """Run all cells with that kernel in the notebook: its jobs are submitted from a node."""
    notebook = json.loads(NOTEBOOK.read_text())
    (name,) = [folder.name for folder in (lab.home / ".local/share/jupyter/kernels").iterdir()]
    notebook["metadata"]["kernelspec"] = {"name": name, "display_name": SHOWN, "language": "python"}
    (lab.home / "quickstart.ipynb").write_text(json.dumps(notebook))
    page.set_viewport_size({"width": 1400, "height": 3000})  # invisible cells are not drawn
    execute(page, "docmanager:open", path="quickstart.ipynb")
    page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path === 'quickstart.ipynb'")
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.ready.then(() => null)")
    execute(page, "notebook:run-all-cells")
    hello = outputs(page, 'echo "GPUs: $CUDA_VISIBLE_DEVICES"')
    expect(hello).to_contain_text(re.compile(r"node: dgx01\s+GPUs: \d"), timeout=LONG)
    listing = outputs(page, "jupyter_slurm.jobs()")
    expect(listing).to_contain_text("fit", timeout=2 * LONG)
    expect(outputs(page, "cat /data/that/is/not/there")).to_contain_text("JobFailed")  # and no other cell failed


def _remove(page: Page) -> None:
    execute(page, "jupyter-slurm:remove-kernel")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text(f"Remove the kernel “{SHOWN}”?")
    dialog.get_by_role("button", name="Remove").click()
    execute(page, "launcher:create")
    expect(page.locator(".jp-LauncherCard[data-category=Notebook]:visible")).not_to_have_count(0)
    expect(page.locator(".jp-LauncherCard[data-category=Notebook]:visible", has_text=SHOWN)).to_have_count(0)
