"""The status bar and the table of jobs, in a real JupyterLab with a real Slurm behind it."""

from __future__ import annotations

import os
import re
import secrets
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

expect.set_options(timeout=30_000)

HOSTILE = "<img src=x onerror=alert(1)><b>a b</b>"


@pytest.fixture
def sbatch(cluster: Any, lab: Any) -> Iterator[Callable[..., str]]:
    """``sbatch(*options)``: a job from a terminal, which sleeps; its id. Cancelled at the end of the test."""
    env = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf)}
    ids: list[str] = []

    def submit(*options: str) -> str:
        command = ["sbatch", "--parsable", "--output=/dev/null", *options, "--wrap=sleep 600"]
        done = subprocess.run(command, env=env, cwd=lab.home, capture_output=True, text=True, check=True)
        ids.append(done.stdout.strip())
        return ids[-1]

    yield submit
    subprocess.run(["scancel", *ids], env=env, check=True)


@pytest.fixture
def submit(lab: Any, cluster: Any) -> Callable[..., str]:
    """``submit(*options)``: a job of ours, which sleeps; its id."""
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf)}
    context = {"cwd": str(lab.home), "env": env, "umask": 0o22, "limits": {}}

    def submit(*options: str) -> str:
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        text = "#!/bin/bash\nsleep 600\n"
        asked = {"key": key, "kind": "script", "text": text, "options": options, "args": [], "context": context}
        headers = {"Authorization": f"token {lab.token}"}
        (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).json()
        answer = httpx.post(lab.api(f"v1/clusters/{known['id']}/jobs"), json=asked, headers=headers, timeout=60)
        return str(answer.raise_for_status().json()["id"])

    return submit


def row_of(page: Page, job: str) -> Locator:
    cell = page.locator(".jp-Slurm-id", has_text=re.compile(f"^{job}$"))
    return page.locator(".jp-Slurm-panel tbody tr").filter(has=cell)


def test_jobs_are_seen_and_cancelled(
    page: Page,
    sbatch: Callable[..., str],
    submit: Callable[..., str],
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
) -> None:
    status = page.locator(".jp-Slurm-status button")
    expect(status).to_have_text("Slurm: no jobs")  # those that follow are seen by the one poller, every 10 s
    running = sbatch("-p", "arandu", "--gpus=1")
    waiting = submit("-J", HOSTILE, "-p", "devwork", "--begin=now+1hour")
    expect(status).to_have_text("Slurm: 1 running, 1 pending")
    status.click()
    rows = page.locator(".jp-Slurm-panel tbody tr")
    expect(rows).to_have_count(2)
    row = row_of(page, waiting)
    expect(row.locator(".jp-Slurm-name")).to_have_text(HOSTILE)
    expect(row.locator(".jp-Slurm-state")).to_have_text("PENDING")
    expect(row.locator(".jp-Slurm-reason")).not_to_be_empty()
    expect(row_of(page, running).locator(".jp-Slurm-time")).not_to_be_empty()
    screenshot(page, "panel")
    axe(page, ".jp-Slurm-panel")
    axe(page, ".jp-Slurm-status")

    expect(row_of(page, running).locator(".jp-Slurm-nodes")).to_have_text("dgx01")
    cancel = row.get_by_role("button", name=f"Cancel job {waiting}")
    cancel.click()
    expect(page.locator(".jp-Dialog-header")).to_have_text(f"Cancel job {waiting} ({HOSTILE})?")
    screenshot(page, "panel-cancel")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    expect(row.locator(".jp-Slurm-state")).to_have_text("PENDING")
    expect(cancel).to_be_enabled()
    page.set_viewport_size({"width": 700, "height": 900})
    expect(cancel).to_be_in_viewport(ratio=1)
    screenshot(page, "panel-narrow")
    page.set_viewport_size({"width": 1400, "height": 900})
    cancel.click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(row.locator(".jp-Slurm-state")).to_contain_text("CANCELLED")
    expect(row.get_by_role("button")).to_have_count(0)
    expect(status).to_have_text("Slurm: 1 running")

    page.reload()  # what was over before the page was loaded is shown as well
    status.click()
    expect(row.locator(".jp-Slurm-state")).to_contain_text("CANCELLED")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Hide finished").click()
    expect(rows).to_have_count(1)
    page.get_by_role("button", name="Show finished (1)").click()
    expect(rows).to_have_count(2)


