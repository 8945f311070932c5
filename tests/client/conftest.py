"""Parser of the HTML of handles, for tests."""

from __future__ import annotations

from collections.abc import Callable
from html.parser import HTMLParser

import pytest


class Html(HTMLParser):
    """The elements of a piece of HTML with their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.seen: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    @property
    def tags(self) -> set[str]:
        """Return the kinds of elements."""
        return {tag for tag, _ in self.seen}

    @property
    def attributes(self) -> set[str]:
        """Return the names of attributes."""
        return {name for _, attributes in self.seen for name in attributes}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="session")
def read_html() -> Callable[[str], Html]:
    """Parse a piece of HTML."""
    return Html
