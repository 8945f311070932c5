"""Addresses of the pages of the documentation, for hints and help."""

from __future__ import annotations

from typing import Final

__all__ = ["DOCUMENTATION_URL", "page_url"]

DOCUMENTATION_URL: Final = "https://jupyter-slurm.readthedocs.io/en/stable/"
"""Base address. No other module may write it."""


def page_url(page: str) -> str:
    """Return the address of a page: ``page_url("how-to/log-in")``, ``page_url("help/troubleshooting#no-module")``.

    Parameters
    ----------
    page
        Path of the page in ``docs/`` without its suffix, perhaps with the anchor of a section.
    """
    path, mark, section = page.partition("#")
    return f"{DOCUMENTATION_URL}{path}.html{mark}{section}"
