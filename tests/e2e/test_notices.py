"""Tests of the notifications of JupyterLab about jobs, and of its menu and keys."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import secrets
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from notebooks import open_notebook, run_cell, write_notebook
from playwright.sync_api import Browser, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

HOSTILE = "<img src=x onerror=alert(1)> **b**"
TOAST = ".Toastify__toast"
# Notifications of the browser, and an invisible tab.
RECORD = "window.told = []; window.Notification = class { static permission = 'granted'; constructor(_, { body }) { told.push(body); } }"
HIDE = """hidden => {
    Object.defineProperty(document, 'hidden', { configurable: true, get: () => hidden });
    document.dispatchEvent(new Event('visibilitychange'));
}"""
OWN_API = re.compile("~.+/jupyter-slurm/api/")  # the agent of a JupyterLab within a session
LIVE = ".jp-Slurm-status button[data-connection=live]"


@pytest.fixture
def submit(cluster: Any) -> Iterator[Callable[..., str]]:
    """Return ``submit(server, script, *options)``, which submits a job until the end of the test; returns its id."""
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf)}
    ids: list[str] = []

    def submit(server: Any, script: str, *options: str) -> str:
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        context = {"cwd": str(server.home), "env": env, "umask": 0o22, "limits": {}}
        text = f"#!/bin/bash\n{script}\n"
        asked = {"key": key, "kind": "script", "text": text, "options": options, "args": [], "context": context}
        headers = {"Authorization": f"token {server.token}"}
        (known,) = httpx.get(server.api("v1/clusters"), headers=headers, timeout=60).json()
        answer = httpx.post(server.api(f"v1/clusters/{known['id']}/jobs"), json=asked, headers=headers, timeout=60)
        ids.append(str(answer.raise_for_status().json()["id"]))
        return ids[-1]

    yield submit
    subprocess.run(["scancel", *ids], env={**os.environ, **env}, check=True)


def test_notices_are_told_once_also_by_the_browser(
    page: Page,
    lab: Any,
    submit: Callable[..., str],
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
    wait_for: Callable[..., Any],
) -> None:
    page.add_init_script(RECORD)
    page.reload()
    other = page.context.new_page()
    other.goto(page.url)
    for tab in (page, other):
        expect(tab.locator(LIVE)).to_have_text("Slurm: no jobs")
    submit(lab, "sleep 600", "-J", "training")
    submit(lab, "echo \"FileNotFoundError: 'data'\" >&2; exit 3", "-J", HOSTILE)

    def toasts() -> str:
        return "\n".join(each for tab in (page, other) for each in tab.locator(TOAST).all_inner_texts())

    failure = f"{HOSTILE} failed (exit code 3): FileNotFoundError: 'data'"
    wait_for(lambda: failure in toasts(), "the failure is told, with the last line of the error")
    assert toasts().count(failure) == 1
    assert "training" not in toasts()  # a start is not told unless it is asked for
    expect(page.locator(LIVE)).to_have_text("Slurm: 1 running")
    teller = page if page.locator(TOAST, has_text="failed (").count() else other
    axe(teller, TOAST)
    screenshot(teller, "notices")
    teller.locator(TOAST, has_text="failed (").get_by_role("button", name="Show log").click()
    expect(teller.locator(".jp-Slurm-job h2")).to_have_text(HOSTILE)
    expect(teller.locator(".jp-Slurm-job")).to_contain_text("FileNotFoundError: 'data'")
    other.close()

    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:browser-notices')")
    page.evaluate(HIDE, True)
    expect(page.locator(LIVE)).to_have_text("Slurm: 1 running")
    submit(lab, "exit 4", "-J", HOSTILE)
    wait_for(lambda: page.evaluate("told.join()"), "the browser tells")
    assert page.evaluate("told.join()").startswith(f"{HOSTILE} failed (exit code 4).")
    page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:browser-notices')")
    expect(page.locator(".jp-Slurm-status button")).to_have_attribute("data-connection", "paused")


def _see_the_session_from_within(inner: Page) -> None:
    """Its page says where one is and warns before the end, by the runner and then by Slurm, which has another limit."""
    own = inner.locator(".jp-Slurm-own")
    expect(own).to_have_text(re.compile(r"^elsewhere on \S+ · [89]:\d\d left$"))
    warning = inner.locator(TOAST, has_text="This session ends at")
    expect(warning).to_contain_text(
        "Save your work: the memory of its kernels is lost. To continue, launch another where you launched this one."
    )
    expect(warning.get_by_role("button", name="Save all")).to_be_visible()
    inner.screenshot(path=Path("test-results", "session-within.png"))
    settings = json.loads(inner.locator("#jupyter-config-data").text_content() or "")
    if not settings["appVersion"].startswith("4.2."):  # that one has the name with an open document only
        expect(inner).to_have_title(re.compile("elsewhere"))
    for icon in inner.locator("link.favicon").evaluate_all("links => links.map(({ href }) => href)"):
        assert inner.request.get(icon).body()[22:26] == b"\x89PNG"  # not those of Jupyter
    inner.context.unroute(OWN_API)
    expect(own).to_have_text(re.compile(r"^elsewhere on \S+ · 3:5\d:\d\d left$"))
    expect(warning).to_have_count(0)


@pytest.mark.timeout(300)
def test_notices_are_of_what_the_person_does_not_see(
    page: Page,
    lab: Any,
    cluster: Any,
    screenshot: Callable[[Page, str], None],
) -> None:
    """The card of a cell and the page of a session tell enough. A session that is ready elsewhere has a button."""
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    headers = {"Authorization": f"token {lab.token}"}
    (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).json()
    sessions = lab.api(f"v1/clusters/{known['id']}/sessions")
    write_notebook(lab.home / "seen.ipynb", "%load_ext jupyter_slurm", "%%sbatch as=seen\n#!/bin/bash\nexit 4")
    open_notebook(page, f"{lab.url}lab/tree/seen.ipynb")
    run_cell(page, 0)
    card = run_cell(page, 1)
    expect(card).to_contain_text("FAILED", timeout=90_000)
    end = int(time.time()) + 600  # by the runner; newer versions of Slurm than this one tell it themselves
    told = {"SLURM_JOB_START_TIME": str(end - 14_400), "SLURM_JOB_END_TIME": str(end)}
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf), "HOME": str(lab.home), **told}
    context = {"cwd": str(lab.home), "env": env, "umask": 0o22, "limits": {}}
    options = ["-p", "devwork", "--time=4:00:00"]
    asked = {"key": key, "name": "elsewhere", "options": options, "idle": 3600, "context": context}
    httpx.post(sessions, json=asked, headers=headers, timeout=60).raise_for_status()
    toasts = page.locator(TOAST)
    ready = toasts.filter(has_text="Session elsewhere is ready.")
    expect(ready).to_be_visible(timeout=120_000)
    # Sessions of the tests before may end meanwhile.
    own = [text for text in toasts.all_inner_texts() if "seen" in text or "elsewhere" in text]
    assert own == ready.all_inner_texts()
    screenshot(page, "notice-ready")
    page.context.route(OWN_API, lambda route: route.abort())  # from its node, Slurm cannot be asked
    with page.context.expect_page() as opened:
        ready.get_by_role("button", name="Open", exact=True).click()
    inner = opened.value
    expect(inner.locator(".jp-LauncherCard[data-category=Notebook]").first).to_be_visible(timeout=60_000)
    expect(inner).to_have_url(re.compile(f"^{re.escape(lab.url)}jupyter-slurm/"))
    _see_the_session_from_within(inner)
    inner.close()
    httpx.post(f"{sessions}/{key}/stop", json={}, headers=headers, timeout=60).raise_for_status()


class _Hub(http.server.BaseHTTPRequestHandler):
    """Stand-in for JupyterHub, which answers with its own page for a server that it has stopped."""

    def do_GET(self) -> None:
        self.send_response(424)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<title>JupyterHub</title>Server not running")

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextlib.contextmanager
def _hub_in_place_of(server: Any) -> Iterator[None]:
    server.process.terminate()
    server.process.wait(120)
    with http.server.ThreadingHTTPServer(("127.0.0.1", urlsplit(server.url).port or 0), _Hub) as hub:
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        yield
        hub.shutdown()
        thread.join()


@pytest.mark.timeout(300)
def test_a_session_is_told_that_the_hub_has_stopped_the_server(
    browser: Browser,
    cluster: Any,
    start_jupyter: Callable[..., Any],
    lab_files: dict[str, str],
    wait_for: Callable[..., Any],
) -> None:
    served = start_jupyter("lab", "--config=lab.py", "--ServerApp.base_url=/user/ana/", files=lab_files)
    headers = {"Authorization": f"token {served.token}"}
    (known,) = httpx.get(served.api("v1/clusters"), headers=headers, timeout=60).json()
    sessions = served.api(f"v1/clusters/{known['id']}/sessions")
    key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
    asked = {"key": key, "name": "training", "options": ["-p", "devwork"], "idle": 3600, "prefix": "/user/ana/"}
    httpx.post(sessions, json=asked, headers=headers, timeout=60).raise_for_status()

    def told() -> dict[str, Any]:
        found: dict[str, Any] = httpx.get(f"{sessions}/{key}", headers=headers, timeout=60).json()["session"]
        return found

    wait_for(lambda: told()["state"] == "ready", "the session is ready", 90)
    context = browser.new_context(viewport={"width": 1400, "height": 900})
    page = context.new_page()
    page.set_default_timeout(60_000)
    page.goto(f"{served.url}tree?token={served.token}")
    page.goto(f"{served.url.removesuffix('/user/ana/')}{told()['path']}")
    own = page.locator(".jp-Slurm-own button")
    expect(own).to_have_attribute("data-standing", "running")
    with _hub_in_place_of(served):
        lost = page.locator(".jp-Dialog")  # the only one: JupyterLab's own words for it are gone
        expect(lost).to_contain_text("JupyterHub has stopped your server. Session training continues on ")
        expect(own).to_have_attribute("data-standing", "ended")
        page.screenshot(path=Path("test-results", "session-hub-stopped.png"))
        with context.expect_page() as opened:
            lost.get_by_role("button", name="Start it").click()
        expect(opened.value.get_by_text("Server not running")).to_be_visible()
        opened.value.close()
    context.close()
    env = {**os.environ, "SLURM_CONF": str(cluster.slurm_conf)}
    subprocess.run(["scancel", "--me"], env=env, check=True)  # the server is gone


def call(page: Page, command: str) -> None:
    """Run a command by the palette."""
    page.keyboard.press("ControlOrMeta+Shift+C")
    expect(page.locator(".lm-CommandPalette-input")).to_be_focused()
    page.keyboard.type(command)
    page.keyboard.press("Enter")


def test_menu_and_keys(
    page: Page,
    lab: Any,
    submit: Callable[..., str],
    screenshot: Callable[[Page, str], None],
    axe: Callable[[Page, str], None],
) -> None:
    """After a check of the menu, by the keyboard alone: the form, and a job that is opened, found and cancelled."""
    expect(page.locator(LIVE)).to_have_text("Slurm: no jobs")  # the jobs of the test before have ended
    asked = ("-J", "training", "-p", "arandu", "--gpus=1", "--time=2:00:00")
    job = submit(lab, 'for n in {1..9}; do echo "epoch $n: loss 0.$((99 - 9 * n))"; done; sleep 600', *asked)
    expect(page.locator(LIVE)).to_have_text("Slurm: 1 running")
    menu = page.locator(".lm-MenuBar-item", has_text="Slurm")
    menu.click()
    items = page.locator(".lm-Menu-item[data-type=command] .lm-Menu-itemLabel:visible")
    assert items.all_inner_texts() == [
        "Show Jobs",
        "Show Jobs in the Side Bar",
        "Open Job…",
        "Refresh Jobs",
        "New GPU Notebook…",
        "Submit a Script…",
        "Cancel Job…",
        "Submit Job Again…",
        "Copy Link to Job",
        *[f"{act} Selected Jobs" for act in ("Cancel", "Hold", "Release", "Requeue")],
        "Set the Time Limit of Selected Jobs…",
        *[f"Copy Selected Jobs as {kind}" for kind in ("CSV", "JSON")],
        "Desktop Notifications While This Tab Is Hidden",
    ]
    screenshot(page, "menu")
    page.keyboard.press("Escape")
    page.keyboard.press("ControlOrMeta+Alt+g")
    expect(page.get_by_role("form").get_by_label("Partition")).to_be_focused()
    call(page, "slurm cancel job")
    expect(page.locator(".jp-Dialog-header")).to_have_text(f"Cancel job {job} (training)?")
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    page.keyboard.press("ControlOrMeta+Alt+u")
    expect(page.locator(".jp-Dialog input")).to_be_focused()
    axe(page, ".jp-Dialog")
    page.keyboard.type(job)
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Slurm-job h2")).to_have_text("training")
    expect(page.get_by_text("epoch 9: loss 0.18")).to_be_visible()
    screenshot(page, "job-page")
    page.context.grant_permissions(["clipboard-read"])
    call(page, "copy link to job")
    expect(page.get_by_text("The link to this page was copied.").first).to_be_visible()
    link = f"{re.escape(lab.url)}lab[?]slurm-job=[^/?&]+%2F[0-9a-f-]+"
    assert re.fullmatch(link, page.evaluate("navigator.clipboard.readText()"))
    page.keyboard.press("ControlOrMeta+Alt+j")
    expect(page.locator("#jp-main-dock-panel .jp-Slurm-filter")).to_be_focused()
    page.keyboard.type("train")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Space")
    call(page, "cancel selected")
    expect(page.locator(".jp-Dialog-header")).to_have_text(f"Cancel job {job} (training)?")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator(LIVE)).to_have_text("Slurm: no jobs")


def test_a_person_in_brazil_reads_portuguese(page: Page, screenshot: Callable[[Page, str], None]) -> None:
    speak = 'locale => window.jupyterapp.serviceManager.settings.save(\'@jupyterlab/translation-extension:plugin\', `{"locale": "${locale}"}`)'
    page.evaluate(speak, "pt_BR")
    try:
        page.reload()
        page.wait_for_selector("#jp-main-statusbar")
        page.evaluate(
            "async () => { await window.jupyterapp.restored; await window.jupyterapp.commands.execute('launcher:create'); }"
        )
        expect(page.locator(".jp-LauncherCard[data-category=Slurm]").first).to_have_text("Notebook com GPU em arandu")
        page.evaluate("window.jupyterapp.commands.execute('jupyter-slurm:launch')")
        form = page.get_by_role("form", name="Notebook com GPU em arandu")
        expect(form.get_by_label("Partição")).to_contain_text("padrão (devwork, ")
        page.locator(".lm-MenuBar-item", has_text="Slurm").click()
        expect(page.locator(".lm-Menu-itemLabel:visible").first).to_have_text("Mostrar jobs")
        screenshot(page, "portuguese")
        page.keyboard.press("Escape")
        page.evaluate("window.jupyterapp.commands.execute('settingeditor:open', {query: 'Slurm'}).then(() => null)")
        notices = page.locator(".jp-SettingsForm", has_text="Notificações do Slurm")
        expect(notices).to_contain_text("Minutos antes do limite de tempo")
    finally:
        page.evaluate(speak, "default")
