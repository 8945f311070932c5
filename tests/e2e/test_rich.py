"""Tests of rich output of a Python cell: in the browser, as from a local cell."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from notebooks import open_notebook, run_cell, write_notebook
from playwright.sync_api import Locator, Page, expect

pytestmark = [pytest.mark.browser, pytest.mark.slurm]

RICH = """%%sbatch -p devwork as=job
import os, struct, sys, time, zlib
from IPython.display import HTML, Image, clear_output, display

def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\\0" + bytes([40, 90, 200]) * width) * height
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\\x89PNG\\r\\n\\x1a\\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")

print("above the picture")
display(Image(png(160, 90)))
print("below the picture")
print("and a warning", file=sys.stderr)
display(HTML("<table class='made-there'><tr><td>a table</td></tr></table>"))
shown = display("before", display_id=True)
print("\\033[31mred\\033[0m")
while not os.path.exists(GO):
    time.sleep(0.1)
shown.update("after")
{"last": "value"}
"""


def _expect_order(shown: Locator) -> None:
    """Check the order of text and pictures from top to bottom."""
    parts = [shown.get_by_text("above the picture"), shown.locator("img"), shown.get_by_text("below the picture")]
    parts += [
        shown.get_by_text("and a warning"),
        shown.locator("table.made-there"),
        shown.get_by_text("red", exact=True),
    ]
    tops = []
    for part in parts:
        expect(part).to_be_visible()
        # Not by bounding_box(): live output is drawn again at times.
        tops.append(part.evaluate("element => element.getBoundingClientRect().top"))
    assert tops == sorted(tops)
    assert len(set(tops)) == len(tops)


def _expect_pictures(shown: Locator) -> None:
    picture = shown.locator("img")
    expect(picture).to_have_count(1)
    size = picture.evaluate(
        "async image => { await image.decode(); return [image.naturalWidth, image.naturalHeight]; }"
    )
    assert size == [160, 90]
    expect(shown.locator("table.made-there td")).to_have_text("a table")


@pytest.mark.timeout(300)
def test_figures_and_tables_are_there_also_when_the_tab_was_closed(
    page: Page, lab: Any, screenshot: Callable[[Page, str], None]
) -> None:
    go = lab.home / "go"
    write_notebook(lab.home / "rich.ipynb", "%load_ext jupyter_slurm", RICH.replace("GO", repr(str(go))), "job")
    page.set_viewport_size({"width": 1400, "height": 1600})
    url = f"{lab.url}lab/tree/rich.ipynb"
    open_notebook(page, url)
    run_cell(page, 0)
    live = run_cell(page, 1)
    expect(live).to_contain_text("before", timeout=90_000)  # during the job
    _expect_pictures(live)
    _expect_order(live)
    page.goto("about:blank")
    go.touch()
    open_notebook(page, url)
    again = run_cell(page, 2)
    expect(again).to_contain_text("COMPLETED", timeout=90_000)
    expect(again).to_contain_text("after")
    expect(again).not_to_contain_text("before")
    expect(again).to_contain_text("{'last': 'value'}")
    expect(again.locator("span", has_text="red").first).to_be_visible()
    _expect_pictures(again)
    _expect_order(again)
    screenshot(page, "rich")


def test_the_link_of_a_session_opens_it_through_this_server(lab: Any, page: Page) -> None:
    write_notebook(
        lab.home / "launch.ipynb", "%load_ext jupyter_slurm", "%slurm launch -p arandu -t 10 name=inner", "inner.stop()"
    )
    open_notebook(page, f"{lab.url}lab/tree/launch.ipynb")
    run_cell(page, 0)
    run_cell(page, 1)
    link = page.locator("a[href^='/jupyter-slurm/']")
    expect(link).to_be_visible(timeout=90_000)
    with page.context.expect_page() as opened:
        link.click()
    inner = opened.value
    expect(inner.locator(".jp-LauncherCard[data-category=Notebook]").first).to_be_visible(timeout=60_000)
    expect(inner).to_have_url(re.compile(f"^{re.escape(lab.url)}jupyter-slurm/"))
    inner.close()
    run_cell(page, 2)
    expect(page.locator(".jupyter-slurm-job").first).to_contain_text("CANCELLED", timeout=60_000)  # and the cell's own
