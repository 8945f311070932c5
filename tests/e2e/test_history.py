"""Tests of the jobs that Slurm's controller has forgotten, in a real JupyterLab with a real accounting."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from jupyter_slurm.embedded import EmbeddedCluster, load_description
from jupyter_slurm.embedded.machine.packages import find_program

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

SAVED_PERIODS = """async () => {
    const { values } = await window.jupyterapp.serviceManager.workspaces.list();
    return values.map(({ data }) => data['jupyter-slurm-panel:table']?.period);
}"""
AGES_S = {"night": 2 * 86_400, "autumn": 20 * 86_400}


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster with accounting, whose controller forgets jobs two seconds after their end."""
    arandu = load_description()
    description = replace(
        arandu, extra=(*arandu.extra, "MinJobAge=2", "AccountingStoreFlags=job_comment,job_script"), accounting=True
    )
    with EmbeddedCluster(description, directory=short_tmp / "overnight") as running:
        yield running


@pytest.fixture
def nights(cluster: EmbeddedCluster, tmp_path: Path, wait_for: Callable[..., Any]) -> None:
    """Provide two jobs of a terminal, which only accounting knows: of two days ago, and of twenty."""
    program = find_program("mariadb") or find_program("mysql")
    socket = f"--socket={cluster.layout.database_socket}"
    table = f"{cluster.description.name}_job_table"
    columns = ("time_submit", "time_eligible", "time_start", "time_end", "mod_time")
    numbers = {}
    for name in AGES_S:
        command = ("sbatch", "--parsable", "-J", name, "--wrap", "echo the last words; exit 3")
        done = subprocess.run(command, env=cluster.env(), cwd=tmp_path, capture_output=True, text=True, check=True)
        numbers[name] = done.stdout.strip()
    wait_for(
        lambda: not cluster.run("squeue", "-h", "-t", "all").stdout.strip(), "the controller forgets the jobs", 120
    )
    for name, age in AGES_S.items():
        ended = ("sacct", "-nPX", "-o", "State,End", "-j", numbers[name])
        wait_for(lambda ended=ended: re.match(r"FAILED\|\d", cluster.run(*ended).stdout), "accounting has its end", 120)
        moves = ", ".join(f"{column} = {column} - {age}" for column in columns)
        moved = f"update {table} set {moves} where id_job = {numbers[name]}"
        subprocess.run([str(program), "--no-defaults", socket, "slurm", "-e", moved], check=True)


def _edit_and_resubmit(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    """The script and the options are shown before they are submitted, and can be changed."""
    page.locator(".jp-Slurm-job:visible").get_by_role("button", name="Edit and resubmit…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_label("Batch script")).to_have_value(re.compile("echo the last words; exit 3"))
    options = dialog.get_by_label("Options of sbatch, one a line")
    expect(options).to_have_value(re.compile("^--job-name=night\n--partition=devwork\n"))
    screenshot(page, "history-resubmit")
    options.press("ControlOrMeta+a")
    page.keyboard.type("--job-name=morning")
    page.keyboard.press("Enter")
    dialog.get_by_label("Batch script").fill("#!/bin/sh\necho good morning\n")
    dialog.get_by_role("button", name="Submit").click()
    shown = page.locator(".jp-Slurm-job:visible")
    expect(shown.get_by_role("heading", level=2)).to_have_text("morning")
    expect(shown.get_by_role("region", name="Standard output").get_by_text("good morning")).to_be_visible()


@pytest.mark.timeout(300)
@pytest.mark.usefixtures("nights")
def test_a_job_of_a_terminal_two_days_later(
    page: Page,
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    # Two clicks, however many jobs are newer.
    expect(page.locator(".jp-Slurm-failedStatus button")).to_have_text("1 failed")
    axe(page, ".jp-Slurm-failedStatus")
    page.locator(".jp-Slurm-failedStatus button").click()
    rows = page.locator(".jp-Slurm-body [role=row]")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("FAILED")
    rows.get_by_role("button", name="night").click()
    shown = page.locator(".jp-Slurm-job:visible")
    expect(shown.get_by_role("heading", level=2)).to_have_text("night")
    expect(shown.locator(".jp-Slurm-state")).to_have_text("FAILED")
    expect(shown.get_by_role("region", name="Standard output").get_by_text("the last words")).to_be_visible()
    screenshot(page, "history-job")
    _edit_and_resubmit(page, screenshot)
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open')")
    wide = page.locator("#jupyter-slurm-panel")
    period = wide.get_by_label("Finished jobs since")
    names = wide.locator(".jp-Slurm-body .jp-Slurm-name")
    wide.get_by_role("button", name="Clear filters").click()
    expect(names).to_have_text(["morning", "night"])
    for choice, shown_names in (
        ("Finished: last 24 h", ["morning"]),
        ("Finished: last 7 days", ["morning", "night"]),
        ("Finished: all", ["morning", "night", "autumn"]),
    ):
        period.select_option(choice)
        expect(names).to_have_text(shown_names)
    screenshot(page, "history-all")
    axe(page, "#jupyter-slurm-panel")
    wait_for(lambda: 0 in page.evaluate(SAVED_PERIODS), "the period is saved")
    page.reload()
    page.evaluate("window.jupyterapp.restored")
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:open')")
    expect(period).to_have_value("0")
    expect(names).to_have_text(["morning", "night", "autumn"])