SAVED_LAYOUT = """async () => {
    const { values } = await window.jupyterapp.serviceManager.workspaces.list();
    return JSON.stringify(values.map(({ data }) => data['layout-restorer:data']?.main));
}"""


def test_the_palette_has_the_command_and_the_panel_comes_back_after_a_reload(
    page: Page, wait_for: Callable[..., Any]
) -> None:
    page.keyboard.press("ControlOrMeta+Shift+C")
    page.locator(".lm-CommandPalette-input").fill("slurm show jobs")
    page.locator(".lm-CommandPalette-item", has_text="Show Jobs").click()
    expect(page.locator(".jp-Slurm-panel h2")).to_have_text("My Slurm jobs")
    wait_for(lambda: "jupyter-slurm:jobs" in page.evaluate(SAVED_LAYOUT), "the layout is saved")
    page.reload()
    expect(page.locator(".jp-Slurm-panel h2")).to_have_text("My Slurm jobs")


def test_the_launcher_has_a_card(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    page.evaluate("window.jupyterapp.commands.execute('launcher:create')")
    card = page.locator(".jp-LauncherCard", has_text="Slurm Jobs")
    card.scroll_into_view_if_needed()
    screenshot(page, "launcher")
    card.click()
    expect(page.locator(".jp-Slurm-panel h2")).to_have_text("My Slurm jobs")


def test_a_controller_that_is_down_and_an_agent_that_is_killed(
    page: Page,
    lab: Any,
    cluster: Any,
    sbatch: Callable[..., str],
    submit: Callable[..., str],
    screenshot: Callable[[Page, str], None],
) -> None:
    """What is shown is told to be old, jobs that run are seen above those that wait, and all is as before afterwards."""
    status = page.locator(".jp-Slurm-status button")
    sbatch("-p", "devwork", "--hold", "--array=1-2000")
    running = submit("-p", "arandu")  # ours, and the last: with it the poller sees both
    expect(status).to_have_text("Slurm: 1 running, 1 pending")
    status.click()
    rows = page.locator(".jp-Slurm-panel tbody tr")
    expect(rows.first.locator(".jp-Slurm-id")).to_have_text(running)
    expect(rows.nth(1).locator(".jp-Slurm-id")).to_contain_text("2000 tasks")
    cluster.stop_controller()
    expect(status).to_have_text("Slurm: 1 running, 1 pending, as last known", timeout=90_000)
    expect(page.locator(".jp-Slurm-notice")).to_contain_text("Unable to contact slurm controller")
    expect(row_of(page, running).locator(".jp-Slurm-reason")).to_contain_text("Not known since")
    screenshot(page, "controller-down")
    cluster.start_controller()
    headers = {"Authorization": f"token {lab.token}"}
    os.kill(httpx.get(lab.api("v1/agent"), headers=headers, timeout=60).json()["pid"], signal.SIGKILL)
    expect(status).to_have_text("Slurm: 1 running, 1 pending", timeout=90_000)
    expect(page.locator(".jp-Slurm-notice")).to_be_empty()


def test_a_server_without_an_answer_is_told_in_words(page: Page, lab: Any) -> None:
    status = page.locator(".jp-Slurm-status button")
    expect(status).to_have_attribute("data-connection", "live")
    problem = '{"title": "AgentUnreachable", "detail": "No agent answers.", "hint": "Look at its log."}'
    page.route(
        "**/jupyter-slurm/api/**",
        lambda route: route.fulfill(status=503, content_type="application/problem+json", body=problem),
    )
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:refresh')")
    expect(status).to_have_text("Slurm: not reachable")
    expect(status).to_have_attribute("title", "No agent answers.\nLook at its log.")
    page.unroute("**/jupyter-slurm/api/**")
    expect(status).to_have_attribute("data-connection", "live")


def test_a_server_that_has_ended_is_told_in_words(page: Page) -> None:
    status = page.locator(".jp-Slurm-status button")
    expect(status).to_have_attribute("data-connection", "live")
    page.route("**/jupyter-slurm/api/**", lambda route: route.abort("connectionrefused"))
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:refresh')")
    expect(status).to_have_text("Slurm: not reachable")
    expect(status).to_have_attribute(
        "title",
        "The Jupyter server does not answer: has it ended, or the network?\nThe connection is tried again by itself.",
    )
