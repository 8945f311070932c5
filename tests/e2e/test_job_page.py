"""Tests of the page of a job, in a real JupyterLab with a real Slurm."""

from __future__ import annotations

import os
import re
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

HOSTILE = "<img src=x onerror=alert(1)><b>a b</b>"
SCRIPT = rf"""#!/bin/bash
printf '\033[31;1mred\033[0m {HOSTILE}\n10 %%\r100 %%\n'
for n in {{1..200}}; do echo "line $n"; done
until [ -e go ]; do sleep 0.2; done
echo "it goes on"
until [ -e stop ]; do sleep 0.2; done
echo "these are the last words"
exit 3
"""
SAVED = """async () => {
    const { values } = await window.jupyterapp.serviceManager.workspaces.list();
    return JSON.stringify(values.map(({ data }) => data['layout-restorer:data']?.main)).includes('jupyter-slurm-job:');
}"""
GIB = 2**30
LINES = 120_000  # more than the pieces that are read, so that all that is shown is text


@pytest.fixture
def submit(lab: Any, cluster: Any) -> Callable[..., dict[str, Any]]:
    """Return ``submit(text, *options)``, which submits a script through jupyter_slurm."""
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf)}
    context = {"cwd": str(lab.home), "env": env, "umask": 0o22, "limits": {}}

    def submit(text: str, *options: str) -> dict[str, Any]:
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        asked = {"key": key, "kind": "script", "text": text, "options": options, "args": [], "context": context}
        headers = {"Authorization": f"token {lab.token}"}
        (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).json()
        answer = httpx.post(lab.api(f"v1/clusters/{known['id']}/jobs"), json=asked, headers=headers, timeout=60)
        return dict(answer.raise_for_status().json())

    return submit


def show(page: Page, job: dict[str, Any]) -> None:
    place = {"cluster": job["cluster"], "job": job["id"]}
    page.evaluate("place => window.jupyterapp.commands.execute('jupyter-slurm:open-job', place)", place)


