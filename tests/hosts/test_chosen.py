"""Tests of the choice of what `make test` leaves to the night."""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import chosen
import pytest

ROOT = Path(__file__).parents[2]


class Item:
    """A collected test."""

    def __init__(self, name: str, **params: str) -> None:
        self.nodeid, self.callspec, self.marks = f"tests/test_a.py::{name}", SimpleNamespace(params=params), list[str]()

    def get_closest_marker(self, name: str) -> None:
        return None

    def add_marker(self, mark: Any) -> None:
        self.marks.append(mark.name)


def test_each_line_names_a_test() -> None:
    for name in chosen.read_nightly():
        path, _, function = name.partition("[")[0].partition("::")
        assert re.search(rf"^(async )?def {function}\(", (ROOT / path).read_text("utf-8"), re.MULTILINE), name


def test_every_third_set_of_parameters_is_tested_by_day_on_each_route(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "read_nightly", lambda: {"tests/test_a.py::test_b": 3, "tests/test_a.py::test_c": 0})
    numbers = range(5)
    items = [Item(f"test_b[{way}-{number}]", way=way) for way in ("local", "openssh") for number in numbers]
    items += [Item("test_c"), Item("test_d")]
    chosen.mark_nightly(items)  # type: ignore[arg-type]
    assert [item.nodeid.partition("::")[2] for item in items if not item.marks] == [
        *("test_b[local-0]", "test_b[local-3]", "test_b[openssh-0]", "test_b[openssh-3]", "test_d")
    ]


def test_a_set_of_parameters_can_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chosen, "_text", lambda path: "# left to the night\ntests/test_a.py::test_b[a every 2]\n")
    chosen.read_nightly.cache_clear()
    items = [Item("test_b[a every 2]"), Item("test_b[b]")]
    try:
        chosen.mark_nightly(items)  # type: ignore[arg-type]
    finally:
        chosen.read_nightly.cache_clear()
    assert [item.nodeid.partition("::")[2] for item in items if not item.marks] == ["test_b[b]"]
