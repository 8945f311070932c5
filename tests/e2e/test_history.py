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

TWO_DAYS_S = 2 * 86_400


@pytest.fixture(scope="module")
def cluster(short_tmp: Path) -> Iterator[EmbeddedCluster]:
    """Provide a cluster with accounting, whose controller forgets jobs two seconds after their end."""
    arandu = load_description()
    description = replace(arandu, extra=(*arandu.extra, "MinJobAge=2"), accounting=True)
    with EmbeddedCluster(description, directory=short_tmp / "overnight") as running:
        yield running


@pytest.fixture
def night(cluster: EmbeddedCluster, tmp_path: Path, wait_for: Callable[..., Any]) -> str:
    """Provide a job of a terminal that failed two days ago, which only accounting knows; return its ID."""
    command = ("sbatch", "--parsable", "-J", "night", "--wrap", "echo the last words; exit 3")
    number = subprocess.run(
        command, env=cluster.env(), cwd=tmp_path, capture_output=True, text=True, check=True
    ).stdout.strip()
    wait_for(lambda: not cluster.run("squeue", "-h", "-t", "all").stdout.strip(), "the controller forgets the job", 120)
    ended = ("sacct", "-nPX", "-o", "State,End", "-j", number)
    wait_for(lambda: re.match(r"FAILED\|\d", cluster.run(*ended).stdout), "accounting has its end", 120)
    columns = ("time_submit", "time_eligible", "time_start", "time_end", "mod_time")
    table = f"{cluster.description.name}_job_table"
    moved = f"update {table} set {', '.join(f'{column} = {column} - {TWO_DAYS_S}' for column in columns)}"
    program = find_program("mariadb") or find_program("mysql")
    socket = f"--socket={cluster.layout.database_socket}"
    subprocess.run([str(program), "--no-defaults", socket, "slurm", "-e", moved], check=True)
    return number


@pytest.mark.timeout(300)
def test_a_job_of_a_terminal_two_days_later(night: str, page: Page, screenshot: Callable[[Page, str], None]) -> None:
    page.locator(".jp-Slurm-status button").click()
    row = page.locator(".jp-Slurm-body [role=row]", has_text="night")
    expect(row).to_contain_text("FAILED")
    row.click()
    page.keyboard.press("Enter")
    shown = page.locator(".jp-Slurm-job:visible")
    expect(shown.get_by_role("heading", level=2)).to_have_text("night")
    expect(shown.locator(".jp-Slurm-state")).to_have_text("FAILED")
    expect(shown.get_by_role("region", name="Standard output").get_by_text("the last words")).to_be_visible()
    screenshot(page, "history-job")