@pytest.mark.timeout(300)
def test_a_job_is_followed_to_its_failure_and_submitted_again(
    page: Page,
    lab: Any,
    submit: Callable[..., dict[str, Any]],
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    job = submit(SCRIPT, "-J", HOSTILE, "-p", "arandu", "--gpus=1", "--time=10")
    show(page, job)
    shown = page.locator(".jp-Slurm-job:visible")
    state, log = shown.locator(".jp-Slurm-state"), shown.get_by_role("region", name="Standard output")
    expect(shown.get_by_role("heading", level=2)).to_have_text(HOSTILE)
    expect(state).to_have_text("RUNNING")
    expect(shown.locator(".jp-Slurm-timeLeft")).to_contain_text("of 10:00 left")
    expect(log.get_by_text("line 200")).to_be_visible()

    # By the wheel to the beginning: new lines at the end do not move the view.
    log.hover()
    page.mouse.wheel(0, -100_000)
    red = log.get_by_text("red", exact=True)
    expect(red).to_be_visible()
    expect(red).to_have_class(re.compile("ansi-red"))
    expect(log.get_by_text(HOSTILE)).to_be_visible()
    expect(log.get_by_text("100 %", exact=True)).to_be_visible()
    expect(log.locator("img, b")).to_have_count(0)
    follow = shown.get_by_role("button", name="Follow new output")
    expect(follow).to_have_attribute("aria-pressed", "false")
    Path(lab.home, "go").touch()
    search = shown.get_by_role("searchbox", name="Search the log")
    wait_for(lambda: search.fill("") or search.fill("GOES on") or log.locator("mark").count(), "it is found")
    expect(log.get_by_text("it goes on")).to_be_visible()
    screenshot(page, "job-page-search")
    search.fill("")
    follow.click()

    wait_for(lambda: page.evaluate(SAVED), "the page is saved")
    page.reload()
    expect(log.get_by_text("it goes on")).to_be_visible()
    Path(lab.home, "stop").touch()
    expect(state).to_have_text("FAILED")
    expect(log.get_by_text("these are the last words")).to_be_visible()
    timeline = shown.get_by_role("list", name="History of the job")
    expect(timeline.get_by_role("listitem")).to_have_text(
        [re.compile("^Submitted"), re.compile("^Started.*on dgx01"), re.compile("^Ended.*FAILED, exit code 3")]
    )
    screenshot(page, "job-page-failed")
    axe(page, ".jp-Slurm-job")
    for name, text in (("Resources", "arandu"), ("Script", "these are the last words"), ("Submission", "--gpus=1")):
        shown.get_by_role("tab", name=name).click()
        expect(shown.get_by_role("tabpanel")).to_contain_text(text)
        screenshot(page, f"job-page-{name.lower()}")
        axe(page, ".jp-Slurm-job")

    for name in ("go", "stop"):
        Path(lab.home, name).unlink()
    shown.get_by_role("button", name="Submit again").click()
    page.get_by_role("button", name="Submit", exact=True).click()
    expect(shown).not_to_contain_text(f"job {job['id']} ")
    expect(state).to_have_text("RUNNING")
    expect(log.get_by_text("line 200")).to_be_visible()
    shown.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Cancel the job").click()
    expect(state).to_have_text("CANCELLED")
    expect(shown.get_by_role("button", name="Cancel")).to_have_count(0)


def test_a_log_of_a_gigabyte_opens_at_its_end(
    page: Page, lab: Any, submit: Callable[..., dict[str, Any]], wait_for: Callable[..., Any]
) -> None:
    path = Path(lab.home, "big.log")
    with path.open("wb") as file:
        file.truncate(GIB)
        file.seek(GIB)
        file.write(b"".join(b"\nline %d" % n for n in range(LINES)))
    job = submit("#!/bin/bash\necho\necho the end\n", "-o", str(path), "--open-mode=append", "-p", "devwork")
    sizes: list[int] = []

    def note(response: Any) -> None:
        if "/output?" in response.url:
            sizes.append(len(response.body()))

    page.on("response", note)
    show(page, job)
    shown = page.locator(".jp-Slurm-job:visible")
    expect(shown.locator(".jp-Slurm-state")).to_have_text("COMPLETED")
    log = shown.get_by_role("region", name="Standard output")
    expect(log.get_by_text("the end", exact=True)).to_be_visible()
    expect(shown.locator(".jp-Slurm-above")).to_contain_text("of 1.0 GiB. Scroll up")
    assert sum(sizes) < 2**20, "only the end is read"
    above = shown.locator(".jp-Slurm-above")
    before = above.inner_text()

    def is_more_shown() -> bool:
        log.evaluate("node => { node.scrollTop = 0 }")
        return above.inner_text() != before

    wait_for(is_more_shown, "scrolling up reads more")
    expect(log.locator(".jp-Slurm-line").first).to_have_text(re.compile(r"line \d+"))
    assert sum(sizes) < 2 * 2**20
    path.unlink()


@pytest.mark.timeout(300)
def test_what_a_job_waits_for_and_which_task_failed_stand_in_the_head(
    page: Page, submit: Callable[..., dict[str, Any]]
) -> None:
    sleep = "#!/bin/sh\nsleep 600\n"
    submit(sleep, "-p", "arandu", "--gpus=2", "-t", "2:00:00", "-J", "long-train")
    array = submit(
        "#!/bin/sh\n[ $SLURM_ARRAY_TASK_ID != 3 ]\n", "--array=1-4", "-J", "sweep", "-p", "devwork", "-t", "5"
    )
    waiting = submit(sleep, "-p", "arandu", "--gpus=8", "--mem=16G", "-t", "1:00:00")
    show(page, waiting)
    shown = page.locator(".jp-Slurm-job:visible")
    numbers = re.compile(r"Waits for 8 GPUs; 6 of 8 are free\. Next expected to end: long-train \(yours\), by ")
    expect(shown.get_by_text(numbers)).to_have_count(1, timeout=90_000)
    expect(shown).not_to_contain_text("--mem")
    show(page, array)
    expect(shown).to_contain_text("3 done, 1 failed", timeout=60_000)
    expect(shown).to_contain_text("1 of 4 tasks failed (task 3, exit code 1).")
    number = shown.locator(".jp-Slurm-parts .jp-Slurm-id button").first
    expect(number).to_have_css("white-space", "nowrap")  # the number of a task stays in one piece
    shown.get_by_role("button", name="Show task 3").click()
    expect(shown).to_contain_text(f"job {array['id']}_3")
