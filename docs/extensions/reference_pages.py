"""Sphinx extension that writes the generated pages of ``docs/reference/`` from the code, before Sphinx reads them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import reference_cli
import reference_errors
import reference_http
import reference_magics
import reference_profile
import reference_settings

PAGES: dict[str, Callable[[], str]] = {
    "cli": reference_cli.page,
    "errors": reference_errors.page,
    "http-api": reference_http.page,
    "magics": reference_magics.page,
    "settings": reference_settings.page,
    "site-profile": reference_profile.page,
}
"""Functions that return a page's Markdown, by the name of the page."""


def write_pages(folder: Path) -> None:
    """Write the pages that have changed, so that an unchanged page is not read again."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        path, text = folder / f"{name}.md", page()
        if not path.exists() or path.read_text("utf-8") != text:
            path.write_text(text, "utf-8")


def setup(app: Any) -> dict[str, bool]:
    """Register with Sphinx."""
    app.connect("builder-inited", lambda builder: write_pages(Path(builder.srcdir) / "reference"))
    return {"parallel_read_safe": True}
