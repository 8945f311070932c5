"""Notebooks, and a browser that opens one and runs its cells."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import nbformat

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Locator, Page

__all__ = ["new_notebook", "open_notebook", "run_cell", "write_notebook"]


def new_notebook(*cells: str) -> Any:
    """Return a notebook with code cells."""
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return made


def write_notebook(path: Path, *cells: str) -> None:
    """Write a notebook with code cells."""
    nbformat.write(new_notebook(*cells), path)


def open_notebook(page: Page, address: str) -> None:
    """Open a notebook, not that of the previous test, which JupyterLab restores first; wait for its kernel."""
    page.goto(address)
    page.wait_for_function(
        """path => {
            const current = window.jupyterapp?.shell.currentWidget;
            return current?.context?.path === path && current.sessionContext?.session?.kernel?.status === 'idle';
        }""",
        arg=address.rsplit("/", 1)[1].partition("?")[0],
    )
    page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.ready")


def run_cell(page: Page, number: int) -> Locator:
    """Run a cell and return its output."""
    page.evaluate(
        """number => {
            window.jupyterapp.shell.currentWidget.content.activeCellIndex = number;
            void window.jupyterapp.commands.execute('notebook:run-cell');
        }""",
        number,
    )
    return (
        page.locator(".jp-NotebookPanel:not(.lm-mod-hidden) .jp-CodeCell").nth(number).locator(".jp-OutputArea").first
    )
