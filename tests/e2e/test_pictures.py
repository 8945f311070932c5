"""Pictures and animation of the documentation, from the running software, in both themes.

They are written into test-results/; with JUPYTER_SLURM_STORE_PICTURES=1 (``make docs-images``) into docs/images/.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from nbformat import writes
from notebooks import new_notebook, open_notebook, run_cell, write_notebook
from playwright.sync_api import Locator, Page, expect
from recording import Recording

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

THEMES = {"light": "JupyterLab Light", "dark": "JupyterLab Dark"}
FOLDER = "import os\nc.ServerApp.root_dir = os.path.join(os.environ['HOME'], 'project')\n"
MAX_ANIMATION_BYTES = 1_000_000

FIT = """%%sbatch -p arandu --gpus 1 --time 10:00   as=fit
import time
import matplotlib.pyplot as plt

losses = []
for epoch in range(1, 6):
    losses.append(2.5 * 0.55**epoch)
    print(f"epoch {epoch}: loss {losses[-1]:.3f}", flush=True)
    time.sleep(0.8)
plt.figure(figsize=(4.5, 1.8))
plt.plot(losses, "o-")
plt.show()"""
TRAINING = """%%sbatch -p arandu --gpus 2 --time 2:00:00 -J resnet   as=resnet
#!/bin/bash
for n in {1..9}; do echo "epoch $n: loss 0.$((99 - 9 * n))"; done
sleep 600"""
EVALUATE = """%%sbatch -p devwork --time 30:00 -J evaluate   after=resnet
print("accuracy")"""
SWEEP = """%%sbatch -p devwork --time 1:00:00 --array 1-20%4 -J sweep
#!/bin/bash
sleep 600"""


@pytest.fixture(scope="module")
def lab_files(lab_files: dict[str, str]) -> dict[str, str]:
    """Provide a home with a folder of a user's notebooks."""
    notebook = new_notebook("%load_ext jupyter_slurm", FIT, TRAINING, EVALUATE, SWEEP)
    own = {"project/experiment.ipynb": writes(notebook), "project/train.py": "", "project/data/README.md": ""}
    return {**lab_files, **own, "lab.py": lab_files["lab.py"] + FOLDER}


@pytest.fixture
def folder(request: pytest.FixtureRequest) -> Path:
    """Provide the folder for pictures."""
    is_kept = os.environ.get("JUPYTER_SLURM_STORE_PICTURES")
    folder = Path(request.config.rootpath, "docs/images" if is_kept else "test-results")
    folder.mkdir(exist_ok=True)
    return folder


@pytest.fixture
def wear(page: Page) -> Callable[[str], None]:
    """Return ``wear(theme)``, which changes the theme of JupyterLab: light or dark."""

    def change(theme: str) -> None:
        page.evaluate("theme => window.jupyterapp.commands.execute('apputils:change-theme', {theme})", THEMES[theme])
        page.wait_for_selector(f"body[data-jp-theme-name='{THEMES[theme]}']", state="attached")
        page.wait_for_selector("#jupyterlab-splash", state="detached")

    return change


@pytest.fixture
def picture(page: Page, folder: Path, wear: Callable[[str], None]) -> Callable[[str], None]:
    """Return ``picture(name)``, which takes NAME-light.png and NAME-dark.png."""

    def take(name: str) -> None:
        page.add_style_tag(content=".Toastify { display: none }")  # notifications are over what is to be seen
        for theme in ("dark", "light"):
            wear(theme)
            page.screenshot(path=folder / f"{name}-{theme}.png")

    return take


@pytest.fixture
def all_gpus(cluster: Any) -> Iterator[Callable[[], Callable[[], None]]]:
    """Return a function that takes all GPUs of the DGX, and returns one that releases them."""
    env = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf)}
    jobs: list[str] = []

    def take() -> Callable[[], None]:
        command = ["sbatch", "--parsable", "--output=/dev/null", "--chdir=/", "-p", "arandu", "--gpus=8"]
        done = subprocess.run(
            [*command, "--wrap=sleep 600"], env=env, cwd="/", capture_output=True, text=True, check=True
        )
        jobs.append(done.stdout.strip())
        return lambda: void(subprocess.run(["scancel", jobs[-1]], env=env, check=True))

    yield take
    subprocess.run(["scancel", *jobs], env=env, check=False)


def void(_: object) -> None:
    """Return nothing."""


def _launch(page: Page, picture: Callable[[str], None]) -> None:
    """Take pictures of the form and of the session."""
    page.set_viewport_size({"width": 1400, "height": 720})
    page.evaluate("window.jupyterapp.commands.execute('launcher:create').then(() => null)")
    card = page.locator(".jp-LauncherCard[data-category=Slurm]", has_text="GPU notebook on arandu")
    card.scroll_into_view_if_needed()
    card.click()
    form = page.locator(".jp-Slurm-launch form, form.jp-Slurm-launch").first
    expect(form.get_by_label("Partition")).to_contain_text("arandu (8 of 8 a100 free")
    form.get_by_label("Partition").select_option("arandu")
    form.locator("[data-field=gpus] input").fill("1")
    form.locator("[data-field=name] input").fill("training")
    picture("launch")
    form.locator("[data-field=name] input").press("Enter")
    session = page.locator(".jp-Slurm-session")
    expect(session).to_have_attribute("data-session", "ready", timeout=120_000)
    picture("session")


