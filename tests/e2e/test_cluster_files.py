"""Tests of the files of the clusters in JupyterLab: the drive and its file browser, with real files."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

PANEL = "#jupyter-slurm-files"


def _item(page: Page, name: str) -> Locator:
    return page.locator(f"{PANEL} .jp-DirListing-item", has_text=name)


def _open_folder(page: Page, lab: Any, folder: Path) -> None:
    """Open the panel, the folder of the cluster, and a directory by its absolute path."""
    page.goto(f"{lab.url}lab?token={lab.token}")
    page.wait_for_selector("#jupyterlab-splash", state="detached")
    page.get_by_role("tab", name="Files of the clusters").click()
    _item(page, "local").dblclick()
    expect(_item(page, "~")).to_be_visible()
    for part in folder.parts[1:]:
        _item(page, part).filter(has=page.get_by_text(part, exact=True)).dblclick()
        expect(page.locator(f"{PANEL} .jp-BreadCrumbs")).to_contain_text(part)


def _current_path(page: Page) -> str:
    return str(page.evaluate("window.jupyterapp.shell.currentWidget?.context?.path ?? ''"))


def _menu(page: Page, *names: str) -> None:
    for name in names:
        page.locator(".lm-MenuBar-item, .lm-Menu-item").filter(has=page.get_by_text(name, exact=True)).last.click()


@pytest.fixture
def folder(short_tmp: Path) -> Path:
    """Provide a directory of the cluster with a text and a notebook."""
    folder = Path(tempfile.mkdtemp(dir=short_tmp))
    (folder / "notes.txt").write_text("first\n")
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script>window.ran = 1</script>ok"}}
    cell = {"id": "a", "cell_type": "code", "metadata": {"trusted": True}, "source": "1", "outputs": [output]}
    cells = [{**cell, "execution_count": None}]
    (folder / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))
    return folder


def test_files_are_opened_saved_and_changed(page: Page, lab: Any, folder: Path, screenshot: Any) -> None:
    _open_folder(page, lab, folder)
    _item(page, "notes.txt").dblclick()
    editor = page.locator(".jp-FileEditor .cm-content")
    expect(editor).to_contain_text("first")
    screenshot(page, "cluster-files")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("second")
    page.keyboard.press("Control+s")
    expect(page.locator(".jp-FileEditor.jp-mod-dirty")).to_have_count(0)
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert (folder / "notes.txt").read_text() == "first\nsecond"
    assert sorted(path.name for path in folder.iterdir()) == ["n.ipynb", "notes.txt"]

    (folder / "notes.txt").write_text("by another program\n")  # a conflict
    page.keyboard.type("third")
    page.keyboard.press("Control+s")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("changed")
    assert (folder / "notes.txt").read_text() == "by another program\n"
    dialog.get_by_role("button", name="Revert").click()
    expect(editor).to_contain_text("by another program")

    _item(page, "notes.txt").click(button="right")  # its commands are for this browser
    page.locator(".lm-Menu-item", has_text="Rename").click()
    page.locator(f"{PANEL} .jp-DirListing-editor").fill("renamed.txt")
    page.keyboard.press("Enter")
    expect(_item(page, "renamed.txt")).to_be_visible()
    assert (folder / "renamed.txt").exists()
    with page.expect_file_chooser() as chosen:
        page.locator(f"{PANEL} .jp-Toolbar-item").first.click()
    large = bytes(range(256)) * 12_000
    chosen.value.set_files({"name": "large.bin", "mimeType": "application/octet-stream", "buffer": large})
    expect(_item(page, "large.bin")).to_be_visible()
    page.wait_for_function("document.querySelectorAll('.jp-FileUploadStatus-item, .jp-mod-uploading').length === 0")
    _item(page, "large.bin").click(button="right")
    with page.expect_download() as loaded:
        page.locator(".lm-Menu-item", has_text="Download").click()
    assert loaded.value.suggested_filename == "large.bin"
    assert Path(loaded.value.path()).read_bytes() == large == (folder / "large.bin").read_bytes()
    _item(page, "large.bin").click()
    page.keyboard.press("Delete")
    page.locator(".jp-Dialog").get_by_role("button", name="Delete").click()
    expect(_item(page, "large.bin")).to_have_count(0)
    assert not (folder / "large.bin").exists()


def test_new_notebooks_stay_in_the_own_browser_and_outputs_are_not_trusted(page: Page, lab: Any, folder: Path) -> None:
    _open_folder(page, lab, folder)
    _item(page, "n.ipynb").dblclick()
    expect(page.locator(".jp-Notebook .jp-OutputArea")).to_be_visible()
    expect(page.locator(".jp-Notebook .jp-OutputArea")).to_contain_text("ok")
    assert page.evaluate("window.ran ?? 0") == 0
    assert _current_path(page).startswith("Slurm:")
    page.keyboard.press("Escape")

    for is_open in (True, False):
        if is_open:
            _item(page, "n.ipynb").click()  # the person works in the panel
        else:
            page.get_by_role("tab", name="Files of the clusters").click()
            expect(page.locator(PANEL)).to_be_hidden()
        _menu(page, "File", "New", "Notebook")
        page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path?.startsWith('Untitled')")
        if (select := page.locator(".jp-Dialog").get_by_role("button", name="Select")).count():
            select.click()
        page.evaluate("window.jupyterapp.commands.execute('launcher:create')")
        card = page.locator(".jp-Launcher:visible .jp-LauncherCard")
        card.filter(has_text="Text File").click()
        page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path?.startsWith('untitled')")
    assert sorted(path.name for path in folder.iterdir()) == ["n.ipynb", "notes.txt"]
