"""Tests of the files of a cluster in JupyterLab: the drive and its file browser, over SSH, with real files."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect
from ssh_hosts.sshd import SshHost

pytestmark = [pytest.mark.browser, pytest.mark.slurm, pytest.mark.root, pytest.mark.slow]

PANEL = "#jupyter-slurm-files"
TAB = "Files of the clusters"
KERNEL = {"name": "python3", "display_name": "Python 3"}


@pytest.fixture(scope="module")
def lab(start_jupyter: Callable[..., Any], lab_files: dict[str, str], login_host: SshHost, cluster: Any) -> Any:
    """Provide JupyterLab on a laptop with a profile of the login node."""
    profile = f'[login]\nhost = "{login_host.name}"\nssh_config = "{login_host.ssh_config}"\n'
    profile += f'[slurm]\nconf = "{cluster.slurm_conf}"\n'
    return start_jupyter("lab", "--config=lab.py", files={**lab_files, ".config/jupyter_slurm/sites/far.toml": profile})


def _item(page: Page, name: str) -> Locator:
    return page.locator(f"{PANEL} .jp-DirListing-item").filter(has=page.get_by_text(name, exact=True))


def _open_folder(page: Page, folder: Path) -> None:
    """Open the panel, the folder of the cluster, and a directory by its absolute path."""
    page.get_by_role("tab", name=TAB).click()
    _item(page, "far").dblclick()
    expect(_item(page, "~")).to_be_visible()
    for part in folder.parts[1:]:
        _item(page, part).dblclick()
        expect(page.locator(f"{PANEL} .jp-BreadCrumbs")).to_contain_text(part)


def _current_path(page: Page) -> str:
    return str(page.evaluate("window.jupyterapp.shell.currentWidget?.context?.path ?? ''"))


def _menu(page: Page, *names: str) -> None:
    for name in names:
        page.locator(".lm-MenuBar-item, .lm-Menu-item").filter(has=page.get_by_text(name, exact=True)).last.click()


def _command(page: Page, item: str, name: str) -> None:
    """Choose a command of the context menu of a file."""
    _item(page, item).click(button="right")
    page.locator(".lm-Menu-item").filter(has=page.get_by_text(name, exact=True)).click()


def _upload(page: Page, name: str, data: bytes) -> None:
    with page.expect_file_chooser() as chosen:
        page.locator(PANEL).get_by_role("button", name="Upload Files").click()
    chosen.value.set_files({"name": name, "mimeType": "application/octet-stream", "buffer": data})


@pytest.fixture
def folder(short_tmp: Path) -> Path:
    """Provide a directory of the cluster with a text and a notebook."""
    folder = Path(tempfile.mkdtemp(dir=short_tmp))
    (folder / "notes.txt").write_text("first\n")
    output = {"output_type": "display_data", "metadata": {}, "data": {"text/html": "<script>window.ran = 1</script>ok"}}
    cell = {"id": "a", "cell_type": "code", "metadata": {"trusted": True}, "source": "1", "outputs": [output]}
    cells = [{**cell, "execution_count": None}]
    (folder / "n.ipynb").write_text(
        json.dumps({"cells": cells, "metadata": {"kernelspec": KERNEL}, "nbformat": 4, "nbformat_minor": 5})
    )
    return folder


def test_files_are_opened_saved_and_changed(
    page: Page, folder: Path, login_host: SshHost, screenshot: Callable[..., None]
) -> None:
    (folder / "two\nlines").touch()
    with (folder / "huge.txt").open("wb") as file:
        file.truncate(200_000_000)
    (folder / ".hidden").touch()
    _open_folder(page, folder)
    _item(page, "notes.txt").dblclick()
    editor = page.locator(".jp-FileEditor .cm-content")
    expect(editor).to_contain_text("first")
    expect(_item(page, ".hidden")).to_have_count(0)
    screenshot(page, "cluster-files")
    editor.click()
    page.keyboard.press("Control+End")
    page.keyboard.type("second")
    page.keyboard.press("Control+s")
    page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert (folder / "notes.txt").read_text() == "first\nsecond"

    (folder / "notes.txt").write_text("by another program\n")  # a conflict
    page.keyboard.type("third")
    page.keyboard.press("Control+s")
    dialog = page.locator(".jp-Dialog")
    expect(dialog).to_contain_text("changed")
    screenshot(page, "cluster-files-conflict")
    assert (folder / "notes.txt").read_text() == "by another program\n"
    dialog.get_by_role("button", name="Revert").click()
    expect(editor).to_contain_text("by another program")

    for name, words in (("huge.txt", "larger than 100 MB"), ("two\ufffd0alines", "cannot use")):
        _item(page, name).dblclick()
        expect(dialog).to_contain_text(words)
        dialog.locator("button.jp-mod-accept, button.jp-mod-reject").last.click()
        expect(dialog).to_have_count(0)

    _command(page, "notes.txt", "Rename")
    page.locator(f"{PANEL} .jp-DirListing-editor").fill("renamed.txt")
    page.keyboard.press("Enter")
    expect(_item(page, "renamed.txt")).to_be_visible()
    assert (folder / "renamed.txt").exists()
    large = bytes(range(256)) * 12_000
    _upload(page, "large.bin", large)
    expect(_item(page, "large.bin")).to_be_visible()
    with page.expect_download() as loaded:
        _command(page, "large.bin", "Download")
    assert loaded.value.suggested_filename == "large.bin"
    assert Path(loaded.value.path()).read_bytes() == large == (folder / "large.bin").read_bytes()
    _command(page, "large.bin", "Duplicate")
    expect(_item(page, "large-Copy1.bin")).to_be_visible()

    login_host.kill_sessions()  # the next request may fail with words, and those after it succeed
    page.locator(PANEL).get_by_role("button", name="New Folder").click()
    page.wait_for_function("panel => document.querySelector(`${panel} .jp-DirListing-editor, .jp-Dialog`)", arg=PANEL)
    page.keyboard.press("Escape")
    expect(page.locator(f"{PANEL} .jp-DirListing-editor, .jp-Dialog")).to_have_count(0)
    large_item = _item(page, "large.bin")
    # A new folder is selected when it has been listed: not later than at the end of one more listing.
    page.evaluate(
        """async id => {
          const panels = Array.from(window.jupyterapp.shell.widgets("left"));
          await panels.find(panel => panel.id === id).model.refresh();
        }""",
        PANEL.removeprefix("#"),
    )
    large_item.click()
    expect(large_item).to_have_class(re.compile("jp-mod-selected"))
    page.keyboard.press("Delete")
    expect(dialog).to_contain_text("Delete large.bin permanently? The cluster has no trash.")
    dialog.get_by_role("button", name="Delete").click()
    expect(_item(page, "large.bin")).to_have_count(0)
    assert not (folder / "large.bin").exists()


def test_a_script_of_the_cluster_is_submitted_from_its_folder(
    page: Page, folder: Path, screenshot: Callable[..., None]
) -> None:
    header = "#SBATCH -J whereabouts\n#SBATCH -p arandu\n#SBATCH -t 5\n"
    (folder / "where.sbatch").write_text(f"#!/bin/bash\n{header}pwd; echo $SLURM_SUBMIT_DIR\n")
    _open_folder(page, folder)
    entry = page.locator(".lm-Menu-item", has_text="Run with sbatch…")
    _item(page, "notes.txt").click(button="right")
    expect(page.locator(".lm-Menu-item", has_text="Rename")).to_be_visible()
    expect(entry).to_be_hidden()
    page.locator(".lm-Menu").press("Escape")  # the list of files may have taken the focus meanwhile
    _item(page, "where.sbatch").click(button="right")
    entry.click()
    form = page.get_by_role("form", name="Submit where.sbatch to far")  # no question about the cluster
    expect(form.get_by_label("Name", exact=True)).to_have_value("whereabouts")
    form.get_by_label("Time limit").fill("4")
    screenshot(page, "cluster-files-script")
    form.get_by_role("button", name="Submit", exact=True).click()
    shown = page.locator(".jp-Slurm-job")
    expect(shown.locator(".jp-Slurm-state")).to_have_text("COMPLETED")
    expect(shown.locator(".jp-Slurm-logView")).to_contain_text(re.compile(rf"{folder}\s*{folder}"))


def test_new_notebooks_stay_in_the_own_browser_and_outputs_are_not_trusted(page: Page, folder: Path, lab: Any) -> None:
    _open_folder(page, folder)
    _item(page, "n.ipynb").dblclick()
    expect(page.locator(".jp-Notebook .jp-OutputArea")).to_contain_text("ok")
    assert page.evaluate("window.ran ?? 0") == 0
    assert _current_path(page).startswith("Slurm:far/")
    page.wait_for_function("window.jupyterapp.shell.currentWidget.sessionContext.session?.kernel")  # of this computer
    select = page.locator(".jp-Dialog").get_by_role("button", name="Select Kernel")
    for is_open in (True, False):
        if is_open:
            _item(page, "n.ipynb").click()  # the user works in the panel
        else:
            page.get_by_role("tab", name=TAB).click()
            expect(page.locator(PANEL)).to_be_hidden()
        _menu(page, "File", "New", "Notebook")
        page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path?.startsWith('Untitled')")
        select.click()
        if is_open:
            _item(page, "n.ipynb").click()
        page.evaluate("window.jupyterapp.commands.execute('launcher:create')")
        page.locator(".jp-Launcher:visible .jp-LauncherCard").filter(has_text="Text File").click()
        page.wait_for_function("window.jupyterapp.shell.currentWidget?.context?.path?.startsWith('untitled')")
    assert sorted(path.name for path in folder.iterdir()) == ["n.ipynb", "notes.txt"]
    assert len(list(lab.home.glob("[Uu]ntitled*"))) == 4