def _show_jobs(page: Page, lab: Any, picture: Callable[[str], None]) -> None:
    """Take pictures of the table of jobs with what is free, and of the page of a job."""
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open')")
    panel = page.locator("#jupyter-slurm-panel")

    def row(name: str) -> Locator:
        own = page.locator(".jp-Slurm-name", has_text=re.compile(f"^{name}$"))
        return panel.locator(".jp-Slurm-body [role=row]", has=own).first

    expect(row("evaluate").locator(".jp-Slurm-reason")).not_to_be_empty(timeout=90_000)
    expect(row("resnet").locator(".jp-Slurm-nodes")).to_have_text("dgx01", timeout=90_000)
    panel.locator("details.jp-Slurm-free > summary").click()
    free = panel.locator(".jp-Slurm-resources")
    free.get_by_role("button").first.click()  # asks Slurm again
    expect(free.locator("[data-gpu=a100]")).to_contain_text("5 of 8 free")
    picture("jobs")
    headers = {"Authorization": f"token {lab.token}"}
    (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).json()
    place = {"cluster": known["id"], "job": row("resnet").locator(".jp-Slurm-id").inner_text()}
    page.evaluate("place => window.jupyterapp.commands.execute('jupyter-slurm:open-job', place)", place)
    expect(page.locator(".jp-Slurm-job")).to_contain_text("epoch 9: loss 0.18", timeout=90_000)
    picture("job")


@pytest.mark.timeout(600)
def test_pictures_are_taken(page: Page, lab: Any, picture: Callable[[str], None]) -> None:
    _launch(page, picture)
    page.set_viewport_size({"width": 1400, "height": 900})
    open_notebook(page, f"{lab.url}lab/tree/experiment.ipynb")
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    run_cell(page, 0)
    fit = run_cell(page, 1)
    expect(fit).to_contain_text("COMPLETED", timeout=120_000)
    expect(fit.locator("img")).to_be_visible()
    picture("cell")
    for number in (2, 3, 4):
        run_cell(page, number)
    _show_jobs(page, lab, picture)
    widgets = lab.home / "project" / "widgets.ipynb"
    write_notebook(
        widgets,
        "import jupyter_slurm\n\njupyter_slurm.monitor()",
        "jupyter_slurm.submit_form()",
        "jupyter_slurm.cluster_view()",
    )
    page.set_viewport_size({"width": 1200, "height": 1300})
    open_notebook(page, f"{lab.url}lab/tree/widgets.ipynb")
    expect(run_cell(page, 0)).to_contain_text("RUNNING", timeout=90_000)
    form = run_cell(page, 1)
    form.get_by_label("Partition").fill("arandu")
    form.get_by_label("GPUs").fill("a100:2")
    expect(form.locator("code")).to_have_text("%%sbatch -p arandu --gpus=a100:2")
    expect(run_cell(page, 2)).to_contain_text("of 8 a100 free")
    picture("widgets")


def _type(editor: Locator, text: str, recording: Recording) -> None:
    """Type a line as a user does: by words."""
    for word in re.findall(r"\S+\s*", text):
        editor.press_sequentially(word)
        recording.take()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("theme", THEMES)
def test_the_animation_shows_a_cell_that_becomes_a_job(
    page: Page,
    lab: Any,
    folder: Path,
    wear: Callable[[str], None],
    all_gpus: Callable[[], Callable[[], None]],
    theme: str,
) -> None:
    """Waiting for a GPU, running, a figure below the cell: real waits, recorded as they come."""
    first, _, body = FIT.partition("\n")
    write_notebook(lab.home / "project" / f"demo-{theme}.ipynb", "%load_ext jupyter_slurm", "\n" + body)
    page.set_viewport_size({"width": 820, "height": 700})
    open_notebook(page, f"{lab.url}lab/tree/demo-{theme}.ipynb")
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    wear(theme)
    run_cell(page, 0)
    release = all_gpus()
    cell = page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(1)
    editor = cell.locator(".cm-content")
    editor.click()
    editor.press("ControlOrMeta+Home")
    page.add_style_tag(content=".jp-cell-toolbar, .Toastify { display: none }")
    recording = Recording(page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-Notebook"))
    recording.take()
    _type(editor, first, recording)
    shown = run_cell(page, 1)
    expect(shown).to_contain_text("PENDING")
    recording.take_until(lambda: False, seconds=2.5)
    release()
    recording.take_until(lambda: "COMPLETED" in shown.inner_text() and shown.locator("img").count() > 0, seconds=60)
    shown.locator("img").scroll_into_view_if_needed()
    recording.take(last_for=3.0)
    file = folder / f"demo-{theme}.gif"
    recording.save(file)
    assert file.stat().st_size <= MAX_ANIMATION_BYTES
    assert 5 < recording.seconds < 30
