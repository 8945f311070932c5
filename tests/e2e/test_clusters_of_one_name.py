"""Test of two clusters with one ClusterName, in a real JupyterLab: neither is shown as, or acted on for, the other."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

from jupyter_slurm.embedded import EmbeddedCluster, load_description

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

NORTH, SOUTH = "arandu (northern)", "arandu (southern)"
ROWS = ".jp-Slurm-body [role=row]:visible"
FIRST_JOB = ("FirstJobId=7",)


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide the cluster of the Jupyter server."""
    with EmbeddedCluster(replace(load_description(), extra=FIRST_JOB), directory=short_tmp / "northern") as running:
        yield running


@pytest.fixture
def twins(
    cluster: EmbeddedCluster, new_cluster: Callable[..., EmbeddedCluster], short_tmp: Path
) -> list[EmbeddedCluster]:
    """Provide that cluster and one of the same name, whose jobs have the same numbers."""
    return [cluster, new_cluster(directory=short_tmp / "southern", extra=FIRST_JOB)]


@pytest.fixture
def job(lab: Any, twins: list[EmbeddedCluster], wait_for: Callable[..., Any]) -> str:
    """Provide the number of a job of one name that runs on each of them; the agent knows both clusters."""
    submit = ["sbatch", "--parsable", "-J", "twin", "-p", "devwork", "-o", "/dev/null", "--wrap=sleep 600"]
    (number,) = {one.run(*submit).stdout.strip() for one in twins}
    with httpx.Client(headers={"Authorization": f"token {lab.token}"}, timeout=60) as client:
        address = {"slurm_conf": str(twins[1].slurm_conf), "path": os.environ["PATH"]}
        client.post(lab.api("v1/clusters"), json=address).raise_for_status()

        def names() -> list[str]:
            return [one["name"] for one in client.get(lab.api("v1/clusters")).raise_for_status().json()]

        wait_for(lambda: names() == ["arandu", "arandu"], "both controllers have told the name of their cluster")
    return number


def _rows(page: Page, label: str) -> Locator:
    """Return the rows of jobs of a cluster, in the list of the side bar or in the table."""
    place = page.locator(".jp-Slurm-facts, .jp-Slurm-cluster", has_text=label)
    return page.locator(ROWS).filter(has=place)


def _execute(page: Page, command: str, **args: Any) -> None:
    """Execute a command without waiting for its end: it may open a dialog, and no widget can be returned."""
    page.evaluate("([name, args]) => { void window.jupyterapp.commands.execute(name, args); }", [command, args])


def _look_at_launcher_and_form(page: Page) -> None:
    _execute(page, "launcher:create")
    cards = page.locator(".jp-LauncherCard[data-category=Slurm]:visible", has_text="GPU notebook")
    for label in (NORTH, SOUTH):
        expect(cards.filter(has_text=f"on {label}")).to_have_count(1)
    cards.filter(has_text=f"on {SOUTH}").click()
    form = page.locator(".jp-Slurm-launch:visible")
    expect(form.get_by_role("heading", name=SOUTH)).to_be_visible()
    expect(form.get_by_label("Partition").locator("option", has_text="devwork")).to_have_count(1)
    expect(form.get_by_label("Partition").locator("option", has_text="a100")).to_have_count(0)


def _look_at_side_bar_and_table(page: Page) -> None:
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:show-side-bar')")
    expect(page.locator(ROWS)).to_have_count(2)
    for label in (NORTH, SOUTH):
        expect(_rows(page, label)).to_have_count(1)
        expect(page.locator("summary:visible", has_text=f"Free on {label}")).to_have_count(1)
    page.evaluate("window.jupyterapp.shell.collapseLeft()")
    _execute(page, "jupyter-slurm:open")
    cells = page.locator(f"{ROWS} .jp-Slurm-cluster")
    expect(cells).to_have_count(2)
    assert cells.evaluate_all("all => all.every(each => each.scrollWidth <= each.clientWidth)"), "no label is cut"
    for label in (NORTH, SOUTH):
        expect(_rows(page, label).locator(".jp-Slurm-state")).to_have_text("RUNNING")
    page.get_by_role("button", name="Cluster: filter").click()
    box = page.get_by_role("dialog", name="Filter by Cluster")
    expect(box.get_by_role("checkbox", name=NORTH)).to_have_count(1)
    box.get_by_role("checkbox", name=SOUTH).check()
    expect(page.locator(ROWS)).to_have_count(1)
    expect(_rows(page, SOUTH)).to_have_count(1)
    page.get_by_role("button", name="Clear filters").click()
    expect(page.locator(ROWS)).to_have_count(2)
    page.get_by_label("Filter jobs by").fill("southern")
    expect(page.locator(ROWS)).to_have_count(1)
    page.get_by_label("Filter jobs by").fill("")
    expect(page.locator(ROWS)).to_have_count(2)


def test_two_clusters_of_one_name_are_told_apart_and_a_job_is_cancelled_on_its_own(
    page: Page, twins: list[EmbeddedCluster], job: str
) -> None:
    _look_at_launcher_and_form(page)
    _look_at_side_bar_and_table(page)

    # The page of the job by its number, which both clusters have.
    _execute(page, "jupyter-slurm:open-job-by-id")
    dialog = page.locator(".jp-Dialog:visible")
    dialog.locator("input").fill(job)
    dialog.get_by_role("button", name="Open").click()
    expect(dialog.locator(".jp-Dialog-header")).to_have_text(f"On which cluster is job {job}?")
    expect(dialog.locator("option", has_text=NORTH)).to_have_count(1)
    dialog.locator("select").select_option(SOUTH)
    dialog.get_by_role("button", name="Open").click()
    shown = page.locator(".jp-Slurm-job:visible")
    expect(shown).to_contain_text(f"job {job} · {SOUTH} · ")
    shown.get_by_role("tab", name="Resources").click()
    expect(shown.get_by_role("tabpanel")).to_contain_text(SOUTH)

    shown.get_by_role("button", name="Cancel").click()
    expect(dialog.locator(".jp-Dialog-header")).to_have_text(f"Cancel job {job} (twin · {SOUTH})?")
    dialog.get_by_role("button", name="Keep it").click()
    _execute(page, "jupyter-slurm:cancel", job=job)
    expect(dialog.locator(".jp-Dialog-header")).to_have_text("Cancel which job?")
    expect(dialog.locator("option", has_text=f"{job} · twin · RUNNING · arandu (")).to_have_count(2)
    dialog.get_by_role("button", name="Cancel", exact=True).click()
    _execute(page, "jupyter-slurm:open")
    _rows(page, SOUTH).get_by_role("button", name=f"Cancel job {job}").click()
    expect(dialog.locator(".jp-Dialog-header")).to_have_text(f"Cancel job {job} (twin · {SOUTH})?")
    dialog.get_by_role("button", name="Cancel the job").click()
    expect(_rows(page, SOUTH).locator(".jp-Slurm-state")).to_contain_text("CANCELLED")
    expect(_rows(page, NORTH).locator(".jp-Slurm-state")).to_have_text("RUNNING")
    states = [one.run("squeue", "-ho%T", "-j", job, "--states=all").stdout.strip() for one in twins]
    assert states == ["RUNNING", "CANCELLED"]
