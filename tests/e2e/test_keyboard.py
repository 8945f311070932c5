"""A test of the table of jobs, the page of a job and the form of a session, in a browser, by the keyboard alone."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

SCRIPT = """#!/bin/bash
echo "the log of $SLURM_JOB_NAME"
sleep 600
"""
PANEL, PAGE = "#jupyter-slurm-panel", ".jp-Slurm-job:visible"
ROWS = f"{PANEL} .jp-Slurm-body [role=row]"
MAX_TABS = 40


@pytest.fixture
def names(lab: Any, cluster: Any) -> Iterator[list[str]]:
    """Provide the names of four running jobs with a log; they are cancelled at the end."""
    env = {"PATH": os.environ["PATH"], "SLURM_CONF": str(cluster.slurm_conf)}
    context = {"cwd": str(lab.home), "env": env, "umask": 0o22, "limits": {}}
    headers = {"Authorization": f"token {lab.token}"}
    (known,) = httpx.get(lab.api("v1/clusters"), headers=headers, timeout=60).json()
    made = [f"keys-{letter}" for letter in "abcd"]
    for name in made:
        key = time.strftime("%Y%m%d-%H%M%S", time.gmtime()) + "-" + secrets.token_hex(8)
        options = ["-J", name, "-p", "arandu", "--gpus=1"]
        asked = {"key": key, "kind": "script", "text": SCRIPT, "options": options, "args": [], "context": context}
        answer = httpx.post(lab.api(f"v1/clusters/{known['id']}/jobs"), json=asked, headers=headers, timeout=60)
        answer.raise_for_status()
    yield made
    subprocess.run(["scancel", "--me"], env={**os.environ, **env}, check=True)


def _call(page: Page, words: str, label: str) -> None:
    """Run a command by the palette."""
    page.keyboard.press("ControlOrMeta+Shift+C")
    expect(page.locator(".lm-CommandPalette-input")).to_be_focused()
    page.keyboard.type(words)
    active = page.locator(".lm-CommandPalette-item.lm-mod-active .lm-CommandPalette-itemLabel")
    expect(active).to_have_text(label)
    page.keyboard.press("Enter")


def _tab_to(page: Page, target: Locator, key: str = "Tab") -> None:
    """Press a key until an element has the focus; it never leads out of JupyterLab on the way."""
    expect(target).to_be_visible()
    passed = []
    for _ in range(MAX_TABS):
        page.keyboard.press(key)
        if target.evaluate("element => element === document.activeElement"):
            return
        passed.append(page.evaluate("document.activeElement.outerHTML.slice(0, 120)"))
    pytest.fail(f"{key} does not come to {target}, but to:\n" + "\n".join(passed))


def _leave(page: Page) -> None:
    """Close the page in front by JupyterLab's own key."""
    page.keyboard.press("Alt+w")


def _read_a_log(page: Page, name: str) -> None:
    """From the active row to the log and to another tab of the page, and back to the row."""
    page.keyboard.press("Enter")
    shown = page.locator(PAGE)
    expect(shown.get_by_role("heading", name=name)).to_be_visible()
    expect(page.locator(".jp-Slurm-job:focus")).to_have_count(1)
    log = shown.get_by_role("region", name="Standard output")
    expect(log).to_contain_text(f"the log of {name}")
    _tab_to(page, log)
    tab = shown.get_by_role("tab", name="Log")
    _tab_to(page, tab, "Shift+Tab")
    page.keyboard.press("ArrowRight")
    expect(tab).not_to_be_focused()
    expect(shown.get_by_role("tab", selected=True)).to_be_focused()
    expect(shown.get_by_role("tab", selected=True)).not_to_have_text("Log")
    _leave(page)
    expect(page.locator(PAGE)).to_have_count(0)
    expect(page.locator(PANEL).get_by_role("treegrid")).to_be_focused()
    expect(page.locator(f"{ROWS}[data-active=true]")).to_contain_text(name)


def _cancel(page: Page, name: str) -> None:
    """Escape and Enter keep the job; the focus is in the table again each time."""
    table, dialog = page.locator(PANEL).get_by_role("treegrid"), page.locator(".jp-Dialog")
    for keys in (["Escape"], ["Enter"], ["Tab", "Enter"]):
        expect(page.locator(f"{ROWS}[data-active=true]")).to_contain_text(name)
        page.keyboard.press("Delete")
        expect(dialog.get_by_role("button", name="Keep it")).to_be_focused()
        if keys[0] == "Tab":
            page.keyboard.press("Tab")
            expect(dialog.get_by_role("button", name="Cancel the job")).to_be_focused()
        page.keyboard.press(keys[-1])
        expect(dialog).to_have_count(0)
        expect(table).to_be_focused()
    row = page.locator(ROWS, has_text=name)
    expect(row.locator(".jp-Slurm-state")).to_contain_text("CANCELLED")
    expect(table).to_be_focused()


def _filter(page: Page, name: str) -> None:
    """By a column, whose button has the focus afterwards; the button that shows all jobs again is gone after its use."""
    panel = page.locator(PANEL)
    count = page.locator(ROWS).count()
    _tab_to(page, panel.get_by_role("button", name="Name: filter", exact=True))
    page.keyboard.press("Enter")
    box = panel.get_by_role("dialog", name="Filter by Name")
    expect(box.get_by_role("searchbox")).to_be_focused()
    page.keyboard.type(name)
    expect(page.locator(ROWS)).to_have_count(1)
    page.keyboard.press("Escape")
    expect(box).to_have_count(0)
    expect(panel.get_by_role("button", name="Name: filtered")).to_be_focused()
    clear = panel.get_by_role("button", name="Clear filters")
    _tab_to(page, clear, "Shift+Tab")
    page.keyboard.press("Enter")
    expect(clear).to_have_count(0)
    expect(page.locator(ROWS)).to_have_count(count)
    expect(panel.get_by_role("treegrid")).to_be_focused()


def _filter_by_state(page: Page) -> None:
    """A chip keeps the focus when it is pressed, and when it is pressed again."""
    panel = page.locator(PANEL)
    count = page.locator(ROWS).count()
    cancelled = panel.get_by_role("button", name=re.compile(r"^Cancelled \d+$"))
    _tab_to(page, cancelled, "Shift+Tab")
    for pressed, shown in (("true", 1), ("false", count)):
        page.keyboard.press("Enter")
        expect(cancelled).to_have_attribute("aria-pressed", pressed)
        expect(page.locator(ROWS)).to_have_count(shown)
        expect(cancelled).to_be_focused()
    _tab_to(page, panel.get_by_role("treegrid"))


def _cancel_on_its_page(page: Page) -> None:
    """The button that cancels is gone afterwards: the focus stays on the page."""
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    shown = page.locator(PAGE)
    cancel = shown.get_by_role("button", name=re.compile("^Cancel"))
    _tab_to(page, cancel)
    for key in ("Escape", "Tab"):
        page.keyboard.press("Enter")
        expect(page.locator(".jp-Dialog").get_by_role("button", name="Keep it")).to_be_focused()
        page.keyboard.press(key)
        if key == "Escape":
            expect(page.locator(".jp-Dialog")).to_have_count(0)
            expect(cancel).to_be_focused()
    expect(page.locator(".jp-Dialog").get_by_role("button", name="Cancel the job")).to_be_focused()
    page.keyboard.press("Enter")
    expect(shown.locator(".jp-Slurm-state")).to_contain_text("CANCELLED")
    expect(cancel).to_have_count(0)
    expect(page.locator(".jp-Slurm-job:focus")).to_have_count(1)
    _leave(page)
    expect(page.locator(PANEL).get_by_role("treegrid")).to_be_focused()


def _fill_the_form(page: Page) -> None:
    """A wrong value has the focus after Enter; a dialog gives it back, and so does the form when it closes."""
    page.keyboard.press("ControlOrMeta+Alt+g")
    form = page.get_by_role("form", name="GPU notebook on arandu")
    expect(form.get_by_label("Partition")).to_be_focused()
    limit = form.get_by_label("Time limit")
    _tab_to(page, limit)
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("soon")
    expect(limit).to_have_value("soon")
    _tab_to(page, form.get_by_label("Name"))
    page.keyboard.press("Enter")
    expect(limit).to_be_focused()
    expect(limit).to_have_attribute("aria-invalid", "true")
    expect(form.locator("[data-field=time]").get_by_role("alert")).not_to_be_empty()
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("10")
    expect(limit).to_have_attribute("aria-invalid", "false")
    save = form.get_by_role("button", name="Save as template…")
    _tab_to(page, save)
    page.keyboard.press("Enter")
    expect(page.locator(".jp-Dialog input")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(".jp-Dialog")).to_have_count(0)
    expect(save).to_be_focused()
    _leave(page)
    expect(form).to_have_count(0)
    expect(page.locator(PANEL).get_by_role("treegrid")).to_be_focused()


def _copy_in_the_side_bar(page: Page) -> None:
    """A menu that closes gives the focus back to its name."""
    _call(page, "slurm side bar", "Slurm: Show Jobs in the Side Bar")
    side = page.locator("#jupyter-slurm-side-bar")
    expect(side.get_by_role("treegrid")).to_be_focused()
    more = side.locator(".jp-Slurm-marked summary")
    _tab_to(page, more, "Shift+Tab")
    page.keyboard.press("Enter")
    copy = side.get_by_role("button", name="Copy as CSV")
    _tab_to(page, copy)
    page.keyboard.press("Enter")
    expect(copy).not_to_be_visible()
    expect(more).to_be_focused()
    page.keyboard.press("Enter")
    expect(copy).to_be_visible()
    page.keyboard.press("Escape")
    expect(copy).not_to_be_visible()
    expect(more).to_be_focused()


@pytest.mark.timeout(300)
def test_all_is_reached_by_the_keyboard_and_no_focus_is_lost(page: Page, names: list[str]) -> None:
    """Nothing is clicked: rows, log, confirmations, filters and the form."""
    expect(page.locator(".jp-Slurm-status button")).to_have_text(f"Slurm: {len(names)} running")
    _call(page, "slurm show jobs", "Slurm: Show Jobs")
    panel, rows = page.locator(PANEL), page.locator(ROWS)
    expect(panel.get_by_label("Filter jobs by")).to_be_focused()
    expect(rows).to_have_count(len(names))
    page.keyboard.press("ArrowDown")
    expect(panel.get_by_role("treegrid")).to_be_focused()
    for at in (1, 2):
        page.keyboard.press("ArrowDown")
        expect(rows.nth(at)).to_have_attribute("data-active", "true")
    name = next(each for each in names if each in rows.nth(2).inner_text())
    _read_a_log(page, name)
    _cancel(page, name)
    _filter(page, name)
    _filter_by_state(page)
    _cancel_on_its_page(page)
    _fill_the_form(page)
    _copy_in_the_side_bar(page)
